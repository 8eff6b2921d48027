"""One run in a folder at a time: a second one would take back the lines and checkpoints of the first."""

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
    """While open, no other process trains in this folder. The lock ends with this process, however that ends;
    none that it starts has it.

    Raises:
        ConfigError: Another process trains there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:  # closed in every process that is started from here
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
