"""One grading process as its caller sees it: answers in, verdicts out, killed where none comes.

What the process does with a pair is in ``seele.reward.worker``; who asks which process is in
``seele.reward.grader``.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seele
from seele.errors import DependencyError
from seele.records import GradeReason
from seele.reward.line_process import LineProcess
from seele.reward.sandbox import NO_NETWORK

# Importing sympy takes one to two seconds on an idle machine, and start-up is not the answer's fault.
_START_LIMIT_S = 120.0

# What the interpreter may need to find itself and its libraries; nothing else reaches the worker.
_INHERITED = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR")


class WorkerProcess:
    """A ``python -m seele.reward.worker``, started at the first question and again after each death.

    For one caller at a time.
    """

    def __init__(self, *arguments: str) -> None:
        # -P: a folder of the caller's working directory must not stand in for a library.
        self._command = (sys.executable, "-P", "-m", "seele.reward.worker", *arguments)
        self._process: LineProcess | None = None
        self._has_started = False
        self._batch = 0

    def ask(self, pairs: Sequence[tuple[str, str]], *, limit_s: float) -> list[GradeReason]:
        """What became of each pair of answer and gold, in order; one that ends the process costs itself only.

        Args:
            pairs: Answer and gold.
            limit_s: Wall-clock limit of a reply; start-up does not count. The limit on processor time is the
                worker's own.

        Raises:
            DependencyError: If the process cannot be started even once.
        """
        reasons: list[GradeReason] = []
        while len(reasons) < len(pairs):
            reasons += self._exchange(pairs[len(reasons) :], limit_s)
        return reasons

    def stop(self) -> None:
        """End the process at once, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _exchange(self, pairs: Sequence[tuple[str, str]], limit_s: float) -> list[GradeReason]:
        """The fates of the first pairs: of all, or up to the one that ended the process."""
        reasons: list[GradeReason] = []
        try:
            process = self._running()
            self._batch += 1
            message = {"batch": self._batch, "pairs": pairs}
            process.write_line(json.dumps(message).encode(), limit_s=limit_s)
            for _ in pairs:
                reply = self._reply(process, limit_s)
                reasons.append(_reason(reply))
                if "ended" in reply:
                    break
        except TimeoutError:
            self.stop()
            reasons.append(GradeReason.TIMEOUT)
        except (EOFError, OSError):
            self.stop()
            reasons.append(GradeReason.CRASHED)
        return reasons

    def _reply(self, process: LineProcess, limit_s: float) -> dict[str, Any]:
        """The next reply to this batch; the child of a child that died may still answer the one before."""
        while True:
            reply: dict[str, Any] = json.loads(process.read_line(limit_s=limit_s))
            if reply.get("batch", self._batch) == self._batch:
                return reply

    def _running(self) -> LineProcess:
        if self._process is None or self._process.is_dead:
            self.stop()
            self._process = self._start()
        # A child that was killed while it idled is no fate of the next pair.
        self._process.discard_output()
        return self._process

    def _start(self) -> LineProcess:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        root = str(Path(seele.__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        # sympy's order of terms follows hashes: the same answer must get the same verdict everywhere.
        environment |= {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
        said = ""
        for command in ((*NO_NETWORK, *self._command), self._command):
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
            # Then the installation is fine, and whatever ends processes here ended this one.
            raise EOFError("the grading process does not start again")
        raise DependencyError(f"the grading process does not start: {said}; try: {' '.join(self._command)}")


def _reason(reply: dict[str, Any]) -> GradeReason:
    if "ended" in reply:
        return GradeReason.TIMEOUT if reply["ended"] == -signal.SIGPROF else GradeReason.CRASHED
    if "error" in reply:
        return GradeReason.ERROR
    return GradeReason.CORRECT if reply["correct"] else GradeReason.WRONG
