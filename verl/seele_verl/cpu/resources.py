"""Threads and memory of trainer and engine on a CPU.

``OMP_NUM_THREADS=1`` (hardware/cpu.yaml) is right for the many processes that mostly wait. Trainer and engine
take turns, so the trainer's ranks may have all cores. Its threads sleep where they wait
(``OMP_WAIT_POLICY=passive``): spinning, two of them starve whatever else runs, and each other.
"""

import ctypes
import os
from typing import Any

import torch

from seele_verl.compat import call_on_every_rank


def threads_per_rank(ranks: int) -> int:
    """Threads of each of ``ranks`` processes that divide this machine's cores."""
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def use_all_cores(worker_group: Any, *, ranks: int) -> None:
    """Divide the cores over the ranks of ``worker_group``, all on this machine."""
    call_on_every_rank(worker_group, torch.set_num_threads, threads_per_rank(ranks))


def return_free_memory() -> None:
    """Have glibc give back its free pages; does nothing under another C library.

    Micro-batches of many lengths leave holes in the heap: without this a process that trains SmolLM2-135M
    grows by about 0.1 GB a step.
    """
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return
