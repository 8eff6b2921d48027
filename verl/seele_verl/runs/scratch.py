"""A folder for a run's temporary files: sockets of vLLM, locks of verl, folders of torchrun. Libraries leave
some of them behind even if a run ends by itself.
"""

import fcntl
import getpass
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seele_verl.environment import variables_set

SCRATCH = "SEELE_SCRATCH"
"""Variable of a process whose temporary folder is already such a folder: a driver that has a parent."""
MAX_CHARS = 39
"""A socket's path must be shorter than 108 characters, of which Ray's session takes 68."""
IN_USE = "in_use"
"""File in a folder of this kind that is locked while the folder is in use."""


@contextmanager
def scratch_folder() -> Iterator[str]:
    """While open, temporary files of this process and its children are in a folder that is removed
    afterwards; yields the folder. Files that outlive a run stay in their usual place: Ray's session, with its
    logs, and torch's compiled kernels, which the next run needs again. Folders of killed runs are removed.
    """
    usual = tempfile.gettempdir()
    if os.environ.get(SCRATCH) == usual:
        yield usual
        return
    short = usual if len(usual) <= MAX_CHARS else "/tmp"
    kept = {
        "RAY_TMPDIR": short,
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(usual, f"torchinductor_{_user()}"),
    }
    _remove_abandoned(short)
    folder = tempfile.mkdtemp(prefix="seele-", dir=short)
    try:
        theirs = {name: os.environ.get(name) or path for name, path in kept.items()}
        with _in_use(folder), variables_set({"TMPDIR": folder, SCRATCH: folder, **theirs}):
            tempfile.tempdir = None
            yield folder
    finally:
        tempfile.tempdir = None
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _in_use(folder: str) -> Iterator[None]:
    hidden = Path(folder, f".{IN_USE}")
    with hidden.open("xb") as mark:
        # A file system without locks keeps the folders of killed runs.
        with suppress(OSError):
            fcntl.flock(mark, fcntl.LOCK_EX)
        hidden.rename(hidden.with_name(IN_USE))  # visible only once it is locked
        yield


def _remove_abandoned(parent: str) -> None:
    for file in Path(parent).glob(f"seele-*/{IN_USE}"):
        with suppress(OSError), file.open("r+b") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(file.parent, ignore_errors=True)


def _user() -> str:
    """Return the user's name, or one made of the number, as in containers whose users have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"
