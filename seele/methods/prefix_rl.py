"""PrefixRL (arXiv:2601.18795): rollouts that continue prefixes of the model's own earlier solutions.

Differs from ``grpo``: the rollouts of a round continue one of the problem's prefixes, on which no loss is
computed, or none, and are compared only with one another.
"""

from seele.methods.method import Method

METHOD = Method(
    name="prefix_rl",
    summary="rollouts that continue prefixes of the model's own earlier solutions",
    controllers=("prefix_rl",),
    expects_column="own_share",
    requires={"advantage.baseline": "per_round"},
)
