"""Scaf-GRPO (arXiv:2510.19807): for a problem that always fails, one rollout under the weakest hint that
helps.

Differs from ``grpo``: after initial steps without hints, every tier is tried once on a problem whose rollouts
all fail, and the success under the weakest tier replaces a failure.
"""

from seele.methods.method import Method

METHOD = Method(
    name="scaf_grpo",
    summary="one success under the weakest tier that helps, in groups that fail",
    controllers=("each",),
    requires={"hints.when": "rescue"},
)
