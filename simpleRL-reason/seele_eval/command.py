"""How the commands of this package end: with a text, with one line about what the user can fix, or with the
process that started them.
"""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from seele.errors import ConfigError, SeeleError


def run_command(command: Callable[[], str]) -> int:
    """Print what ``command`` returns.

    Exit status: 0, 2 for something that the user can fix, 130 where the user interrupted it.
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
    """End this process as soon as whoever holds the other end of its standard input, and writes nothing more
    to it, is gone: also one that was killed leaves nobody behind on its GPUs.
    """

    def watch() -> None:
        # Not by sys.stdin, whose lock the interpreter would wait for at its end.
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="end with standard input", daemon=True).start()


def exit_quietly(status: int) -> NoReturn:
    """End the process with ``status``.

    When the interpreter ends, libraries that vLLM loads list on standard error all that they never free:
    dozens of lines below the table, about nothing that a user could do.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(status)
