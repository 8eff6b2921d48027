"""What goes wrong first in un-hinted solutions of chains: a wrong value, or a misread operation.

python benchmarks/evidence/mistakes.py TASK NAME=FOLDER ...     # adds models to mistakes.json
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from plan import MISTAKES, heldout_of, load_plan, response_tokens
from run import prepare

from seele.data.storage.files import file_sha256, write_atomically
from seele.data.storage.schema import read_problems
from seele.records import Instance
from seele.rollout.sampling import rollout_seed
from seele_eval.conditions import installed_versions
from seele_eval.generation import EngineSettings, complete_here, find_weights
from seele_eval.prompts import Request

STEP = re.compile(r"(\d)((?:[a-z][+-]\d)+)=(\d)")
OPERATION = re.compile(r"[a-z][+-]\d")
KINDS = ("value", "misread", "other")


def first_mistake(problem: Instance, response: str) -> tuple[str, int] | None:
    """Return the first mistake's kind and the number of operations before it; None if there is no mistake.

    ``value``: the result of a step whose operations match the question. ``misread``: an operation that is
    not the question's next one. ``other``: no step at all, a step that does not begin with the last one's
    result, too few or too many steps, a wrong box.
    """
    start, *operations = problem.question.split()
    value, worked = int(start), 0
    lines = response.splitlines() or [""]
    for line in lines:
        step = STEP.fullmatch(line)
        if step is None:
            is_done = worked == len(operations) and line == f"\\boxed{{{problem.answer}}}"
            return None if is_done else ("other", worked)
        begin, written, end = step.groups()
        if int(begin) != value:
            return "other", worked
        for operation in OPERATION.findall(written):
            if worked == len(operations):
                return "other", worked
            if operation != operations[worked]:
                return "misread", worked
            value = (value + int(operation[1:])) % 10
            worked += 1
        if int(end) != value:
            return "value", worked - 1
    return "other", worked


def count(problems: Sequence[Instance], responses: Iterable[str]) -> dict[str, Any]:
    """Count solutions, those without a mistake, and by operation those that reached it and that failed there.

    Position ``n`` of a list is the operation after ``n`` others; a mistake at the end of a solution, where
    no operation is left, is one position after the last operation.
    """
    reached, firsts = Counter[int](), {kind: Counter[int]() for kind in KINDS}
    right, longest = 0, max(len(problem.question.split()) for problem in problems)
    for problem, response in zip(problems, responses, strict=True):
        operations, mistake = len(problem.question.split()) - 1, first_mistake(problem, response)
        if mistake is None:
            right += 1
        else:
            firsts[mistake[0]][mistake[1]] += 1
        reached.update(range(operations if mistake is None else min(mistake[1] + 1, operations)))
    by_operation = {"reached": reached, **firsts}
    return {
        "solutions": len(problems),
        "right": right,
        **{name: [counts[n] for n in range(longest)] for name, counts in by_operation.items()},
    }


def measure(model: Path, problems_file: Path, *, samples: int, seed: int) -> dict[str, Any]:
    """Sample un-hinted solutions at temperature 1 and count what goes wrong in them."""
    problems = [problem for problem in read_problems(problems_file) for _ in range(samples)]
    requests = [
        Request(
            question=problem.question,
            template="plain",
            temperature=1.0,
            seed=rollout_seed(seed, 0, problem.instance_id, 0, number % samples),
        )
        for number, problem in enumerate(problems)
    ]
    settings = EngineSettings(max_tokens=response_tokens(load_plan()), seed=seed)
    responses = dict(complete_here(model, requests, settings))
    texts = [responses[number].text for number in range(len(requests))]
    (weights,) = find_weights(model)
    return {
        "weights_sha256": file_sha256(weights),
        "samples": samples,
        "seed": seed,
        "versions": installed_versions(),
        **count(problems, texts),
    }


def _model(argument: str) -> tuple[str, Path]:
    name, _, folder = argument.partition("=")
    if not Path(folder, "config.json").is_file():
        raise argparse.ArgumentTypeError(f"{argument}: expected NAME=FOLDER, with config.json in FOLDER")
    return name, Path(folder)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", help="task with the held-out problems")
    parser.add_argument("models", nargs="+", type=_model, metavar="NAME=FOLDER", help="base, or arm/seed_N")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    prepare(options.task)
    problems = Path(heldout_of(options.task))
    measured = {
        f"{options.task}/{name}": measure(folder, problems, samples=options.samples, seed=options.seed)
        for name, folder in options.models
    }
    stored = json.loads(MISTAKES.read_text()) if MISTAKES.exists() else {}
    entries = sorted((stored | measured).items())
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries)
    write_atomically(MISTAKES, f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
