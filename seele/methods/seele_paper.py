"""SEELE exactly as in its paper (arXiv:2509.06923v1).

Differs from ``seele``: the curve is fitted only to the step's own rounds, by least squares with margin
points, and only a hint ratio is carried from visit to visit; the KL term is k3 with its own gradient.
"""

from seele.methods.method import Method

METHOD = Method(name="seele_paper", summary="SEELE with the paper's own controller", controllers=("paper",))
