"""What a step would take if it trained on the rollouts of the step before: predictions, not measurements.

    python benchmarks/overlap.py

The GPUs of a run are divided between engines and trainers, in the way that makes the step shortest, and both
work at the same time. The formulas are those of ``seele cost`` (docs/scaling.md).
"""

import sys
from collections.abc import Iterator

from seele.maths.model_shapes import SHAPES
from seele.maths.tables import markdown_table
from seele.simulate.cost import StepCost, step_cost
from seele.simulate.cost_setup import GPUS, Cluster, Job, Setup

CASES = (("qwen2.5-1.5b", 1, 8), ("qwen2.5-1.5b", 1, 64), ("qwen2.5-7b", 1, 8), ("qwen2.5-7b", 1, 64))
CASES += (("qwen2.5-7b", 1, 256),)
"""Model, GPUs of an engine, GPUs."""
PARTS = 8
"""The GPUs are divided into this number of equal parts, each of engines or of trainers."""


def cost(model: str, tensor_parallel: int, gpus: int) -> StepCost:
    """A step of the paper's job, as in docs/scaling.md."""
    cluster = Cluster(num_gpus=gpus, tensor_parallel=tensor_parallel)
    return step_cost(Setup(model=SHAPES[model], gpu=GPUS["h100"], cluster=cluster, job=Job()))


def rollout_s(step: StepCost) -> float:
    """Seconds of rolling out."""
    return step.prefill_s + step.decode_s + step.tail_s + step.rounds_s


def train_s(step: StepCost) -> float:
    """Seconds of training, log-probabilities included."""
    return step.old_log_prob_s + step.reference_s + step.update_s


def divisions(model: str, tensor_parallel: int, gpus: int) -> Iterator[tuple[float, int, float, float]]:
    """Seconds of a step without weight sync, trainers, and seconds of rolling out and training; for each
    division that whole nodes and engines allow.
    """
    for parts in range(1, PARTS):
        trainers = gpus * parts // PARTS
        try:
            rolls = rollout_s(cost(model, tensor_parallel, gpus - trainers))
            trains = train_s(cost(model, 1, trainers))
        except ValueError:
            continue
        yield max(rolls, trains), trainers, rolls, trains


def main() -> None:
    """Print the table of docs/scaling.md."""
    rows = []
    for case in CASES:
        model, _, gpus = case
        together = cost(*case)
        longer, trainers, rolls, trains = min(divisions(*case))
        step = longer + together.weight_sync_s
        rows.append([model, str(gpus), f"{together.step_s:.0f}", f"{gpus - trainers} + {trainers}"])
        rows[-1] += [f"{rolls:.0f}", f"{trains:.0f}", f"{step:.0f}", f"{step / together.step_s:.2f}"]
    heads = [
        "model",
        "GPUs",
        "step, s",
        "engines + trainers",
        "rollouts, s",
        "training, s",
        "step overlapped, s",
    ]
    sys.stdout.write(markdown_table([*heads, "ratio"], rows) + "\n")


if __name__ == "__main__":
    main()
