"""A child process that communicates in lines, each within a time limit, and is ended with all it started."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO

# How long it may take to notice that the process has died while one of its children still holds the pipes.
_LOOK_S = 0.2


class LineProcess:
    """A command between two pipes, started at once, in its own session so that Ctrl-C does not reach it."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], stderr: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None, "opened as a pipe"
        assert self._process.stdout is not None, "opened as a pipe"
        self._input = self._process.stdin.fileno()
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        self._unread = b""

    def write_line(self, line: bytes, *, limit_s: float) -> None:
        """Send ``line`` and a newline.

        Raises:
            TimeoutError: If none of it is read within the limit.
            OSError: If the process is dead.
        """
        unsent = line + b"\n"
        while unsent:
            if not _is_ready(self._input, select.POLLOUT, limit_s):
                raise TimeoutError(f"not read within {limit_s:g} s")
            unsent = unsent[os.write(self._input, unsent) :]

    def read_line(self, *, limit_s: float) -> bytes:
        """The next line, without its newline.

        Raises:
            TimeoutError: If it does not arrive in time.
            EOFError: If the process is dead.
        """
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            if _is_ready(self._output, select.POLLIN, min(deadline - time.monotonic(), _LOOK_S)):
                self._unread += self._read()
            elif self.is_dead:
                raise EOFError("the process died")
            elif time.monotonic() >= deadline:
                raise TimeoutError(f"no line within {limit_s:g} s")
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def discard_output(self) -> None:
        """Discard its output so far."""
        self._unread = b""
        while _is_ready(self._output, select.POLLIN, 0.0):
            self._read()

    @property
    def is_dead(self) -> bool:
        """True if it has ended; processes that it started may still run."""
        try:
            # Does not reap it: until ``end`` does, no other process can get its PID.
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return self._process.poll() is not None

    def end(self) -> None:
        """Kill the process and all it started, if they run."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()  # closes the pipes and waits

    def _read(self) -> bytes:
        chunk = os.read(self._output, 65536)
        if not chunk:
            raise EOFError("end of output")
        return chunk


def _is_ready(descriptor: int, event: int, limit_s: float) -> bool:
    # select.select() fails for descriptors above 1023, and Ray opens many.
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(max(0.0, limit_s) * 1000.0))
