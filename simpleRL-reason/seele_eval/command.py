"""Helpers of this package's commands: print the result, report errors in one line, end with the parent."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from seele.errors import ConfigError, SeeleError


def run_command(command: Callable[[], str]) -> int:
    """Print what ``command`` returns.

    Exit status: 0, 2 for an error that the user can fix, 130 for an interrupt.
    """
    try:
        text = command()
    except (SeeleError, OSError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    sys.stdout.write(text)
    return 0


def check_folder(out: Path) -> None:
    """Raise ``ConfigError`` unless ``--out`` is a folder or a path where one can be made."""
    there = next((path for path in (out, *out.parents) if path.exists()), out)
    if there.exists() and not there.is_dir():
        raise ConfigError(
            f"--out {out}: {there} is a file; expected a folder, or a path where one can be made"
        )


def end_with_standard_input() -> None:
    """End this process when its standard input closes, that is, when the process that started it ends.

    So a killed parent leaves no process on its GPUs. Input that still arrives is dropped.
    """

    def watch() -> None:
        # os.read, because the interpreter would wait at exit for the lock of sys.stdin.
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="end with standard input", daemon=True).start()


def exit_quietly(status: int) -> NoReturn:
    """End the process with ``status``.

    Standard error is discarded: at exit, libraries that vLLM loads list all objects that they never free, in
    dozens of lines that the user can do nothing about.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(status)
