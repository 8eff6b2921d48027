"""ADHint (arXiv:2512.13095): half of the rollouts have no hint, and say how long that of the others is.

Differs from ``grpo``: two rounds, the second with a hint that is the longer the more of the first failed;
rollouts with and without a hint are compared apart.
"""

from seele.methods.method import Method

METHOD = Method(
    name="adhint",
    summary="a round without hints, then hints by its difficulty; both compared apart",
    controllers=("adhint",),
)
