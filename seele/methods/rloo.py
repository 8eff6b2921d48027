"""RLOO (arXiv:2402.14740): each rollout is compared with the mean of the group's others.

Differs from ``grpo``: the baseline excludes the rollout itself, nothing is divided by a standard deviation,
and there is no KL term. The advantages equal those of verl's estimator.
"""

from seele.methods.method import Method

METHOD = Method(name="rloo", summary="a leave-one-out mean as baseline, no KL", estimator="rloo")
