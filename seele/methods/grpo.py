"""GRPO (arXiv:2402.03300) on SEELE's rollout path: the same number of rollouts, in one round, none with a
hint.

Differs from ``seele``: no controller, no imitation term; advantages divided by the group's standard
deviation; each sequence's loss is a mean over its tokens.
"""

from seele.methods.method import Method

METHOD = Method(name="grpo", summary="no hints: group-relative advantages alone")
