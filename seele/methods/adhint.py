"""ADHint (arXiv:2512.13095): half of the rollouts have no hint, and determine the hint length of the others.

Differs from ``grpo``: two rounds, the second with a hint that is longer the more of the first failed;
rollouts with and without a hint are compared separately.
"""

from seele.methods.method import Method

METHOD = Method(
    name="adhint",
    summary="a round without hints, then hints by its difficulty; each compared separately",
    controllers=("adhint",),
    requires={"advantage.baseline": "hinted_apart"},
)
