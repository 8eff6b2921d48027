"""GHPO (arXiv:2507.10628): a problem that always fails is rolled out again, with ever more of its solution.

Differs from ``grpo``: if all rollouts of a problem fail, they are discarded and repeated with a quarter, one
half and three quarters of the solution in the question.
"""

from seele.methods.method import Method

METHOD = Method(
    name="ghpo",
    summary="groups that fail are rolled out again, with ever longer hints in the question",
    controllers=("ladder",),
    requires={"hints.when": "until_success", "hints.kind": "prefix"},
)
