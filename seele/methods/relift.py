"""ReLIFT (arXiv:2506.07527): between RL steps, supervised updates on problems that the policy fails.

Differs from ``drgrpo``: the worked solutions of problems without a correct rollout wait until there are
enough for a supervised update (``seele.interleave``); token means, a higher upper clipping limit.
"""

from seele.methods.method import Method

METHOD = Method(name="relift", summary="supervised updates between RL steps, on problems that failed")
