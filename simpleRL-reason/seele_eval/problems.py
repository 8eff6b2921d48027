"""One problem of a benchmark: its question and its reference answers.

``seele_eval.rows`` reads the data sets' rows; ``seele_eval.benchmarks`` lists the data sets.
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
    """Unique in its benchmark and derived from the content: a shuffled or shortened file keeps its ids."""

    question: str
    """The question with its options, without template."""

    answers: tuple[str, ...]
    """Reference answers without box; several must all be given, in any order. With options, the label of the
    right one.
    """

    labels: tuple[str, ...] = ()
    """Labels of the options: letters or digits. Empty for an open question."""

    options: tuple[str, ...] = ()
    """Texts of the options."""

    unit: str = ""
    """Unit of the answer if the source states one separately; an answer may repeat it."""

    level: int = 0
    """Difficulty if the source states one, else 0."""

    data_source: str = ""
    """Data set of a training problem; it may have its own checker."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    """The row's values of the columns that scores are split by; None if the row lacks one."""

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
    """A problem with options by label, worded as in LUFFY's evaluation files (arXiv:2504.14945)."""
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
    """Make ids unique: the second of two identical problems gets ``-2``, and so on."""
    seen: Counter[str] = Counter()
    numbered = []
    for problem in problems:
        name = problem.instance_id
        seen[name] += 1
        numbered.append(problem if seen[name] == 1 else replace(problem, instance_id=f"{name}-{seen[name]}"))
    return numbered


def _digest(*texts: str) -> str:
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:16]
