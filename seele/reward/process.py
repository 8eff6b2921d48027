"""One grading process as its caller sees it: a question a line, a reply a line, killed where none comes.

What the process does with a question is in ``seele.reward.worker``; who asks which process, and what a
missing reply means for a reward, is in ``seele.reward.grader``.
"""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import seele
from seele.errors import DependencyError

# Importing sympy takes one to two seconds on an idle machine, and start-up is not the answer's fault.
_START_LIMIT_S = 120.0

# What the interpreter may need to find itself and its libraries; nothing else reaches the worker.
_INHERITED = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH")


class WorkerProcess:
    """A ``python -m seele.reward.worker``, started at the first question and again after each death.

    For one caller at a time.
    """

    def __init__(self, *arguments: str) -> None:
        # -P: a folder of the caller's working directory must not stand in for a library.
        self._command = (sys.executable, "-P", "-m", "seele.reward.worker", *arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._has_started = False

    def ask(self, question: bytes, *, limit_s: float) -> bytes:
        """The reply to one line; both without their newline.

        Args:
            question: One line.
            limit_s: Wall-clock limit; start-up does not count. The limit on processor time is the worker's
                own.

        Raises:
            TimeoutError: If the process was killed for overrunning either limit.
            EOFError: If it ended in any other way.
            DependencyError: If it cannot be started even once.
        """
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._process = self._start()
        try:
            return _exchange(self._process, question, limit_s)
        except TimeoutError:
            self.stop()
            raise
        except (EOFError, OSError) as error:
            if self.stop() == -signal.SIGPROF:
                raise TimeoutError("processor-time limit") from error
            raise EOFError("the grading process died") from error

    def stop(self) -> int | None:
        """End the process at once, if one runs.

        Returns:
            Its exit status, negative for a signal; its own where it had ended before. None where none ran.
        """
        process, self._process = self._process, None
        return None if process is None else _end(process)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        root = str(Path(seele.__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        # sympy's order of terms follows hashes: the same answer must get the same verdict everywhere.
        environment |= {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
                # Ctrl-C is for the caller; the worker ends when its input does.
                start_new_session=True,
            )
            try:
                _read_line(process, _START_LIMIT_S)
            except (TimeoutError, EOFError) as error:
                _end(process)
                if self._has_started:
                    # Then the installation is fine, and whatever ends processes here ended this one.
                    raise EOFError("the grading process does not start again") from error
                complaints.seek(0)
                said = complaints.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise DependencyError(
                    f"the grading process does not start: {said or error!r}; try: {' '.join(self._command)}"
                ) from error
        self._has_started = True
        return process


def _exchange(process: subprocess.Popen[bytes], question: bytes, limit_s: float) -> bytes:
    assert process.stdin is not None, "opened as a pipe"
    process.stdin.write(question + b"\n")
    process.stdin.flush()
    return _read_line(process, limit_s)


def _end(process: subprocess.Popen[bytes]) -> int:
    process.kill()
    process.communicate()  # closes the pipes and waits
    return process.returncode


def _read_line(process: subprocess.Popen[bytes], limit_s: float) -> bytes:
    """The next line of the process, which says nothing unasked."""
    assert process.stdout is not None, "opened as a pipe"
    readable = select.poll()  # select.select() fails for descriptors above 1023, and Ray opens many
    readable.register(process.stdout, select.POLLIN)
    deadline = time.monotonic() + limit_s
    line = b""
    while not line.endswith(b"\n"):
        if not readable.poll(max(0.0, deadline - time.monotonic()) * 1000.0):
            raise TimeoutError(f"no reply within {limit_s:g} s")
        chunk = os.read(process.stdout.fileno(), 65536)
        if not chunk:
            raise EOFError("end of output")
        line += chunk
    return line[:-1]
