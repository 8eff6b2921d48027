"""Measure how often the base model solves each training problem of the main task under every legal hint.

python benchmarks/evidence/base_accuracy.py     # writes base_accuracy.json, the world of prediction.py
"""

import argparse
import json
from pathlib import Path
from typing import Any

from plan import BASE_ACCURACY, load_plan, problems_of, response_tokens
from run import prepare

from seele.data.storage.files import write_atomically
from seele.data.storage.schema import read_problems
from seele.records import GradeReason
from seele_eval.conditions import installed_versions
from seele_eval.generation import EngineSettings
from seele_eval.hint_curve import sample_hinted


def measure(model: Path, problems_file: Path, *, samples: int, seed: int) -> dict[str, list[float]]:
    """Problem -> accuracy at 0, 1, ... revealed steps, at temperature 1."""
    asked = [
        (problem, revealed)
        for problem in read_problems(problems_file)
        for revealed in range(len(problem.legal_hint_ratios))
    ]
    settings = EngineSettings(max_tokens=response_tokens(load_plan()), seed=seed)
    responses = sample_hinted(
        model, asked, samples=samples, template="plain", temperature=1.0, settings=settings
    )
    accuracies: dict[str, list[float]] = {}
    for (problem, _), sampled in zip(asked, responses, strict=True):
        correct = sum(response.reason is GradeReason.CORRECT for response in sampled)
        accuracies.setdefault(problem.instance_id, []).append(correct / samples)
    return accuracies


def main() -> None:
    """Run the command."""
    plan = load_plan()
    task = next(iter(plan["tasks"]))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, default=Path("models") / plan["tasks"][task]["base_model"])
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    prepare(task)
    accuracies = measure(
        options.model, Path(problems_of(task)) / "train.parquet", samples=options.samples, seed=options.seed
    )
    conditions: dict[str, Any] = {
        "task": task,
        "model": options.model.resolve().name,
        "samples": options.samples,
        "seed": options.seed,
        "versions": installed_versions(),
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {values}" for name, values in accuracies.items())
    write_atomically(
        BASE_ACCURACY, f'{{"conditions": {json.dumps(conditions)},\n "accuracy": {{\n{lines}\n}}}}\n'
    )


if __name__ == "__main__":
    main()
