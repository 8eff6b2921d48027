"""LUFFY (arXiv:2504.14945): one rollout of each group is the worked solution, learnt off-policy.

Differs from ``drgrpo``: the solution is graded and stands in the group like a rollout, so that the mean is
taken over both; its tokens have the loss -f(pi) A with f(x) = x / (x + 0.1); nothing is clipped.

Its code's statistics over on-policy rows alone are ``seele.off_policy.statistics=on_policy``.
"""

from seele.methods.method import Method

METHOD = Method(
    name="luffy", summary="one worked solution in each group, shaped off-policy", off_policy="trace"
)
