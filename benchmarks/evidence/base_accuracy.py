"""How often the base model solves each training problem of the main task under every legal hint.

python benchmarks/evidence/base_accuracy.py     # writes base_accuracy.json, the world of prediction.py
"""

import argparse
import json
from pathlib import Path
from typing import Any

from plan import HERE, load_plan, problems_of
from run import prepare

from seele.data.files import write_atomically
from seele.data.schema import read_problems
from seele.reward.grader import GraderPool
from seele.rollout.seeding import rollout_seed
from seele_eval.conditions import installed_versions
from seele_eval.generation import EngineSettings, complete_here
from seele_eval.prompts import Request

BASE_ACCURACY = HERE / "base_accuracy.json"
MAX_TOKENS = 96


def measure(model: Path, problems_file: Path, *, samples: int, seed: int) -> dict[str, list[float]]:
    """Problem -> accuracy at 0, 1, ... revealed steps, at temperature 1."""
    asked = [
        (problem, revealed)
        for problem in read_problems(problems_file)
        for revealed in range(len(problem.legal_hint_ratios))
    ]
    requests = [
        Request(
            question=problem.question,
            template="plain",
            temperature=1.0,
            seed=rollout_seed(seed, 0, problem.instance_id, revealed, sample),
            hint=problem.steps[:revealed],
        )
        for problem, revealed in asked
        for sample in range(samples)
    ]
    responses = dict(complete_here(model, requests, EngineSettings(max_tokens=MAX_TOKENS, seed=seed)))
    graded = [problem for problem, _ in asked for _ in range(samples)]
    with GraderPool() as grader:
        grades = grader.grade_problems(
            [(responses[index].text, problem) for index, problem in enumerate(graded)]
        )
    accuracies: dict[str, list[float]] = {}
    for index, (problem, _) in enumerate(asked):
        correct = sum(grade.correct for grade in grades[index * samples : (index + 1) * samples])
        accuracies.setdefault(problem.instance_id, []).append(correct / samples)
    return accuracies


def main() -> None:
    """Command line."""
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
