"""BREAD (arXiv:2506.17211): a problem that always fails is rolled out again from a prefix of its solution.

Differs from ``ghpo``: the response continues from the prefix, the shortest under which the group is neither
all wrong nor too easy, as far as a bisection finds it.
"""

from seele.methods.method import Method

METHOD = Method(
    name="bread",
    summary="groups that fail are rolled out again after the shortest prefix that helps, by bisection",
    controllers=("bread",),
    requires={"hints.when": "until_success", "hints.kind": "prefix"},
)
