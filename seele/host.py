"""The host's memory, as far as a process may use it."""

import os
from collections.abc import Iterator
from pathlib import Path

CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def host_memory() -> int:
    """Bytes of the host's memory, or of the container's limit where that is lower."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_container_limits()])


def _container_limits() -> Iterator[int]:
    for path in CGROUP_LIMITS:
        try:
            said = path.read_text().strip()
        except OSError:
            continue
        if said.isdigit():  # "max" stands for none
            yield int(said)
