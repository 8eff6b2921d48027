"""Time one step of sampling with a seed per request: vLLM's own loop over requests, and ``draw_tokens``.

    python benchmarks/sampling.py                                # 256 requests, 151,936 tokens, one thread
    python benchmarks/sampling.py --requests 512 --vocabulary 259

Both give tokens and log-probabilities of the whole vocabulary, as in training. They take turns on the same
logits; each ratio compares the two times of a turn.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

from seele_verl.engine.seeded_sampling import sample_seeded_at_once


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    """Print both times, and their ratio with its range."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--threads", type=int, default=1, help="torch's; an engine on a CPU has one")
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logits_RV = torch.randn(options.requests, options.vocabulary, generator=torch.Generator().manual_seed(0))
    generators = {row: torch.Generator().manual_seed(row) for row in range(options.requests)}
    vllms = TopKTopPSampler("processed_logprobs")
    sample_seeded_at_once()
    ours = TopKTopPSampler("processed_logprobs")
    rows = torch.arange(options.requests)
    ours.seeds_and_positions = rows, rows
    calls = [partial(sampler, logits_RV, generators, None, None) for sampler in (vllms, ours)]
    for call in calls:
        call()
    times = [tuple(map(seconds, calls)) for _ in range(options.turns)]
    ratios = sorted(theirs / own for theirs, own in times)
    for name, column in zip(("vLLM's loop", "draw_tokens"), zip(*times, strict=True), strict=True):
        sys.stdout.write(f"{name}: {1000 * statistics.median(column):.1f} ms (median)\n")
    middle = statistics.median(ratios)
    sys.stdout.write(f"ratio: {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}, {options.turns} turns)\n")


if __name__ == "__main__":
    main()
