"""The comparison of docs/evidence/pretrained.md: SmolLM2-135M on GSM8K. Killed runs resume; ended ones stay.

    python benchmarks/evidence/pretrained.py tuning     # the learning rate, and an adapter
    python benchmarks/evidence/pretrained.py compare    # all arms; or --arms grpo seele --seeds 0
    python benchmarks/evidence/pretrained.py table      # tables of the page, from the stored runs

It needs what scripts/recipes/smollm2_gsm8k.sh makes before training (ONLY=curves). A run is an ordinary run
of ``seele_verl.train`` in runs/evidence/. Its last model answers the first 500 held-out problems without a
hint, greedily and four times at the temperature of training (in tuning: the tuning problems, sampled). Then
run card, settings, metrics and scores are packed into benchmarks/evidence/runs/pretrained.parquet, and the
rest is removed.
"""

import argparse
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean

from archive import read, read_scores, run_names
from run import WORK, run_modules, store
from tables import with_tables

from seele.maths.tables import markdown_table

TASK = "pretrained"
PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "pretrained.md"
PROBLEMS = Path("data/prepared/gsm8k_smollm2")
MODELS = {"as_it_comes": "models/smollm2-135m", "warm": "models/smollm2-135m-warm"}
COMMON = (
    *("recipe=smollm2_gsm8k", "hardware=cpu", "trainer.logger=[console]"),
    *(f"data.val_files=[{PROBLEMS}/heldout.parquet]", "data.val_max_samples=200"),
    *("trainer.save_freq=10", "trainer.test_freq=20"),
)
RATE = "actor_rollout_ref.actor.optim.lr"
BUDGET = ("seele.max_generated_tokens=100000", "trainer.total_training_steps=200")
ARMS = {
    "grpo": ("method=grpo", *BUDGET),
    "seele": ("method=seele", "seele.hints.revealing=forbid", *BUDGET),
    "milestones": ("method=milestones", "seele.credit.stop=false", *BUDGET),
    # Its hints end with the planned steps, so it has no token budget.
    "uft": (*("method=uft", "seele.hints.rollouts_per_prompt=8", "trainer.total_training_steps=40"),),
    "sft": (
        *("method=sft", "seele.sft.epochs=1", "seele.sft.batch_size=16", "seele.sft.learning_rate=1e-4"),
        *("trainer.total_training_steps=60", "trainer.test_freq=30"),
    ),
}
SEEDS = (0, 1, 2)
RATES = (1e-5, 3e-5, 1e-4)
TUNING = "tuning"
TUNING_BUDGET = ("seele.max_generated_tokens=30000", "trainer.test_freq=-1", "trainer.val_before_train=false")
GREEDY, TEMPERATURE = 0.0, 0.7
SAMPLED = ("--samples", "4", "--dtype", "bfloat16")
REPORTED = (
    *(f"heldout={PROBLEMS}/heldout.parquet", "--limit", "500"),
    *("--temperature", str(GREEDY), str(TEMPERATURE)),
)
TUNED_ON = (f"tuning={PROBLEMS}/tuning.parquet", "--temperature", str(TEMPERATURE))


@dataclass(frozen=True, slots=True)
class Job:
    """One run, and how its model is evaluated."""

    name: str
    overrides: tuple[str, ...]
    asked: tuple[str, ...]


def tuning_jobs() -> Iterator[Job]:
    """Yield GRPO at each learning rate, then an adapter at ten times the best; the seed is in no report."""

    def job(name: str, rate: float, *settings: str) -> Job:
        settings = (*settings, f"{RATE}={rate:g}", "seele.seed=1000")
        return Job(f"{TUNING}/{name}", (*COMMON, *ARMS["grpo"], *TUNING_BUDGET, *settings), TUNED_ON)

    for rate in RATES:
        yield job(f"lr_{rate:g}", rate)
    yield job("lora", 10 * tuned_rate(), "adapter=lora")


def jobs(arms: Sequence[str], seeds: Sequence[int]) -> Iterator[Job]:
    """Yield all arms with the first seed before any with the second."""
    for seed, arm in product(seeds, arms):
        rate = [] if arm == "sft" else [f"{RATE}={tuned_rate():g}"]
        yield Job(f"{arm}/seed_{seed}", (*COMMON, *ARMS[arm], *rate, f"seele.seed={seed}"), REPORTED)


def do(job: Job) -> None:
    """Train or resume training, and evaluate the trained model."""
    work = WORK / TASK / job.name
    finish(
        job.name,
        ["seele_verl.train", *job.overrides, f"trainer.default_local_dir={work}"],
        ["seele_verl.merge", str(work)],
        ["seele_eval.run", "--run", str(work), *SAMPLED, "--problems", *job.asked],
    )


def ask_models() -> None:
    """Evaluate the models that training begins with, like the trained ones."""
    for name, model in MODELS.items():
        # A run's folder states these itself.
        settings = ("--template", "chat", "--max-tokens", "160", "--out", f"{WORK / TASK / name}/eval")
        finish(name, ["seele_eval.run", "--model", model, *settings, *SAMPLED, "--problems", *REPORTED])


def finish(name: str, *commands: Sequence[str]) -> None:
    """Run the modules of a run and store it, unless it is stored already; exit if one fails."""
    if name in run_names(TASK):
        return
    work = WORK / TASK / name
    sys.stdout.write(f"{name}: log in {work}/launcher.log\n")
    sys.stdout.flush()
    if status := run_modules(commands, work, threads=os.cpu_count() or 1):
        sys.exit(f"{name} failed with status {status}, see {work}/launcher.log")
    store(f"{TASK}/{name}")


def tuned_rate() -> float:
    """The learning rate with which GRPO is best on the tuning problems."""
    return max(RATES, key=lambda rate: tuned_accuracy(f"lr_{rate:g}"))


def tuned_accuracy(name: str) -> float:
    """Un-hinted accuracy on the tuning problems after a short run."""
    return accuracy(f"{TUNING}/{name}", temperature=TEMPERATURE)


def accuracy(name: str, *, temperature: float) -> float:
    """Mean accuracy over samples of a stored run's last model, in percent."""
    (score,) = (
        each for each in read_scores(Path(TASK) / name)["scores"] if each["temperature"] == temperature
    )
    return 100 * float(score["accuracy"])


def tuning_table() -> str:
    """Return a table of the tuning runs."""
    rows = []
    for name in run_names(TASK):
        if name.startswith(f"{TUNING}/"):
            metrics = read(Path(TASK) / name).metrics
            seconds = fmean(row["timing_s/step"] for row in metrics if "timing_s/step" in row)
            tried = name.removeprefix(f"{TUNING}/")
            rows.append([f"`{tried}`", f"{tuned_accuracy(tried):.1f}", str(len(metrics)), f"{seconds:.0f}"])
    return markdown_table(["tried", "avg@4, %", "steps", "seconds a step"], rows)


def contents() -> dict[Path, bytes]:
    """Return the page with updated tables."""
    made = {"pretrained": table() + "\n", "pretrained-tuning": tuning_table() + "\n"}
    return {PAGE: with_tables(PAGE.read_text(encoding="utf-8"), made).encode()}


def table() -> str:
    """Every arm at the end of its runs: the mean over seeds, each seed, and the average cost of a run."""
    names = run_names(TASK)
    rows = [
        [
            name,
            "",
            *(f"{accuracy(name, temperature=each):.1f}" for each in (GREEDY, TEMPERATURE)),
            *[""] * 5,
        ]
        for name in MODELS
        if name in names
    ]
    for arm in ARMS:
        runs = [name for name in names if name.startswith(f"{arm}/")]
        if not runs:
            continue
        metrics = [read(Path(TASK) / name).metrics for name in runs]
        rows.append(
            [
                f"`{arm}`",
                str(len(runs)),
                *(
                    _over_seeds([accuracy(name, temperature=each) for name in runs])
                    for each in (GREEDY, TEMPERATURE)
                ),
                f"{fmean(each[-1]['step'] for each in metrics):.0f}",
                *(
                    f"{fmean(each[-1].get(f'{cost}_total', 0.0) for each in metrics) / scale:.0f}"
                    for cost, scale in (("tokens/generated", 1e3), ("tokens/trained", 1e3), ("flops", 1e12))
                ),
                f"{fmean(math.fsum(row['timing_s/step'] for row in each[1:]) for each in metrics) / 60:.0f}",
            ]
        )
    heads = ["model or arm", "seeds", "greedy, %", "avg@4, %", "steps"]
    return markdown_table([*heads, "generated, k", "trained, k", "TFLOP", "minutes of steps"], rows)


def _over_seeds(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("tuning", "compare", "table"))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=tuple(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    options = parser.parse_args()
    if options.what == "table":
        for path, content in contents().items():
            path.write_bytes(content)
        return
    if missing := [each for each in MODELS.values() if not Path(each).exists()]:
        parser.error(f"{', '.join(missing)}: missing; run ONLY=curves bash scripts/recipes/smollm2_gsm8k.sh")
    if options.what == "compare":
        ask_models()
    for job in tuning_jobs() if options.what == "tuning" else jobs(options.arms, options.seeds):
        do(job)


if __name__ == "__main__":
    main()
