"""POPE (arXiv:2601.18779): hard problems, each beside a copy whose question has the beginning of a solution.

Differs from ``grpo`` in its data alone, which ``seele data guide`` makes: the shortest beginning from which
the base model solves the problem was searched in advance, and nothing learns it.
"""

from seele.methods.method import Method

METHOD = Method(name="pope", summary="hard problems, each beside a copy with a hint in its question")
