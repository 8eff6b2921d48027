"""LUFFY (arXiv:2504.14945): one rollout of each group is the worked solution, learnt off-policy.

Differs from ``drgrpo``: the solution is graded and counts as a rollout of the group, so that the mean
includes it; its tokens have the loss -f(pi) A with f(x) = x / (x + 0.1); nothing is clipped.

The mean is over all rows, as in its code. ``seele.off_policy.statistics=on_policy`` takes on-policy rows
alone, as its code does for RL with an SFT loss.
"""

from seele.methods.method import Method

METHOD = Method(
    name="luffy", summary="one worked solution in each group, shaped off-policy", off_policy="trace"
)
