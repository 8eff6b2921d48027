"""Measure how the time of a step grows with prompts, rollouts, rollout workers and trainer ranks.

    python benchmarks/growth.py --out runs/benchmark     # after scripts/quickstart.sh: its model and data

There is one run per size, one after the other. Sequence length is one of the variants of ``rounds.py``.
"""

import argparse
import json
import sys
from pathlib import Path

from runs import OURS, Line, median, train
from seele.maths.tables import markdown_table

PHASES = ("step", "gen", "ref", "update_actor")


def job(*, prompts: int = 16, rollouts: int = 16, workers: int = 1, ranks: int = 1) -> tuple[str, ...]:
    """Return a job with one round without hints and four mini-batches."""
    return (
        "method=grpo",
        f"data.train_batch_size={prompts}",
        f"seele.hints.rollouts_per_prompt={rollouts}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts // 4}",
        f"actor_rollout_ref.rollout.agent.num_workers={workers}",
        f"trainer.n_gpus_per_node={ranks}",
        "actor_rollout_ref.actor.optim.lr=1e-12",  # 0 is refused
    )


SIZES = {
    "16 prompts x 16 rollouts": job(),
    "64 prompts x 16 rollouts": job(prompts=64),
    "16 prompts x 64 rollouts": job(rollouts=64),
    "16 x 64, 2 rollout workers": job(rollouts=64, workers=2),
    "16 x 64, 2 ranks": job(rollouts=64, ranks=2),
}


def main() -> None:
    """Print the table, and save it to OUT/growth.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    out = options.out.resolve()
    lines: dict[str, list[Line]] = {
        size: train(OURS, overrides, out / f"growth-{index}", steps=options.steps)[1:]
        for index, (size, overrides) in enumerate(SIZES.items())
    }
    rows = [
        [
            size,
            *(f"{median(seen, f'timing_s/{phase}'):.2f}" for phase in PHASES),
            f"{median(seen, 'tokens/generated'):.0f}",
            f"{max(line['memory/peak_gib'] for line in seen):.2f}",
        ]
        for size, seen in lines.items()
    ]
    phases = [f"{phase}, s" for phase in PHASES]
    report = markdown_table(["median over steps", *phases, "generated tokens", "peak memory, GiB"], rows)
    (out / "growth.json").write_text(json.dumps(lines) + "\n")
    (out / "growth.md").write_text(report)
    sys.stdout.write(report)


if __name__ == "__main__":
    main()
