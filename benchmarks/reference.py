"""The reference job, 32 problems x 32 rollouts of the quickstart's model, by plain verl and by us in turn.

    python benchmarks/reference.py --out runs/benchmark     # after scripts/quickstart.sh: its model and data

Every variant trains the same few steps in a fresh run folder, ``--repetitions`` times, interleaved so that a
busy minute of the machine does not fall on one of them. The first step of a run warms up and is left out.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from seele.data.files import read_json_lines

ROOT = Path(__file__).resolve().parents[1]

PROMPTS, ROLLOUTS = 32, 32

JOB = (
    "method=grpo",
    "hardware=cpu",
    "model=tiny",
    "data=chains",
    f"data.train_batch_size={PROMPTS}",
    f"seele.hints.rollouts_per_prompt={ROLLOUTS}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "trainer.save_freq=-1",
    "trainer.test_freq=-1",
    "trainer.val_before_train=false",
)

OURS = ("-m", "seele_verl.train")
PLAIN = ("benchmarks/plain_verl.py",)
FOUR_ROUNDS = ("seele.hints.rounds=4",)

VARIANTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "verl": (PLAIN, ()),
    "ours": (OURS, ()),
    "ours, 4 rounds": (OURS, FOUR_ROUNDS),
}

PHASES = ("gen", "old_log_prob", "ref", "adv", "update_actor", "update_weights", "step")


def run(variant: str, folder: Path, *, steps: int) -> list[dict[str, float]]:
    """Train, and return the metrics of every step but the first."""
    command, overrides = VARIANTS[variant]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "verl.jsonl"
    subprocess.run(
        [
            sys.executable,
            *command,
            *JOB,
            *overrides,
            f"trainer.total_training_steps={steps + 1}",
            f"trainer.default_local_dir={folder}",
        ],
        cwd=ROOT,
        env=os.environ | {"VERL_FILE_LOGGER_PATH": str(log)},
        stdout=(folder / "stdout").open("w"),
        stderr=subprocess.STDOUT,
        check=True,
    )
    if log.exists():
        lines = [line["data"] for _, line in read_json_lines(log)]
    else:
        lines = [line for _, line in read_json_lines(folder / "metrics.jsonl")]
    return [line for line in lines if "timing_s/step" in line][1:]


def generated_tokens(line: dict[str, float]) -> float:
    """Tokens of all responses of a step, which verl reports as a mean."""
    return line["response_length/mean"] * PROMPTS * ROLLOUTS


def summarise(lines: list[dict[str, float]]) -> dict[str, float]:
    """Medians over steps and repetitions."""
    summary = {
        f"{phase}_s": statistics.median(line[f"timing_s/{phase}"] for line in lines)
        for phase in PHASES
        if f"timing_s/{phase}" in lines[0]
    }
    speeds = [generated_tokens(line) / line["timing_s/gen"] for line in lines]
    return summary | {
        "rollout_tokens_per_s": statistics.median(speeds),
        "rollout_tokens_per_s_min": min(speeds),
        "rollout_tokens_per_s_max": max(speeds),
        "response_tokens": statistics.median(line["response_length/mean"] for line in lines),
        "reward": statistics.median(line["critic/rewards/mean"] for line in lines),
        "steps": len(lines),
    }


def main() -> None:
    """Print the medians as JSON, and keep them in OUT/reference.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    options = parser.parse_args()
    lines: dict[str, list[dict[str, float]]] = defaultdict(list)
    for repetition in range(options.repetitions):
        for variant in options.variants:
            folder = options.out.resolve() / f"{variant.replace(', ', '-').replace(' ', '-')}-{repetition}"
            lines[variant] += run(variant, folder, steps=options.steps)
    report = json.dumps({variant: summarise(seen) for variant, seen in lines.items()}, indent=1) + "\n"
    (options.out / "reference.json").write_text(report)
    sys.stdout.write(report)


if __name__ == "__main__":
    main()
