r"""The reward of a text: its last ``\boxed{}`` against the reference answer, within limits.

An answer that cannot be graded is wrong, and its ``GradeReason`` says why, so that it is counted rather than
lost. The graders themselves run in ``seele.reward.worker``; sympy is never imported in this process.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from seele.config.settings import RewardConfig
from seele.errors import ConfigError, DataError
from seele.records import UNGRADED, Grade, GradeReason, Instance
from seele.reward.expression_filter import is_too_deep
from seele.reward.extract import answer_in, last_boxed
from seele.reward.graders import GRADERS
from seele.reward.process import WorkerPool, WorkerProcess, clock_limit_s
from seele.reward.reasoning import CHECKERS, check_answer

Pair = tuple[str, str]
"""Answer, blank if there is none, and gold."""

_DEFAULTS = RewardConfig()

# Answers repeat within a problem's rollouts. At the longest answers allowed this is a few MB.
_MAX_REMEMBERED = 4096


class ProblemGrader(ABC):
    """Grades responses to problems in processes that end with ``close`` or at the end of a ``with`` block."""

    _workers: WorkerPool

    @abstractmethod
    async def grade_rollout(self, text: str, instance: Instance, *, hint_steps: int = 0) -> Grade:
        """The verdict on a response.

        Args:
            text: The text that the model wrote, without the hint that it continues.
            instance: The problem.
            hint_steps: Steps of the worked solution that the model was shown.
        """

    @abstractmethod
    def grade_problems(self, texts_and_instances: Iterable[tuple[str, Instance]]) -> list[Grade]:
        """Grade un-hinted responses in parallel, preserving order; blocks until all are graded."""

    def grade_problem(self, text: str, instance: Instance) -> Grade:
        """``grade_problems`` for one response."""
        return self.grade_problems([(text, instance)])[0]

    def close(self) -> None:
        """Let the calls that have a process finish, end all processes and refuse further calls."""
        self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class GraderPool(ProblemGrader):
    """Grades answers in processes that are killed and restarted when one exceeds its limits. Thread-safe.

    Processes start at the first answer that needs one and end with ``close`` or with this process. Calls wait
    for a free process; waiting does not count towards the time limit.
    """

    def __init__(self, settings: RewardConfig = _DEFAULTS) -> None:
        """Check the grader; no process starts yet.

        Args:
            settings: A grader of ``seele.reward.graders.GRADERS``, and its limits. The text around a box may
                be of any length. An idle process uses about 100 MiB.

        Raises:
            ConfigError: Unknown grader.
        """
        if settings.grader not in GRADERS:
            raise ConfigError(
                f"seele.reward.grader: unknown grader {settings.grader!r}; allowed are {sorted(GRADERS)}"
            )
        self._reads_boxes_only = settings.grader == "mathruler"
        self._clock_limit_s = clock_limit_s(settings.time_limit_s)
        self._max_answer_chars = settings.max_answer_chars
        limits = str(settings.time_limit_s), str(settings.memory_limit_mb)
        self._workers = WorkerPool(
            [WorkerProcess(settings.grader, *limits) for _ in range(settings.num_workers)]
        )
        self._remembered: OrderedDict[Pair, Grade] = OrderedDict()
        self._lock = threading.Lock()

    def grade(self, text: str, gold: str) -> Grade:
        r"""Grade a generated text by its last ``\boxed{}``; blocks until the verdict arrives.

        Args:
            text: The generated text. Without a box it has no answer.
            gold: Reference answer. If it is blank, no answer is correct.

        Raises:
            DataError: If ``gold`` is not a text; MathRuler would raise, and the row would look wrong for
                ever.
            DependencyError: If the grader is not installed.
        """
        return self.grade_many([(text, gold)])[0]

    def grade_answer(self, answer: str | None, gold: str) -> Grade:
        r"""``grade`` for an answer without its box, or for a text: without any box, the text is the answer.

        ``None``, blank, and a text whose last box is not closed count as no answer.
        """
        return self.grade_answers([(answer, gold)])[0]

    def grade_many(self, texts_and_golds: Iterable[tuple[str, str]]) -> list[Grade]:
        """Grade all pairs in parallel, preserving order."""
        return self.grade_answers(
            (last_boxed(text) if isinstance(text, str) else None, gold) for text, gold in texts_and_golds
        )

    def grade_answers(self, answers_and_golds: Iterable[tuple[str | None, str]]) -> list[Grade]:
        """``grade_answer`` for all pairs in parallel, preserving order. Equal pairs are graded once."""
        return self._verdicts(answers_and_golds, self._at_once)

    def judge_answers(self, answers_and_golds: Iterable[tuple[str, str]]) -> list[Grade]:
        """The grader's own verdict on each pair, in order, even if answer and gold are the same text, which
        ``grade_answers`` accepts without asking the grader.
        """
        return self._verdicts(answers_and_golds, self._beyond_limits)

    def _verdicts(
        self,
        answers_and_golds: Iterable[tuple[str | None, str]],
        decide: Callable[[str, str], Grade | None],
    ) -> list[Grade]:
        """The verdicts of ``decide``, and of the grader where that gives None."""
        pairs = self._as_read(answers_and_golds)
        verdicts = {pair: grade for pair in pairs if (grade := decide(*pair))}
        waiting = [pair for pair in dict.fromkeys(pairs) if pair not in verdicts]
        verdicts |= zip(waiting, self._workers.ask_all(waiting, self._ask), strict=True)
        return [verdicts[pair] for pair in pairs]

    def _as_read(self, answers_and_golds: Iterable[tuple[str | None, str]]) -> list[Pair]:
        """Return what the grader reads of each answer, blank if there is none, and the gold."""
        pairs = [_checked(answer, gold) for answer, gold in answers_and_golds]
        if not self._reads_boxes_only:
            return pairs
        # The text around a box may be longer than an answer.
        return [(answer_in(answer) or "", gold) for answer, gold in pairs]

    async def grade_rollout(self, text: str, instance: Instance, *, hint_steps: int = 0) -> Grade:
        """``grade_problem`` for a coroutine; the grader does not see the hint."""
        return await asyncio.to_thread(self.grade_problem, text, instance)

    def grade_problems(self, texts_and_instances: Iterable[tuple[str, Instance]]) -> list[Grade]:
        """Grade with the checker of the problem's data source if it has one (``seele.reward.reasoning``),
        else like ``grade``.
        """
        pairs = list(texts_and_instances)
        graded = iter(
            self.grade_many(
                (text, instance.answer) for text, instance in pairs if instance.data_source not in CHECKERS
            )
        )
        return [
            check_answer(last_boxed(text), instance.answer, instance.data_source)
            if instance.data_source in CHECKERS
            else next(graded)
            for text, instance in pairs
        ]

    def _at_once(self, answer: str, gold: str) -> Grade | None:
        """The verdict if it needs no grader; ``None`` otherwise."""
        if not (answer_in(answer) or "").strip():
            return Grade(False, GradeReason.NO_ANSWER)
        if not gold.strip():
            return Grade(False, GradeReason.ERROR)
        # MathRuler compares stripped texts first, so this is also its verdict.
        if answer.strip() == gold.strip():
            return Grade(True, GradeReason.CORRECT)
        if beyond := self._beyond_limits(answer, gold):
            return beyond
        with self._lock:
            if (answer, gold) in self._remembered:
                self._remembered.move_to_end((answer, gold))
                return self._remembered[answer, gold]
        return None

    def _beyond_limits(self, answer: str, gold: str) -> Grade | None:
        """The verdict on texts that are too long or too deep to be graded; ``None`` for others."""
        if max(len(answer), len(gold)) > self._max_answer_chars:
            return Grade(False, GradeReason.TOO_LONG)
        if is_too_deep(answer) or is_too_deep(gold):
            return Grade(False, GradeReason.TOO_DEEP)
        return None

    def _ask(self, worker: WorkerProcess, pairs: Sequence[Pair]) -> list[Grade]:
        reasons = worker.ask(pairs, limit_s=self._clock_limit_s)
        grades = [Grade(reason is GradeReason.CORRECT, reason) for reason in reasons]
        with self._lock:
            # A verdict depends only on the two texts; a time-out or a crash may have other causes.
            self._remembered |= {
                pair: grade for pair, grade in zip(pairs, grades, strict=True) if grade.reason not in UNGRADED
            }
            while len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return grades


def reward_form(grade: Grade, format_score: float) -> Grade:
    """The verdict, with ``format_score`` if the answer is wrong but has the requested form."""
    formal = grade.reason is GradeReason.WRONG and format_score > 0.0
    return replace(grade, score=format_score) if formal else grade


def _checked(answer: object, gold: object) -> Pair:
    if not isinstance(gold, str):
        raise DataError(
            f"a reference answer must be a text, got {gold!r} ({type(gold).__name__}); write it as text"
        )
    return (answer if isinstance(answer, str) else ""), gold
