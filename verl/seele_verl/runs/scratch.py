"""A folder of the run's own for what libraries leave among the system's temporary files: sockets of vLLM,
locks of verl, folders of torchrun. Some stay behind even where a run ends by itself.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from seele_verl.environment import variables_set

MAX_CHARS = 40
"""A socket's path must be shorter than 108 characters, of which vLLM's name takes 37."""


@contextmanager
def scratch_folder() -> Iterator[str]:
    """While open, temporary files of this process, and of those that it starts, are in a folder that is then
    removed; yields that. Ray's session, with its logs, stays where it would be without.
    """
    usual = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="seele-", dir=usual if len(usual) <= MAX_CHARS else "/tmp")
    try:
        with variables_set({"TMPDIR": folder, "RAY_TMPDIR": os.environ.get("RAY_TMPDIR") or usual}):
            tempfile.tempdir = None
            yield folder
    finally:
        tempfile.tempdir = None
        shutil.rmtree(folder, ignore_errors=True)
