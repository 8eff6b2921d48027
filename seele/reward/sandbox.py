"""The rights that a grading process gives up once its libraries are loaded, so that it can do little harm.

This is the third line of defence: texts that are not mathematics are not evaluated
(``seele.reward.expression_filter``), and the kernel ends a verdict that costs too much. If a text runs as
Python even so, it cannot write files, start processes or use the network. ``NO_NETWORK`` needs a kernel that
lets users create namespaces; the rest works everywhere.
"""

import os
import resource
import sys
import tempfile
from typing import Any

NO_NETWORK = ("unshare", "--user", "--net", "--")
"""Runs the command after it as an unprivileged user, without network and without root's powers."""

# Only what loading a module of sympy needs: the hook sees everything that leaves Python.
_HARMLESS = frozenset(
    {
        "array.__new__",
        "builtins.id",
        "code.__new__",
        "compile",
        "exec",
        "function.__new__",
        "import",
        "marshal.loads",
        "object.__delattr__",
        "object.__getattr__",
        "object.__setattr__",
        "os.listdir",
        "os.scandir",
        "sys._getframe",
        "sys._getframemodulename",
    }
)

# A module's file and its folder; the standard streams are three more.
_MAX_OPEN_FILES = 16


def enter_nowhere() -> None:
    """Work in a deleted folder, where nothing can be written."""
    try:
        nowhere = tempfile.mkdtemp()
    except OSError:  # nothing can be written anywhere
        os.chdir("/")
    else:
        os.chdir(nowhere)
        os.rmdir(nowhere)


# All of these run only in the grading process: they cannot be undone.
def limit_memory(limit_mb: int) -> None:  # pragma: no cover
    """Leave ``limit_mb`` MiB of address space beyond the current use, as imports may be large."""
    with open("/proc/self/statm", encoding="ascii") as pages:
        taken = int(pages.read().split()[0]) * resource.getpagesize()
    _lower(resource.RLIMIT_AS, taken + limit_mb * 2**20)
    _lower(resource.RLIMIT_CORE, 0)


def give_up(memory_limit_mb: int) -> None:  # pragma: no cover
    """Give up the environment, and memory, files, processes and sockets beyond what grading needs.

    An attempt to take more memory fails; an attempt at anything else ends the process.
    """
    os.environ.clear()
    sys.dont_write_bytecode = True
    limit_bytes = memory_limit_mb * 2**20
    for limit, value in (
        (resource.RLIMIT_AS, limit_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
    ):
        _lower(limit, value)
    # The two ways to create a file that raise no audit event.
    for module in (os, sys.modules["posix"]):
        for name in ("mkfifo", "mknod"):
            vars(module).pop(name, None)
    sys.addaudithook(_end_unless_harmless)


def _lower(limit: int, value: int) -> None:  # pragma: no cover
    _, hardest = resource.getrlimit(limit)
    lower = value if hardest == resource.RLIM_INFINITY else min(value, hardest)
    resource.setrlimit(limit, (lower, lower))


def _end_unless_harmless(event: str, args: tuple[Any, ...]) -> None:  # pragma: no cover
    if event in _HARMLESS or (event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        return
    os._exit(os.EX_NOPERM)
