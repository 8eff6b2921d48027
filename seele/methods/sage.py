"""SAGE (arXiv:2602.03143) with hints made in advance: a problem that always fails is rolled out again, with
ever stronger hints in the question.

Differs from ``ghpo``: a hint is a tier, a text that points to the solution without containing any of it.
"""

from seele.methods.method import Method

METHOD = Method(
    name="sage",
    summary="groups that fail are rolled out again, with ever stronger tiers in the question",
    controllers=("ladder",),
    requires={"hints.when": "until_success", "hints.kind": "tiers"},
)
