"""One run per folder at a time: a second run would undo the first one's lines and checkpoints."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seele.errors import ConfigError

LOCK = ".lock"


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Keep other processes from training in this folder.

    The lock ends with this process, even if it is killed; its child processes do not inherit it.

    Raises:
        ConfigError: If another process trains there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:  # not inherited by child processes
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ConfigError(
                f"trainer.default_local_dir: {file.read() or 'another process'} trains in {folder}; wait for "
                "its end, or take another folder"
            ) from None
        except OSError:
            pass  # a file system without locks
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
