"""A module run in a process of its own, which ends when this one is told to.

``python -m seele.child MODULE ARGUMENT...`` is ``python -m MODULE ARGUMENT...`` without a traceback after an
interrupt.
"""

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """While open, signals to this process go to their handlers; for its main thread. Ignored ones stay
    ignored.
    """
    heard = {number: each for number, each in handlers.items() if signal.getsignal(number) != signal.SIG_IGN}
    before = {number: signal.signal(number, handler) for number, handler in heard.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_module(module: str, arguments: Sequence[str], *, stdout: TextIO | int | None = None) -> int:
    """Run ``python -m module`` to its end, and return its status as a shell has it. For the main thread.

    The module has a process group of its own, so that a terminal's Ctrl-C reaches it once: from here.

    Args:
        module: Name of the module; it reports its own errors.
        arguments: Its arguments.
        stdout: As in ``subprocess.Popen``.

    Raises:
        SystemExit: After SIGINT (130), SIGTERM (143) or SIGHUP (129): the signal was passed on, and the
            module has ended.
    """
    told: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        told.append(number)
        if process is not None:
            process.send_signal(number)

    def pause(number: int, frame: FrameType | None) -> None:
        _signal_group(process, signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGSTOP)
        _signal_group(process, signal.SIGCONT)

    handlers: dict[int, Handler] = {
        signal.SIGINT: pass_on,
        signal.SIGTERM: pass_on,
        signal.SIGHUP: pass_on,
        signal.SIGTSTP: pause,
    }
    with handling(handlers):
        process = subprocess.Popen(
            [sys.executable, "-m", "seele.child", module, *arguments],
            stdin=subprocess.DEVNULL,  # reading from a terminal would stop a group in its background
            stdout=stdout,
            process_group=0,
        )
        if told:
            process.send_signal(told[-1])
        status = process.wait()
    if told:
        # Processes that the module started, and did not end.
        _signal_group(process, signal.SIGTERM)
        sys.exit(128 + told[-1])
    return status if status >= 0 else 128 - status


def _signal_group(process: "subprocess.Popen[bytes] | None", number: int) -> None:
    if process is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _run_here() -> None:
    module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    _run_here()
