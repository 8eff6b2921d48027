"""SEELE to the letter of its paper (arXiv:2509.06923v1).

Differs from ``seele``: the curve is fitted to the step's own rounds alone, by least squares with margin
points, and only a hint ratio is carried from visit to visit; the imitation term is the probability of the
hint, as printed in Eq. 10, which vanishes for hints of more than a few tokens.
"""

from seele.methods.method import Method

METHOD = Method(
    name="seele_paper", summary="SEELE with the paper's own controller and terms", controllers=("paper",)
)
