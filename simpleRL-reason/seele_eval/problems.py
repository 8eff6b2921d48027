"""One problem of a benchmark, as it is asked and as its answer is checked.

How a data set writes its problems is in ``seele_eval.rows``; which data sets there are, in
``seele_eval.benchmarks``.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seele.records import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with its reference answers."""

    instance_id: str
    """Unique in its benchmark, and of the content: a shuffled or shortened file keeps its ids."""

    question: str
    """As it is asked, with its options, without template."""

    answers: tuple[str, ...]
    """Reference answers without box; where there are several, all must be given, in any order. The label of
    the right option where there are options.
    """

    labels: tuple[str, ...] = ()
    """What the options are called: letters or digits. Empty for an open question."""

    options: tuple[str, ...] = ()
    """What the options say."""

    unit: str = ""
    """Unit of the answer where the source states one beside it; an answer may repeat it."""

    level: int = 0
    """Difficulty where the source states one, else 0."""

    data_source: str = ""
    """Data set of a training problem, whose answers may have a checker of their own."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    """Values of the row by column, None where it has none, of the columns that scores are asked for by."""

    @property
    def answer(self) -> str:
        """The reference answers as one text."""
        return ", ".join(self.answers)


def open_problem(question: str, *answers: str, unit: str = "", level: int = 0) -> Problem:
    """A problem without options, identified by its content."""
    question = question.strip()
    answers = tuple(answer.strip() for answer in answers)
    return Problem(
        instance_id=_digest(question, *answers), question=question, answers=answers, unit=unit, level=level
    )


def choice_problem(question: str, options: dict[str, str], gold: str) -> Problem:
    """A problem with options by label, asked as LUFFY's evaluation files ask it (arXiv:2504.14945)."""
    lines = "\n".join(f"{label}) {text}" for label, text in options.items())
    asked = f"{question.strip()}\n\n{lines}"
    return Problem(
        instance_id=_digest(asked, gold),
        question=asked,
        answers=(gold,),
        labels=tuple(options),
        options=tuple(options.values()),
    )


def from_instance(instance: Instance) -> Problem:
    """A training problem without its worked solution."""
    return Problem(
        instance_id=instance.instance_id,
        question=instance.question,
        answers=(instance.answer,),
        level=instance.level,
        data_source=instance.data_source,
    )


def number_twins(problems: Iterable[Problem]) -> list[Problem]:
    """The problems with different ids: the second of two that are the same in all gets ``-2``, and so on."""
    seen: Counter[str] = Counter()
    numbered = []
    for problem in problems:
        name = problem.instance_id
        seen[name] += 1
        numbered.append(problem if seen[name] == 1 else replace(problem, instance_id=f"{name}-{seen[name]}"))
    return numbered


def _digest(*texts: str) -> str:
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:16]
