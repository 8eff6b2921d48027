"""How many threads the trainer's ranks use on a CPU."""

import os
from collections.abc import Sequence
from typing import Any

import ray
import torch


def share_cores(workers: Sequence[Any]) -> None:
    """Split the cores among the training ranks.

    ``OMP_NUM_THREADS=1`` holds for every process of a CPU run: the engine's threads would spin against each
    other. The trainer's ranks compute while the engine is idle, so they may have all cores.
    """
    threads = max(1, len(os.sched_getaffinity(0)) // len(workers))
    ray.get([worker.__ray_call__.remote(lambda _: torch.set_num_threads(threads)) for worker in workers])
