"""Evaluate a model without hints: ``python -m seele_eval.run --model M --benchmarks B --data-dir D --out O``.

Start here. The user's input is checked first. Then samples are drawn, graded while others are still being
drawn, and appended to predictions.jsonl one by one. The same command resumes a killed evaluation. The scores
come at the end: scores.md, and last scores.json, which marks a complete evaluation.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from threading import Event
from typing import Any, NoReturn

from seele.data.storage.files import write_atomically
from seele.errors import CheckpointError, ConfigError
from seele.records import Instance
from seele.reward.function_grader import FunctionGrader, open_grader
from seele.reward.graders import GRADERS
from seele.rollout.unanswered import find_unanswered, warn_of_unanswered
from seele_eval.arguments import Arguments, advise, parse_arguments
from seele_eval.benchmarks import GENERAL, MATH
from seele_eval.command import Progress, exit_quietly, run_command
from seele_eval.estimates import Estimate
from seele_eval.generation import Stamps, stamp
from seele_eval.grading import JUDGES, FoundAnswer, Grader, judge_found
from seele_eval.plan import Draw, Plan, choose_engine, make_plan
from seele_eval.predictions import PASS_FIGURE, PREDICTIONS, Ledger, Prediction
from seele_eval.problems import Problem
from seele_eval.prompts import Complete, Response, Responses
from seele_eval.scores import (
    AVERAGES,
    Score,
    average_scores,
    group_by_decoding,
    is_partial,
    score_predictions,
)
from seele_eval.sources import Task
from seele_eval.tables import (
    LUFFY_COLUMNS,
    SEELE_COLUMNS,
    column_tables,
    conditions_list,
    curves_of,
    details_table,
    draw_panels,
    pass_table,
    results_table,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of an evaluation."""

    name: str
    scores: tuple[Score, ...]
    """One score for each benchmark and temperature, in the order of the plan."""
    averages: Mapping[str, Estimate]
    """Average of each group whose benchmarks were all evaluated, at the first temperature of each."""

    def tables(self) -> str:
        """SEELE's table if one of its columns was measured, LUFFY's if all were, and the details."""
        values = {score.benchmark: score.accuracy for score in reversed(self.scores)}
        values |= {name: average.value for name, average in self.averages.items()}
        partial = {score.benchmark for score in self.scores if is_partial(score.benchmark, score.problems)}
        partial |= {name for name, members in AVERAGES.items() if not partial.isdisjoint(members)}
        wanted = [SEELE_COLUMNS] if not values.keys().isdisjoint([*MATH, *GENERAL]) else []
        wanted += [LUFFY_COLUMNS] if "luffy" in values else []
        rows = [
            results_table([(self.name, values)], partial=partial & values.keys(), columns=columns)
            for columns in wanted
        ]
        parts = [*rows, details_table(self.scores)]
        if curves := curves_of(self.scores):
            parts.append(f"## pass@k\n\n{pass_table(curves)}")
        parts += map(column_tables, self.scores)
        return "\n".join(part for part in parts if part)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""
    arguments = parse_arguments(argv)
    return run_command(lambda: evaluate(arguments).tables())


def command() -> NoReturn:
    """Run ``seele eval``."""
    exit_quietly(main())


def evaluate(arguments: Arguments, *, complete: Complete | None = None) -> Report:
    """Check, draw, grade, score and write.

    Args:
        arguments: What to evaluate and how.
        complete: Function that completes requests; chosen from the arguments if not given.

    Raises:
        SeeleError: For anything that the user can fix.
    """
    plan = make_plan(arguments)
    grader = open_grader(plan.reward)
    ledger = Ledger(plan.out, plan.conditions)
    _check_problems(plan, ledger)
    missing = [draw for draw in plan.draws if draw.key not in ledger.done]
    widened = _widened(plan, ledger)
    responses: Responses = iter(())
    with grader:
        if missing:
            try_own_functions(missing, grader)
            complete = complete or choose_engine(arguments, plan)
            responses = _of_same_model(complete([draw.request for draw in missing]), plan.stamps)
        if missing or widened:
            progress = Progress(sys.stderr, total=len(plan.draws), done=len(plan.draws) - len(missing))
            with ledger:
                for prediction in widened:
                    ledger.append(prediction)
                if missing:
                    if not isinstance(grader, FunctionGrader):
                        # Starts the grader: a failure shows now, and the first finished sample need not wait.
                        grader.grade_answer("1", "2")
                    record(missing, responses, ledger, grader, progress, threads=plan.reward.num_workers)
    # Samples may hold further columns, requested earlier.
    predictions = [replace(ledger.done[draw.key], columns=draw.problem.columns) for draw in plan.draws]
    report = make_report(plan, predictions)
    _write(plan, report, left_out=_left_out(plan, ledger))
    sys.stderr.write(warning(plan, predictions) + _say_left_out(plan, ledger))
    return report


def try_own_functions(draws: Sequence[Draw], grader: Grader | FunctionGrader) -> None:
    """Call a user's own functions on the first problem of each task, before a run of the engine depends on
    them: the reward function (``FunctionGrader.try_on``), or a benchmark's extraction and judge on the
    reference answer.

    Raises:
        SeeleError: A function raised, hit a limit, or returned something that it may not.
    """
    for draw in {draw.task.name: draw for draw in reversed(draws)}.values():
        task, problem = draw.task, draw.problem
        task.extract(problem.answer, problem)
        if isinstance(grader, FunctionGrader):
            grader.try_on(_instance(task, problem))
        elif task.judge not in JUDGES:
            task.judge(grader, problem, problem.answer)


def _of_same_model(responses: Responses, stamps: Stamps) -> Responses:
    """Yield the responses, unless the model's files were replaced while it was loaded: the weights may then
    not be those that were hashed.
    """
    first = list(islice(responses, 1))
    now = stamp(stamps)
    if changed := [file for file, before in stamps.items() if now[file] != before]:
        raise CheckpointError(
            f"{changed[0]}: was replaced while the model was loaded, by another merge for example, so its "
            "responses were not recorded; run the command again"
        )
    yield from chain(first, responses)


def _check_problems(plan: Plan, ledger: Ledger) -> None:
    """Raise ``ConfigError`` if an existing sample belongs to another problem with the same id."""
    for draw in plan.draws:
        there, problem = ledger.done.get(draw.key), draw.problem
        if there and (there.answer, there.question or problem.question) != (problem.answer, problem.question):
            raise ConfigError(
                f"{plan.out}: has samples of another {draw.task.name} problem {problem.instance_id!r}, whose "
                f"question or answer ({there.answer!r}) is not this one's ({problem.answer!r}); "
                "name another --out, or remove the folder"
            )


def _widened(plan: Plan, ledger: Ledger) -> list[Prediction]:
    """Existing samples that lack columns requested now, with these columns added."""
    there = [(ledger.done[draw.key], draw.problem.columns) for draw in plan.draws if draw.key in ledger.done]
    return [
        replace(prediction, columns={**prediction.columns, **columns})
        for prediction, columns in there
        if not columns.items() <= prediction.columns.items()
    ]


def record(
    draws: Sequence[Draw],
    responses: Responses,
    ledger: Ledger,
    grader: Grader | FunctionGrader,
    progress: Progress,
    *,
    threads: int,
) -> None:
    """Grade each response as it comes and append it, while the engine draws the next ones. Once one cannot be
    graded, or the user interrupts, none of those that wait is graded. An engine's error loses no response.
    """
    is_over = Event()

    def keep(draw: Draw, response: Response) -> None:
        if is_over.is_set():
            return
        try:
            ledger.append(grade(draw, response, grader))
        except BaseException:
            is_over.set()
            raise
        progress.advance()

    with ThreadPoolExecutor(threads) as pool:
        futures: list[Future[None]] = []
        try:
            for index, response in responses:
                futures.append(pool.submit(keep, draws[index], response))
                if is_over.is_set():
                    break
            wait(futures)
        except KeyboardInterrupt:
            is_over.set()
            raise
    for future in futures:
        future.result()


def grade(draw: Draw, response: Response, grader: Grader | FunctionGrader) -> Prediction:
    """Cut the response at a stop string, and find and judge its answer. A user's own reward function
    judges the whole response instead of one of ``JUDGES``. A truncated response may count as wrong unread.
    """
    task, problem, response = draw.task, draw.problem, response.before_stop(draw.request.stop)
    found = draw.reading.read(response.text, problem, task.extract)
    if verdict := draw.reading.unread(response.finish):
        found = FoundAnswer(answer=None)
    elif isinstance(grader, FunctionGrader):
        counted = draw.reading.counted(response.text) or ""
        verdict = grader.grade_problem(counted, _instance(task, problem))
    else:
        verdict = judge_found(task.judge, grader, problem, found)
    return Prediction(
        benchmark=task.name,
        temperature=draw.request.temperature,
        instance_id=problem.instance_id,
        level=problem.level,
        sample=draw.sample,
        question=problem.question if task.may_be_published else "",
        answer=problem.answer,
        text=response.text,
        extracted=found.answer,
        correct=verdict.correct,
        reason=verdict.reason,
        finish=response.finish,
        response_tokens=response.num_tokens,
        is_unboxed=found.is_unboxed,
        columns=problem.columns,
    )


def _instance(task: Task, problem: Problem) -> Instance:
    """The problem as a training reward function sees it."""
    return Instance(
        instance_id=problem.instance_id,
        data_source=problem.data_source or task.name,
        question=problem.question,
        steps=problem.steps,
        answer=problem.answer,
        level=problem.level,
    )


def make_report(plan: Plan, predictions: Sequence[Prediction]) -> Report:
    """Score the plan's samples, which must be complete."""
    groups = group_by_decoding(predictions)
    first_of_each: dict[str, list[Prediction]] = {}
    for (benchmark, _), group in groups.items():
        first_of_each.setdefault(benchmark, group)
    return Report(
        name=plan.name,
        scores=tuple(
            score_predictions(
                group,
                template=plan.template,
                answers=plan.conditions["answers"],
                knows_answers=plan.reward.grader in GRADERS,
            )
            for group in groups.values()
        ),
        averages=average_scores(first_of_each),
    )


def warning(plan: Plan, predictions: Sequence[Prediction]) -> str:
    """Return a warning for benchmarks where most responses lack an answer or an end, or ""."""
    groups = group_by_decoding(predictions)
    names = [benchmark for benchmark, _ in groups]
    return warn_of_unanswered(
        {
            name if names.count(name) == 1 else f"{name} at T={temperature:g}": find_unanswered(
                prediction.graded for prediction in group
            )
            for (name, temperature), group in groups.items()
        },
        advise(
            plan.template,
            plan.chat,
            answers=plan.conditions["answers"],
            stop=plan.conditions["stop"],
            max_tokens=plan.settings.max_tokens,
        ),
    )


def _say_left_out(plan: Plan, ledger: Ledger) -> str:
    """Return a line about benchmarks and temperatures whose samples are in the folder but not in the scores,
    or "". Nothing records whether such samples are complete.
    """
    asked = {draw.key[:2] for draw in plan.draws}
    others = [each for each in group_by_decoding(list(ledger.done.values())) if each not in asked]
    if not others:
        return ""
    names = ", ".join(f"{benchmark} at T={temperature:g}" for benchmark, temperature in others)
    return (
        f"{plan.out}: the scores leave out {names}, whose samples stay in {PREDICTIONS}; name all benchmarks "
        "and temperatures in one command to score them together\n"
    )


def _left_out(plan: Plan, ledger: Ledger) -> dict[str, list[str]]:
    """Problems of the plan's benchmarks that have samples but no score, by benchmark: those of an earlier
    judge, or of rows that are not asked now.
    """
    asked: dict[str, set[str]] = {}
    for draw in plan.draws:
        asked.setdefault(draw.task.name, set()).add(draw.problem.instance_id)
    there = {(each.benchmark, each.instance_id) for each in ledger.done.values()}
    left_out: dict[str, list[str]] = {}
    for benchmark, name in sorted(there):
        if benchmark in asked and name not in asked[benchmark]:
            left_out.setdefault(benchmark, []).append(name)
    return left_out


def _write(plan: Plan, report: Report, *, left_out: Mapping[str, Sequence[str]]) -> None:
    conditions: dict[str, Any] = {"name": plan.name, **plan.conditions}
    conditions["benchmarks"] = {task.name: dict(task.source) for task in plan.tasks}
    written = {
        "conditions": conditions,
        "scores": [asdict(score) for score in report.scores],
        "averages": {name: asdict(average) for name, average in report.averages.items()},
        "left_out": left_out,
    }
    if curves := curves_of(report.scores):
        write_atomically(plan.out / PASS_FIGURE, draw_panels({"": curves}))
    else:
        (plan.out / PASS_FIGURE).unlink(missing_ok=True)
    write_atomically(plan.out / "scores.md", report.tables() + conditions_list(conditions))
    write_atomically(plan.out / "scores.json", json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    command()
