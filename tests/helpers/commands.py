"""Commands, run to their end or killed before it."""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence

import pytest

from seele.cli.main import main


def exit_status(*arguments: object) -> int:
    """Exit status of ``seele ARGUMENTS`` in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def kill_at(count: Callable[[], int], reaches: int, command: Sequence[str], *, after_s: float) -> None:
    """Start a command and kill it ``after_s`` seconds after a count reaches a number, before its end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while count() < reaches:
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.001)
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
