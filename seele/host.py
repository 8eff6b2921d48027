"""The host: the memory that a process may use, native support for bfloat16, and what a terminal shows."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from seele.errors import ConfigError

CGROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def host_memory() -> int:
    """Return the host's memory in bytes, or the limit of a container, batch job or unit if that is lower."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits()])


def escape_what_the_terminal_lacks() -> None:
    """Print a problem's characters that the terminal's encoding lacks as escapes, rather than fail."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _group_limits() -> Iterator[int]:
    """Yield the limits of this process's control group and of those that hold it, in both versions."""
    for line in _read(OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, file = CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        for each in (group, *group.parents):
            limit = _read(root / each / file).strip()
            if limit.isdigit():  # "max" means no limit
                yield int(limit)


def _read(path: Path) -> str:
    """Return the text of a file of the system; empty if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


CPU_INFO = Path("/proc/cpuinfo")
LEAST_CAPABILITY = (8, 0)
"""Least compute capability of a GPU: bfloat16 and flash attention's kernels need Ampere (A100) or newer."""


def computes_in_bfloat16() -> bool:
    """True if the processor multiplies matrices in bfloat16; others emulate it, ten times slower or more."""
    said = _read(CPU_INFO)
    return any(name in said.split() for name in ("avx512_bf16", "amx_bf16", "bf16"))


def check_bfloat16(setting: str) -> None:
    """Raise ``ConfigError`` unless the processor multiplies matrices in bfloat16.

    Args:
        setting: The setting that requests bfloat16, with its value.
    """
    if not computes_in_bfloat16():
        raise ConfigError(
            f"{setting}, but this processor has neither AVX512-BF16 nor AMX and emulates bfloat16, ten times "
            "slower or more; allowed here is 'float32'"
        )
