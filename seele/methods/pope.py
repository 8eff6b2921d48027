"""POPE (arXiv:2601.18779): hard problems, each with a copy whose question has the beginning of a solution.

Differs from ``grpo`` only in its data, which ``seele data guide`` makes: it finds in advance the shortest
beginning from which the base model solves the problem. No loss is computed on that beginning.
"""

from seele.methods.method import Method

METHOD = Method(
    name="pope",
    summary="hard problems, each with a copy that has a hint in its question",
    needs_column="guided_by",
)
