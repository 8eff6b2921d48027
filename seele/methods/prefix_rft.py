"""Prefix-RFT (arXiv:2507.01679): one rollout of eight continues a prefix of the solution and learns from it.

Differs from ``drgrpo``: the prefix is part of that rollout's response; its tokens, the fifth with the highest
entropy, have an advantage of their own; the continuation is compared with other continuations only.
"""

from seele.methods.method import Method

METHOD = Method(
    name="prefix_rft",
    summary="a prefix of the solution as part of some responses, updated where the policy is unsure",
    controllers=("prefix_rft",),
    off_policy="prefix",
)
