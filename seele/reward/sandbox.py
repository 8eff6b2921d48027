"""What a grading process gives up once its libraries are loaded, so that there is little left to harm.

The third fence: texts that are not mathematics are not evaluated (``seele.reward.expression_filter``), and
a verdict that costs too much is ended by the kernel. Should a text run as Python all the same, it finds no
files to write, no process to start and no network. ``NO_NETWORK`` needs a kernel that lets users make
namespaces; the rest works everywhere.
"""

import os
import resource
import sys
import tempfile
from typing import Any

NO_NETWORK = ("unshare", "--user", "--net", "--")
"""Runs the command behind it as an unprivileged user, without network and without root's powers."""

# What loading a module of sympy takes, and nothing beyond: the hook is asked about everything that leaves
# Python.
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

# A file of a module and the folder it lies in; the standard streams are three more.
_MAX_OPEN_FILES = 16


def enter_nowhere() -> None:
    """Work in a folder that does not exist any more: nothing can be put there."""
    try:
        nowhere = tempfile.mkdtemp()
    except OSError:  # nothing can be put anywhere
        os.chdir("/")
    else:
        os.chdir(nowhere)
        os.rmdir(nowhere)


# All run in the grading process only: there is no way back.
def limit_memory(limit_mb: int) -> None:  # pragma: no cover
    """Leave ``limit_mb`` MiB of address space beyond what the process has: what it imported may be large."""
    with open("/proc/self/statm", encoding="ascii") as pages:
        taken = int(pages.read().split()[0]) * resource.getpagesize()
    _lower(resource.RLIMIT_AS, taken + limit_mb * 2**20)
    _lower(resource.RLIMIT_CORE, 0)


def give_up(memory_limit_mb: int) -> None:  # pragma: no cover
    """Let go of the environment, and of memory, files, processes and sockets beyond what grading needs.

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
    # The two ways to make a file that raise no audit event.
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
