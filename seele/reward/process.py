"""The caller's side of grading processes: answers in, verdicts out; a process without a verdict is killed.

``seele.reward.worker`` is what runs in a process.
"""

import json
import os
import queue
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import seele
from seele.errors import DependencyError
from seele.records import GradeReason
from seele.reward.line_process import LineProcess
from seele.reward.sandbox import NO_NETWORK

# Importing sympy takes one to two seconds on an idle machine; start-up does not count against the answer.
_START_LIMIT_S = 120.0

# The variables by which the interpreter finds itself and its libraries; the worker gets no others.
_INHERITED = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR")

# Pairs per message: a few milliseconds of work, compared with which a message is cheap.
_MAX_BATCH = 64

# The wall clock only has to catch a process that does not run at all (stopped, swapped out): on a machine
# busy with training, a second of processor time takes a few seconds of wall-clock time, and at times nothing
# runs.
_CLOCK_PER_PROCESSOR_SECOND = 4.0
_PATIENCE_S = 20.0

_OUT_OF_TIME = -signal.SIGALRM
"""The status of a process that ran into the clock."""
_FROM_OUTSIDE = (-signal.SIGKILL, _OUT_OF_TIME)
"""Ends that need not be the pair's fault."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Reply = dict[str, Any]
"""The process's answer for a pair, or how the process ended."""


def clock_limit_s(time_limit_s: float) -> float:
    """Wall-clock seconds that a reply with ``time_limit_s`` of processor time may take."""
    return _CLOCK_PER_PROCESSOR_SECOND * time_limit_s + _PATIENCE_S


class WorkerProcess:
    """A ``python -m seele.reward.worker``, started at the first question and restarted when it dies.

    For one caller at a time.
    """

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Store the command; no process starts yet.

        Args:
            arguments: The worker's arguments.
            environment: Variables of the process, which then also keeps its network; without them, it has the
                few that Python needs.
        """
        # -P: a folder in the caller's working directory must not shadow a library.
        self._command = (sys.executable, "-P", "-m", "seele.reward.worker", *arguments)
        self._environment = environment
        self._process: LineProcess | None = None
        self._has_started = False
        self._batch = 0

    def ask(self, pairs: Sequence[tuple[str, str]], *, limit_s: float) -> list[GradeReason]:
        """The outcome of each pair of answer and gold, in order; one that ends the process affects no other.

        A process may be killed, or may not run at all, without a fault of the pair that it has. Another
        process is then asked once more.

        Args:
            pairs: Answer and gold.
            limit_s: Wall-clock limit of a reply; start-up does not count. The worker itself enforces the
                limit on processor time.

        Raises:
            DependencyError: If the process cannot be started even once.
        """
        return [_reason(reply) for reply in self.replies(pairs, limit_s=limit_s)]

    def replies(self, pairs: Sequence[Any], *, limit_s: float) -> list[Reply]:
        """The worker's reply to each pair, in order; ``{"ended": status}`` for one that ended the process.

        Arguments and errors are those of ``ask``.
        """
        replies: list[Reply] = []
        asked_again = -1
        while len(replies) < len(pairs):
            replies += self._exchange(pairs[len(replies) :], limit_s)
            last = len(replies) - 1
            if replies[-1].get("ended") in _FROM_OUTSIDE and last != asked_again:
                asked_again = last
                del replies[-1]
        return replies

    def stop(self) -> None:
        """End the process at once, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _exchange(self, pairs: Sequence[Any], limit_s: float) -> list[Reply]:
        """Replies to the first pairs: to all, or up to the one that ended the process."""
        replies: list[Reply] = []
        try:
            process = self._running()
            self._batch += 1
            message = {"batch": self._batch, "pairs": pairs}
            process.write_line(json.dumps(message).encode(), limit_s=limit_s)
            for _ in pairs:
                replies.append(self._reply(process, limit_s))
                if "ended" in replies[-1]:
                    break
        except TimeoutError:
            self.stop()
            replies.append({"ended": _OUT_OF_TIME})
        except (EOFError, OSError):
            self.stop()
            replies.append({"ended": -signal.SIGKILL})
        return replies

    def _reply(self, process: LineProcess, limit_s: float) -> Reply:
        """The next reply to this batch; a dead child's own child may still answer the batch before."""
        while True:
            reply: Reply = json.loads(process.read_line(limit_s=limit_s))
            if reply.get("batch", self._batch) == self._batch:
                return reply

    def _running(self) -> LineProcess:
        if self._process is None or self._process.is_dead:
            self.stop()
            self._process = self._start()
        # The death of an idle child does not concern the next pair.
        self._process.discard_output()
        return self._process

    def _start(self) -> LineProcess:
        if self._environment is None:
            environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        else:
            environment = dict(self._environment)
        root = str(Path(seele.__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        # sympy's order of terms depends on hashes: the same answer must get the same verdict everywhere.
        environment |= {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
        said = ""
        fenced = () if self._environment is not None else ((*NO_NETWORK, *self._command),)
        for command in (*fenced, self._command):
            if shutil.which(command[0]) is None:
                continue
            with tempfile.TemporaryFile() as complaints:
                process = LineProcess(command, environment=environment, stderr=complaints)
                try:
                    process.read_line(limit_s=_START_LIMIT_S)
                except (TimeoutError, EOFError):
                    process.end()
                    complaints.seek(0)
                    said = complaints.read().decode(errors="replace").strip().rpartition("\n")[2]
                    continue
            self._has_started = True
            return process
        if self._has_started:
            # Then the installation works, and this process died like the others here.
            raise EOFError("the grading process does not restart")
        raise DependencyError(f"the grading process does not start: {said}; try: {' '.join(self._command)}")


def ended_by(reply: Reply) -> GradeReason | None:
    """Why the pair has no verdict, if it ended its process; None otherwise."""
    if "ended" not in reply:
        return None
    is_late = reply["ended"] in (-signal.SIGPROF, _OUT_OF_TIME)
    return GradeReason.TIMEOUT if is_late else GradeReason.CRASHED


def _reason(reply: Reply) -> GradeReason:
    if ended := ended_by(reply):
        return ended
    if "error" in reply:
        return GradeReason.ERROR
    return GradeReason.CORRECT if reply["correct"] else GradeReason.WRONG


class WorkerPool:
    """Grading processes that work in parallel. Thread-safe; calls wait for a free process."""

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self._num_workers = len(workers)
        # Last in, first out: a second process starts only when two answers wait at the same time.
        self._idle: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        for worker in workers:
            self._idle.put(worker)
        self._closed = False

    def ask_all(
        self, items: Sequence[Item], ask: Callable[[WorkerProcess, Sequence[Item]], Sequence[Answer]]
    ) -> list[Answer]:
        """Call ``ask`` on all items in batches, in parallel, preserving order."""
        # Small enough that the processes finish together, large enough that they seldom wait for a message.
        size = min(_MAX_BATCH, -(-len(items) // (4 * self._num_workers))) or 1
        batches = [items[start : start + size] for start in range(0, len(items), size)]

        def ask_one(batch: Sequence[Item]) -> Sequence[Answer]:
            worker = self._idle.get()
            try:
                if self._closed:
                    raise RuntimeError("this grader is closed")
                return ask(worker, batch)
            finally:
                self._idle.put(worker)

        if len(batches) <= 1:
            return [answer for batch in batches for answer in ask_one(batch)]
        with ThreadPoolExecutor(self._num_workers) as threads:
            return [answer for answers in threads.map(ask_one, batches) for answer in answers]

    def close(self) -> None:
        """Let the calls that have a process finish, end all processes and refuse further calls."""
        self._closed = True
        workers = [self._idle.get() for _ in range(self._num_workers)]
        for worker in workers:
            worker.stop()
            self._idle.put(worker)
