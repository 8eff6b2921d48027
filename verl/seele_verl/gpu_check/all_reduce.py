"""Sums over all GPUs, as FSDP makes them: every rank has its own numbers, and the sum is known."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

from seele_verl.gpu_check.agreement import CheckFailed

ELEMENTS = 2**24
"""64 MiB in single precision, about what a layer of a 1.5B model sends."""
REPETITIONS = 5
PERIOD = 1000
"""Numbers repeat with this period, so that sums stay small enough to be exact in single precision."""


def check(device: str, *, ranks: int | None = None, elements: int = ELEMENTS) -> str:
    """Start ``ranks`` processes, by default one per GPU, or two on a CPU (with gloo in place of NCCL)."""
    ranks = ranks or (torch.cuda.device_count() if device == "cuda" else 2)
    with tempfile.TemporaryDirectory() as folder:
        try:
            torch.multiprocessing.spawn(_reduce, args=(ranks, device, elements, folder), nprocs=ranks)
        except torch.multiprocessing.ProcessRaisedException as error:
            # The message is the traceback of the rank that failed; the others were terminated.
            raise CheckFailed(str(error).strip().splitlines()[-1]) from error
        seconds = float((Path(folder) / "seconds").read_text())
    if ranks == 1:
        return "one GPU: the sum is right, and nothing was sent between GPUs"
    # In a ring, each rank sends and receives 2 (N - 1) / N of the data.
    bandwidth = 2 * (ranks - 1) / ranks * 4 * elements / seconds / 1e9
    return f"{ranks} ranks add {4 * elements / 2**20:.0f} MiB exactly, {bandwidth:.1f} GB/s"


def _reduce(rank: int, ranks: int, device: str, elements: int, folder: str) -> None:
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=ranks,
    )
    counting_N = torch.arange(elements, device=device, dtype=torch.float32) % PERIOD
    expected_N = ranks * counting_N + ranks * (ranks - 1) // 2
    mine_N = counting_N + rank
    dist.all_reduce(mine_N)
    wrong = int((mine_N != expected_N).sum())
    if wrong:
        raise CheckFailed(f"rank {rank}: {wrong} of {elements} sums are wrong")
    begin = time.perf_counter()
    for _ in range(REPETITIONS):
        dist.all_reduce(mine_N)
    if device == "cuda":
        torch.cuda.synchronize()
    if rank == 0:
        (Path(folder) / "seconds").write_text(str((time.perf_counter() - begin) / REPETITIONS))
    dist.barrier()
    dist.destroy_process_group()
