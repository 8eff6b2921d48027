r"""The reward of a text: its last ``\boxed{}`` against the reference answer, within limits.

What cannot be graded is wrong, and its ``GradeReason`` says why, so that it is counted rather than lost. The
graders themselves run in ``seele.reward.worker``; sympy is never imported in this process.
"""

import json
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from seele.config.settings import RewardConfig
from seele.errors import ConfigError, DataError
from seele.records import Grade, GradeReason
from seele.reward.extract import last_boxed
from seele.reward.process import WorkerProcess
from seele.reward.worker import GRADERS

A = TypeVar("A")

_DEFAULTS = RewardConfig()

# The clock only has to catch a process that does not run at all (stopped, swapped out): on a machine that is
# busy training, a second of processor time takes a few by the clock.
_CLOCK_PER_PROCESSOR_SECOND = 4.0

# Answers repeat within a problem's rollouts. At the longest answers allowed this is a few MB.
_MAX_REMEMBERED = 4096


class GraderPool:
    """Grades answers in processes that are killed, and started again, when one takes too much. Thread-safe.

    Processes start at the first answer that needs one and end with ``close`` or with this process. Calls wait
    for a free process; waiting does not count towards the time limit.
    """

    def __init__(
        self,
        *,
        grader: str = _DEFAULTS.grader,
        num_workers: int = _DEFAULTS.num_workers,
        time_limit_s: float = _DEFAULTS.time_limit_s,
        max_answer_chars: int = _DEFAULTS.max_answer_chars,
        memory_limit_mb: int = _DEFAULTS.memory_limit_mb,
    ) -> None:
        """Check the settings; nothing is started yet.

        Args:
            grader: ``mathruler`` or ``math_verify``.
            num_workers: Processes that grade at the same time.
            time_limit_s: Processor time for one answer, in seconds.
            max_answer_chars: Longer answers are not graded (the text around the box may be of any length).
            memory_limit_mb: Address space of one process, in MiB; an idle one uses about 100.

        Raises:
            ConfigError: Unknown grader, or a limit that is not positive.
        """
        if grader not in GRADERS:
            raise ConfigError(
                f"seele.reward.grader: unknown grader {grader!r}; allowed are {sorted(GRADERS)}"
            )
        if min(num_workers, time_limit_s, max_answer_chars, memory_limit_mb) <= 0:
            raise ConfigError(
                f"seele.reward: limits must be positive, got {num_workers=}, {time_limit_s=}, "
                f"{max_answer_chars=}, {memory_limit_mb=}"
            )
        self._num_workers = num_workers
        self._time_limit_s = time_limit_s
        self._max_answer_chars = max_answer_chars
        # Last in, first out: a second process starts only when two answers wait at once.
        self._idle: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        for _ in range(num_workers):
            self._idle.put(WorkerProcess(grader, str(time_limit_s), str(memory_limit_mb)))
        self._closed = False
        self._verdicts: OrderedDict[tuple[str, str], Grade] = OrderedDict()
        self._lock = threading.Lock()

    def grade(self, text: str, gold: str) -> Grade:
        r"""Grade a generated text by its last ``\boxed{}``; blocks until the verdict is there.

        Args:
            text: What the model generated.
            gold: Reference answer, bare: without box. Nothing is right where it is blank.

        Raises:
            DataError: If ``gold`` is not a text; MathRuler would raise, and the row would look wrong for
                ever.
            DependencyError: If the grader is not installed.
        """
        return self.grade_answer(last_boxed(text), gold)

    def grade_answer(self, answer: str | None, gold: str) -> Grade:
        """``grade`` of an answer that is already out of its box; ``None`` or blank is no answer."""
        if not isinstance(gold, str):
            raise DataError(
                f"a reference answer must be a text, got {gold!r} ({type(gold).__name__}); write it as text"
            )
        if answer is None or not answer.strip():
            return Grade(False, GradeReason.NO_ANSWER)
        if not gold.strip():
            return Grade(False, GradeReason.ERROR)
        # MathRuler compares stripped texts first, so this is its verdict too.
        if answer.strip() == gold.strip():
            return Grade(True, GradeReason.CORRECT)
        if len(answer) > self._max_answer_chars:
            return Grade(False, GradeReason.TOO_LONG)
        return self._recall(answer, gold) or self._remember(answer, gold, self._ask(answer, gold))

    def grade_many(self, texts_and_golds: Iterable[tuple[str, str]]) -> list[Grade]:
        """``grade`` of each pair, in order, with all processes at work."""
        return self._map(self.grade, texts_and_golds)

    def grade_answers(self, answers_and_golds: Iterable[tuple[str | None, str]]) -> list[Grade]:
        """``grade_answer`` of each pair, in order, with all processes at work."""
        return self._map(self.grade_answer, answers_and_golds)

    def close(self) -> None:
        """Let the calls that have a process finish, end all processes and refuse further calls."""
        self._closed = True
        workers = [self._idle.get() for _ in range(self._num_workers)]
        for worker in workers:
            worker.stop()
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _map(self, grade: Callable[[A, str], Grade], pairs: Iterable[tuple[A, str]]) -> list[Grade]:
        with ThreadPoolExecutor(self._num_workers) as threads:
            return list(threads.map(lambda pair: grade(*pair), pairs))

    def _ask(self, answer: str, gold: str) -> Grade:
        question = json.dumps({"answer": answer, "gold": gold}).encode()
        worker = self._idle.get()
        try:
            if self._closed:
                raise RuntimeError("this GraderPool is closed")
            reply = json.loads(worker.ask(question, limit_s=self._time_limit_s * _CLOCK_PER_PROCESSOR_SECOND))
        except TimeoutError:
            return Grade(False, GradeReason.TIMEOUT)
        except EOFError:
            return Grade(False, GradeReason.CRASHED)
        finally:
            self._idle.put(worker)
        if "error" in reply:
            return Grade(False, GradeReason.ERROR)
        return Grade(True, GradeReason.CORRECT) if reply["correct"] else Grade(False, GradeReason.WRONG)

    def _recall(self, answer: str, gold: str) -> Grade | None:
        with self._lock:
            if (answer, gold) in self._verdicts:
                self._verdicts.move_to_end((answer, gold))
                return self._verdicts[answer, gold]
            return None

    def _remember(self, answer: str, gold: str, grade: Grade) -> Grade:
        # A verdict depends on nothing but the two texts; a time-out or a crash may have other causes.
        if grade.reason in (GradeReason.CORRECT, GradeReason.WRONG):
            with self._lock:
                self._verdicts[answer, gold] = grade
                if len(self._verdicts) > _MAX_REMEMBERED:
                    self._verdicts.popitem(last=False)
        return grade
