"""Dr. GRPO (arXiv:2503.20783): GRPO without the two normalisations that bias it.

Differs from ``grpo``: advantages are not divided by the standard deviation, the tokens' losses are summed and
divided by a constant instead of each sequence's length, and there is no KL term.
"""

from seele.methods.method import Method

METHOD = Method(name="drgrpo", summary="GRPO without division by standard deviation and length, no KL")
