"""BREAD (arXiv:2506.17211): a problem that always fails is rolled out again from a prefix of its solution.

Differs from ``ghpo``: the response continues from the prefix, whose length is found by bisection.
"""

from seele.methods.method import Method

METHOD = Method(
    name="bread",
    summary="groups that fail are rolled out again after a prefix that bisection finds",
    controllers=("ladder",),
    requires={"hints.when": "until_success", "hints.kind": "prefix"},
)
