"""TRAPO (arXiv:2512.17636): micro-groups with ever longer prefixes, whose likelihood is learnt with caution.

Differs from ``drgrpo``: rounds of 4, 2, 1 and 1 rollouts; after the first, a prefix if the problem goes
badly. The prefix is part of the response; its loss is its likelihood, weakened where the policy finds a token
unlikely.
"""

from seele.methods.method import Method

METHOD = Method(
    name="trapo",
    summary="ever longer prefixes where a problem goes badly, imitated within a trust region",
    controllers=("trapo",),
    off_policy="expert_prefix",
)
