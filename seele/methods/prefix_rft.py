"""Prefix-RFT (arXiv:2507.01679): one rollout of eight continues a prefix of the solution and learns from it.

Differs from ``drgrpo``: the prefix is part of that rollout's response; the fifth of its tokens with the
highest entropy have their own advantage; the continuation is compared only with other continuations.
"""

from seele.methods.method import Method

METHOD = Method(
    name="prefix_rft",
    summary="a prefix of the solution as part of some responses, updated where the policy is uncertain",
    controllers=("prefix_rft",),
    off_policy="prefix",
)
