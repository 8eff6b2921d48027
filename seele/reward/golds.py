r"""A check that reference answers can be matched: each is graded against itself, in the form of a response.

A gold that fails here makes its problem wrong forever, whatever the policy answers: a worked solution mapped
as the answer, a brace that is never closed, an answer of a kind that the grader cannot read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seele.config.settings import RewardConfig
from seele.errors import ConfigError, DataError
from seele.maths.boxed import OPENING, last_boxed
from seele.records import Grade, GradeReason, Instance
from seele.reward.extract import answer_in
from seele.reward.grader import GraderPool
from seele.reward.reasoning import CHECKERS, check_answer

_DEFAULTS = RewardConfig()

MAX_FAILING_GOLDS = 0.01
"""Share of a split's golds that may fail."""

MAX_WORDS = 40
"""A gold of more words is a text that no response repeats word for word. The longest real answers examined,
knights and knaves with eight people, have 24.
"""

# GSM8K's mark of the final answer.
_FINAL_MARK = "####"
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
# They compare the texts first, so equal ones need no process, whose start takes a second.
_TAKE_EQUAL_TEXTS = frozenset({"mathruler", "strict+"})
_SHOWN = 5
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldCheck:
    """Grades a split's golds against themselves, and refuses the split if too many fail."""

    grader: str = _DEFAULTS.grader
    """The grader of the run that trains on the problems."""
    max_failing: float = MAX_FAILING_GOLDS
    """Share of the golds that may fail, in [0, 1]."""

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for an unknown grader or a share outside [0, 1]."""
        GraderPool(RewardConfig(grader=self.grader))
        if not 0.0 <= self.max_failing <= 1.0:
            raise ConfigError(f"--max-failing-golds: expected a share from 0 to 1, got {self.max_failing}")

    def __call__(self, split: str, sample: Sequence[tuple[int, Instance]]) -> dict[str, Any]:
        """Check the golds of some of a split's problems.

        Args:
            split: The split's name, for messages.
            sample: Problems, each with its row in the prepared file.

        Returns:
            The manifest's entry for the check: grader, golds checked, golds that failed.

        Raises:
            DataError: More than ``max_failing`` of them fail; the message has rows and values.
        """
        grades = grade_golds([instance for _, instance in sample], grader=self.grader)
        failing = [
            (row, instance.answer, grade.reason)
            for (row, instance), grade in zip(sample, grades, strict=True)
            if not grade.correct
        ]
        if len(failing) > self.max_failing * len(sample):
            raise DataError(
                f"{split}: {len(failing)} of {len(sample)} reference answers that were tried are not right "
                f"even when a response repeats them (grader {self.grader}), more than the allowed "
                f"{self.max_failing:.3g} of them: {_shown(failing)}. If that is not the answer, name its "
                "column with --map answer=COLUMN (answer= alone reads the last box of the solution); if it "
                "is, choose another --grader, or accept such problems with --max-failing-golds SHARE"
            )
        return {"grader": self.grader, "checked": len(sample), "failing": len(failing)}


def grade_golds(instances: Sequence[Instance], *, grader: str = _DEFAULTS.grader) -> list[Grade]:
    r"""The verdict on each problem's gold in a response's ``\boxed{}``, against that gold, in order.

    If a gold itself marks a final answer, by ``####`` or a box, the response states only that answer.
    Problems of the reasoning tasks go to their own checkers.
    """
    grades: dict[int, Grade] = {}
    asked: dict[int, tuple[str, str]] = {}
    for index, instance in enumerate(instances):
        gold = instance.answer
        answer = last_boxed(rf"\boxed{{{_final_answer(gold)}}}") or ""
        if instance.data_source in CHECKERS:
            grades[index] = _check(answer, instance)
        elif not answer:
            grades[index] = Grade(False, GradeReason.NO_ANSWER)
        elif _is_text(gold) or len(gold) > _DEFAULTS.max_answer_chars:
            grades[index] = Grade(False, GradeReason.TOO_LONG)
        elif grader in _TAKE_EQUAL_TEXTS and answer == gold.strip():
            grades[index] = Grade(True, GradeReason.CORRECT)
        else:
            asked[index] = (answer, gold)
    with GraderPool(RewardConfig(grader=grader)) as pool:
        grades |= zip(asked, pool.judge_answers(asked.values()), strict=True)
    return [grades[index] for index in range(len(instances))]


def _is_text(gold: str) -> bool:
    """Return True if the gold is prose without a box, in which graders would look for the answer."""
    return OPENING not in gold and len(_WORD.findall(gold)) > MAX_WORDS


def _final_answer(gold: str) -> str:
    _, mark, final = gold.rpartition(_FINAL_MARK)
    return final.strip() if mark else (answer_in(gold) or "")


def _check(answer: str, instance: Instance) -> Grade:
    try:
        return check_answer(answer, instance.answer, instance.data_source)
    except DataError:
        return Grade(False, GradeReason.ERROR)


def _shown(failing: Sequence[tuple[int, str, GradeReason]]) -> str:
    """The first failing golds, with row and value."""
    texts = [
        f"row {row} (counted from 0) {_shortened(gold)} ({reason.value})"
        for row, gold, reason in failing[:_SHOWN]
    ]
    return "; ".join(texts) + (f"; and {len(failing) - _SHOWN} more" if len(failing) > _SHOWN else "")


def _shortened(gold: str) -> str:
    """The beginning and end of a gold: if it is a whole solution, the answer is at its end."""
    if len(gold) <= _SHOWN_CHARS:
        return repr(gold)
    return repr(f"{gold[: _SHOWN_CHARS // 2]} ... {gold[-_SHOWN_CHARS // 2 :]}")
