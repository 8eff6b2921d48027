"""BREAD (arXiv:2506.17211): a problem that always fails is rolled out again from a prefix of its solution.

Differs from ``ghpo``: the response goes on from the prefix, whose length is searched by bisection.
"""

from seele.methods.method import Method

METHOD = Method(
    name="bread",
    summary="groups that fail are rolled out again behind a prefix that bisection finds",
    controllers=("ladder",),
)
