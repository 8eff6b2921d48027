"""Milestones: the worked solution checks the model's own steps instead of being shown to it.

Differs from ``drgrpo``: each step of a response has an advantage of its own, by whether it comes to the value
that the worked solution has there (``seele.methods.credit``), and a rollout ends at its first sure error.
"""

from seele.methods.method import Method

METHOD = Method(
    name="milestones",
    summary="credit for every right step of a response, none behind its first error",
    controllers=(),
)
