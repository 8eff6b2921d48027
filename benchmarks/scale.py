"""Measure how the parts outside the engine grow with a run's and a step's problems: seconds, memory, bytes.

    python benchmarks/scale.py                                # up to a million problems, 10,000 a step
    python benchmarks/scale.py --problems 10000 --prompts 1000

Rollouts are made up. Each line is measured in its own process; its memory is the peak above what the process
had before the part began.
"""

import argparse
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from seele.config import CurriculumConfig, HintConfig, SeeleConfig
from seele.curriculum.planner import StepPlanner
from seele.hints import configured_controller
from seele.maths.tables import markdown_table
from seele.records import (
    Completion,
    Finish,
    Grade,
    GradeReason,
    HintShare,
    Instance,
    Rollout,
    RoundOutcome,
    RoundRequest,
    Visit,
)
from seele.rollout.metrics import rollout_rows, step_metrics
from seele_verl.runs.log import RunLog

ROLLOUTS, ROUNDS, STEPS = 32, 2, 6
CHUNK = 10_000
TOKENS = 200
"""Tokens of a response."""
RIGHT, WRONG = Grade(correct=True, reason=GradeReason.CORRECT), Grade(correct=False, reason=GradeReason.WRONG)
RATIOS = tuple(step / STEPS for step in range(STEPS))

Report = dict[str, float]
"""Seconds of a part by activity, and the bytes that it writes."""


def name_of(problem: int) -> str:
    return f"problem-{problem:07d}"


@contextmanager
def timed(report: Report, what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    report[what] = time.perf_counter() - start


def controller(problems: int, prompts: int) -> Report:
    """Measure the hint controller, which knows all problems and is asked prompt by prompt, as in training."""
    draw, report = random.Random(0), Report()
    bayes = configured_controller(HintConfig())
    for first in range(0, problems, CHUNK):
        names = [name_of(problem) for problem in range(first, min(first + CHUNK, problems))]
        bayes.observe_rounds([RoundOutcome(name, 0.5, draw.randint(0, 8), 8) for name in names])
        bayes.end_visits(names)
    names = [name_of(problem) for problem in draw.sample(range(problems), prompts)]
    with timed(report, "a step"):
        for round_index in range(ROUNDS):
            for name in names:
                ((share,),) = bayes.plan_rounds(
                    [RoundRequest(name, round_index, RATIOS)], num_rollouts=ROLLOUTS // ROUNDS
                )
                bayes.observe_rounds([RoundOutcome(name, share.hint_ratio, 5, 16)])
        bayes.end_visits(sorted(names))
        bayes.metrics()
    with timed(report, "its state"):
        saved = json.dumps(bayes.state_dict())
    report["bytes"] = len(saved)
    return report


def planner(problems: int, prompts: int, curriculum: str) -> Report:
    """Measure the step planner, which draws problems and learns their outcomes."""
    report = Report()
    settings = SeeleConfig(method="seele", curriculum=CurriculumConfig(name=curriculum))
    rows = [{"level": problem % 5} for problem in range(problems)]
    plan = StepPlanner(
        settings, rows, instance_ids=[*map(name_of, range(problems))], batch_size=prompts, replays=False
    )
    for step in (1, 2):
        with timed(report, "a step"):
            begun, _ = plan.begin(step)
        seen = {problem: visit(problem) for problem in begun}
        start = time.perf_counter()
        plan.select(list(seen.values()))
        plan.learn(seen, {problem: dict.fromkeys(range(ROLLOUTS), 0.5) for problem in begun})
        report["a step"] += time.perf_counter() - start
    with timed(report, "its state"):
        saved = json.dumps(plan.state_dict())
    report["bytes"] = len(saved)
    return report


def visit(problem: int) -> Visit:
    """A problem's rollouts, half of them right."""
    instance = Instance(
        instance_id=name_of(problem),
        data_source="scale",
        question="What is it?",
        steps=("so and so\n",) * STEPS,
        answer="1",
    )
    completion = Completion(
        text="so and so\n" * 40,
        token_ids=tuple(range(TOKENS)),
        log_probs=(-0.5,) * TOKENS,
        finish=Finish.STOP,
    )
    rollouts = tuple(
        Rollout(
            round_index=index * ROUNDS // ROLLOUTS,
            rollout_index=index,
            share=HintShare(0.5, ROLLOUTS // ROUNDS),
            hint_steps=3,
            completion=completion,
            grade=RIGHT if index % 2 else WRONG,
        )
        for index in range(ROLLOUTS)
    )
    return Visit(instance=instance, step=1, prompt_tokens=9, step_tokens=(9,) * STEPS, rollouts=rollouts)


def dump(_: int, prompts: int) -> Report:
    """Measure a step's metrics, and writing its rollouts."""
    report, visits = Report(), [visit(problem) for problem in range(prompts)]
    with tempfile.TemporaryDirectory() as folder:
        log = RunLog(Path(folder))
        with timed(report, "a step"):
            step_metrics(visits)
            log.write_rollouts(1, (row for each in visits for row in rollout_rows(each, {})))
        report["bytes"] = (Path(folder) / "rollouts" / "step_1.jsonl").stat().st_size
    return report


PARTS: dict[str, Callable[[int, int], Report]] = {
    "controller": controller,
    "planner, uniform": lambda problems, prompts: planner(problems, prompts, "uniform"),
    "planner, sec": lambda problems, prompts: planner(problems, prompts, "sec"),
    "metrics and dump": dump,
}


def peak_gib() -> float:
    """Peak memory of this process, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(part: str, problems: int, prompts: int) -> list[str]:
    """Measure a line of the table, in a process of its own."""
    before = peak_gib()
    report = PARTS[part](problems, prompts)
    cells = [f"{report[what]:.2f}" if what in report else "" for what in ("a step", "its state")]
    cells += [f"{report['bytes'] / 1e6:.1f}", f"{peak_gib() - before:.2f}"]
    return [part, f"{problems:,}", f"{prompts:,}", *cells]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--prompts", type=int, nargs="+", default=[1_000, 10_000], help="prompts per step")
    options = parser.parse_args(arguments)
    if max(options.prompts) > options.problems[0]:
        parser.error(f"--prompts {max(options.prompts)}: more than the {options.problems[0]} problems")
    sizes = [(problems, options.prompts[0]) for problems in options.problems]
    sizes += [(options.problems[0], prompts) for prompts in options.prompts[1:]]
    rows = []
    # A worker ends with its task, which frees its memory.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for part in PARTS:
            for problems, prompts in sizes:
                if part == "metrics and dump" and problems != options.problems[0]:
                    continue
                rows.append(pool.apply(measure, (part, problems, prompts)))
                sys.stdout.write(" | ".join(rows[-1]) + "\n")
                sys.stdout.flush()
    heads = ["part", "problems", "prompts a step", "a step, s", "its state, s", "written, MB", "memory, GiB"]
    sys.stdout.write(f"\n{markdown_table(heads, rows)}\n")


if __name__ == "__main__":
    main()
