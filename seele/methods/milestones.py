"""Milestones: the worked solution checks the model's own steps instead of being shown to it.

Differs from ``drgrpo``: each step of a response has its own advantage, by whether it reaches the value that
the worked solution has there (``seele.methods.credit``), and a rollout ends at its first sure error.
"""

from seele.methods.method import Method

METHOD = Method(
    name="milestones",
    summary="credit for every correct step of a response, none after its first error",
    controllers=(),
)
