"""Properties of the host: the memory that a process may use, and native support for bfloat16."""

import os
from collections.abc import Iterator
from pathlib import Path

from seele.errors import ConfigError

CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def host_memory() -> int:
    """Return the host's memory in bytes, or the container's limit if that is lower."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_container_limits()])


def _container_limits() -> Iterator[int]:
    for path in CGROUP_LIMITS:
        try:
            said = path.read_text().strip()
        except OSError:
            continue
        if said.isdigit():  # "max" means no limit
            yield int(said)


CPU_INFO = Path("/proc/cpuinfo")


def computes_in_bfloat16() -> bool:
    """True if the processor multiplies matrices in bfloat16; others emulate it, ten times slower or more."""
    try:
        said = CPU_INFO.read_text()
    except OSError:
        return False
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
