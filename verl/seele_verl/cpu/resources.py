"""Threads and memory of trainer and engine on a CPU.

``OMP_NUM_THREADS=1`` (hardware/cpu.yaml) is right for the many processes that mostly wait. Trainer and engine
take turns, so the trainer's ranks may use all cores. Its threads sleep while they wait
(``OMP_WAIT_POLICY=passive``): spinning threads would starve other processes and each other.
"""

import ctypes
import os
from typing import Any

import torch

from seele_verl.compat import call_on_every_rank

# From malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def threads_per_rank(ranks: int) -> int:
    """Return the number of threads of each of ``ranks`` processes that share this machine's cores."""
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def prepare_ranks(worker_group: Any, *, ranks: int) -> None:
    """Call ``prepare_rank`` on every rank of ``worker_group``, all on this machine."""
    call_on_every_rank(worker_group, prepare_rank, ranks)


def prepare_rank(ranks: int) -> None:
    """Give this process, one of ``ranks``, its share of the cores, and let it reuse its memory."""
    share_cores(ranks)
    keep_freed_memory()


def share_cores(ranks: int) -> None:
    """Give this process, one of ``ranks`` on its machine, its share of the cores; Ray and torchrun give it
    one core.
    """
    torch.set_num_threads(threads_per_rank(ranks))


def keep_freed_memory() -> None:
    """Make glibc reuse freed memory within an update; does nothing under another C library.

    By default every large tensor is mapped again, and the kernel clears its pages one fault at a time.
    """
    if libc := _glibc():
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_M_TOP_PAD, 2**28)


def return_free_memory() -> None:
    """Make glibc return its free pages between updates; does nothing under another C library.

    Micro-batches of many lengths leave holes in the heap: without this a process that trains SmolLM2-135M
    grows by about 0.1 GB a step.
    """
    if libc := _glibc():
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
