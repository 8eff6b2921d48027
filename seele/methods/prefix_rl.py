"""PrefixRL (arXiv:2601.18795): rollouts behind prefixes of solutions that the model itself once found.

Differs from ``grpo``: the rollouts of a round go on from a prefix of random length, which nothing learns, and
are compared with one another alone.
"""

from seele.methods.method import Method

METHOD = Method(
    name="prefix_rl",
    summary="rollouts behind prefixes of the model's own earlier solutions",
    controllers=("uniform",),
)
