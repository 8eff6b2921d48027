"""How many threads the trainer computes with on a CPU.

``OMP_NUM_THREADS=1`` (hardware/cpu.yaml) is right for the many processes that mostly wait. Trainer and engine
take turns, so the trainer's ranks may have all cores. Its threads sleep where they wait
(``OMP_WAIT_POLICY=passive``): spinning, two of them starve whatever else runs, and each other.
"""

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
