"""Measure a model's accuracy against the number of revealed steps, before training.

    python -m seele_eval.hint_curve --model M --problems FILE.parquet --out O [--steps N] [--limit 200]

Only problems with exactly ``--steps`` steps are used, each with every legal hint, so that all points share
the same problems; by default, with the file's most frequent number of steps, from two on. The table
corresponds to the paper's figure 8 (arXiv:2509.06923).
"""

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from seele.config import RewardConfig
from seele.data.storage.files import check_writable, write_atomically
from seele.data.storage.schema import read_problems
from seele.errors import DataError
from seele.maths.tables import markdown_table
from seele.records import Chat, GradeReason, Instance
from seele.reward.grader import GraderPool
from seele.rollout.sampling import rollout_seed
from seele.rollout.templates import NO_CHAT
from seele.rollout.unanswered import Graded, find_unanswered, warn_of_unanswered
from seele_eval.arguments import add_sampling, advise, engine_settings, parse_sampling, positive
from seele_eval.command import exit_quietly, run_command
from seele_eval.conditions import describe_chat, installed_versions
from seele_eval.estimates import effective_sample_size, wilson_interval
from seele_eval.generation import EngineSettings, find_model, find_weights
from seele_eval.grading import BOX, BOX_OR_LAST, Reading, extract_boxed, judge_found, judge_one
from seele_eval.parallel import completion
from seele_eval.problems import Problem, from_instance
from seele_eval.prompts import Request, stop_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Accuracy under one hint length."""

    revealed_steps: int
    hint_ratio: float
    accuracy: float
    interval_95: tuple[float, float]
    no_answer_share: float
    """Share of responses without an answer."""
    truncated_share: float
    """Share of responses that the token limit ended."""


def choose_problems(path: Path, *, steps: int | None, limit: int) -> list[Instance]:
    """The first ``limit`` problems of the file with exactly ``steps`` steps.

    Args:
        path: Problems in our schema.
        steps: None for the most frequent number of steps, from two on; of several, the largest.
        limit: Largest number of problems.

    Raises:
        DataError: If there are no such problems.
    """
    problems = read_problems(path)
    counts = Counter(len(problem.steps) for problem in problems)
    if steps is None:
        hintable = [number for number in counts if number > 1]
        if not hintable:
            raise DataError(f"{path}: no problem has two steps, so none can have a hint")
        steps = max(hintable, key=lambda number: (counts[number], number))
    chosen = [problem for problem in problems if len(problem.steps) == steps][:limit]
    if not chosen:
        raise DataError(f"{path}: no problem has {steps} steps; the problems have {sorted(counts)}")
    return chosen


def curve(responses: Sequence[Sequence[Sequence[Graded]]], *, steps: int) -> list[Point]:
    """One point per hint length.

    Args:
        responses: [hint length][problem][sample] responses.
        steps: Steps of every problem.
    """
    points = []
    for revealed, problems in enumerate(responses):
        accuracies = [
            sum(response.reason is GradeReason.CORRECT for response in samples) / len(samples)
            for samples in problems
        ]
        unanswered = find_unanswered(itertools.chain(*problems))
        accuracy = sum(accuracies) / len(accuracies)
        draws = effective_sample_size(accuracies, samples=len(problems[0]))
        points.append(
            Point(
                revealed_steps=revealed,
                hint_ratio=revealed / steps,
                accuracy=accuracy,
                interval_95=wilson_interval(accuracy, draws),
                no_answer_share=unanswered.no_answer_share,
                truncated_share=unanswered.truncated_share,
            )
        )
    return points


def markdown(points: Sequence[Point]) -> str:
    """The curve as a Markdown table."""
    heads = ("revealed steps", "hint ratio", "accuracy", "95 % interval", "no answer", "truncated")
    rows = (
        (
            str(point.revealed_steps),
            f"{point.hint_ratio:.2f}",
            f"{point.accuracy:.1%}",
            "{:.1%} to {:.1%}".format(*point.interval_95),
            f"{point.no_answer_share:.1%}",
            f"{point.truncated_share:.1%}",
        )
        for point in points
    )
    return markdown_table(heads, rows, num_names=0)


def find_inputs(options: argparse.Namespace) -> tuple[list[Instance], argparse.Namespace]:
    """Return the problems, and the options with what file and model decide: ``steps`` and ``stop``."""
    check_writable(options.out, is_folder=True)
    problems = choose_problems(options.problems, steps=options.steps, limit=options.limit)
    steps = len(problems[0].steps)
    if options.steps is None:
        sys.stderr.write(
            f"{options.problems}: {len(problems)} problems of {steps} steps; --steps N for others\n"
        )
    find_weights(find_model(str(options.model)))
    stop = stop_of(options.template, options.stop, options.model)
    return problems, argparse.Namespace(**vars(options) | {"steps": steps, "stop": stop})


def measure(problems: Sequence[Instance], options: argparse.Namespace) -> list[Point]:
    """Generate and grade every problem with every hint length, and warn where most responses lack an answer
    or an end.
    """
    responses = sample_hinted(
        options.model,
        [(problem, revealed) for revealed in range(options.steps) for problem in problems],
        samples=options.samples,
        template=options.template,
        chat=options.chat,
        temperature=options.temperature,
        stop=options.stop,
        settings=engine_settings(options),
        copies=options.data_parallel,
        answers=options.answers,
        grader=options.grader,
    )
    by_length = [responses[first:][: len(problems)] for first in range(0, len(responses), len(problems))]
    warning = warn_of_unanswered(
        {
            f"{revealed} of {options.steps} steps revealed": find_unanswered(itertools.chain(*each))
            for revealed, each in enumerate(by_length)
        },
        advise(
            options.template,
            options.chat,
            answers=options.answers,
            stop=options.stop,
            max_tokens=options.max_tokens,
        ),
    )
    sys.stderr.write(warning)
    return curve(by_length, steps=options.steps)


def sample_hinted(
    model: Path,
    asked: Sequence[tuple[Instance, int]],
    *,
    samples: int,
    template: str,
    temperature: float,
    settings: EngineSettings,
    stop: Sequence[str] | None = None,
    chat: Chat = NO_CHAT,
    answers: str = BOX,
    grader: str = RewardConfig().grader,
    copies: int | None = None,
) -> list[list[Graded]]:
    """Return ``samples`` graded completions of each problem after its revealed steps.

    Args:
        model: Hugging Face folder.
        asked: Problem and number of revealed steps.
        samples: Number of completions per problem.
        template: The prompt's template.
        temperature: 0 is greedy.
        settings: Longest response, and the seed from which each completion's seed is derived.
        stop: Strings that end a completion; None for the template's.
        chat: Further inputs of the template ``chat``.
        answers: Where to look for an answer in a completion, ``BOX`` or ``BOX_OR_LAST``.
        grader: A key of ``seele.reward.graders.GRADERS``.
        copies: Copies of the model, each on its own GPUs; by default as many as there are GPUs for.
    """
    ends = stop_of(template, stop, model)
    requests = [
        Request(
            question=problem.question,
            template=template,
            chat=chat,
            stop=ends,
            temperature=temperature,
            seed=rollout_seed(settings.seed, 0, problem.instance_id, revealed, sample),
            steps=problem.steps,
            hint_steps=revealed,
        )
        for problem, revealed in asked
        for sample in range(samples)
    ]
    responses = dict(completion(model, settings, copies=copies)(requests))
    reading = Reading(answers=answers)
    with GraderPool(RewardConfig(grader=grader)) as judge:

        def graded(index: int, problem: Problem) -> Graded:
            response = responses[index].before_stop(ends)
            found = reading.read(response.text, problem, extract_boxed)
            verdict = judge_found(judge_one, judge, problem, found)
            return Graded(response.text, verdict.reason, response.finish)

        return [
            [graded(index * samples + sample, from_instance(problem)) for sample in range(samples)]
            for index, (problem, _) in enumerate(asked)
        ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Accuracy at each number of revealed steps.")
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face folder or name on the hub")
    parser.add_argument("--problems", type=Path, required=True, help="parquet in our schema")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for hint_curve.json and hint_curve.md"
    )
    parser.add_argument(
        "--steps",
        type=positive,
        help="use problems with exactly this number of steps; default: the most frequent number, from 2 on",
    )
    parser.add_argument("--limit", type=positive, default=200, help="largest number of problems")
    add_sampling(parser, samples=1, max_tokens=256)
    parser.add_argument(
        "--answers",
        choices=(BOX, BOX_OR_LAST),
        default=BOX,
        help="where to look for an answer: in a box, as in training; or, without a box, in the last "
        "'answer is ...' or number",
    )
    return parse_sampling(parser, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""

    def command() -> str:
        problems, options = find_inputs(parse(arguments))
        return write(measure(problems, options), options)

    return run_command(command)


def write(points: Sequence[Point], options: argparse.Namespace) -> str:
    """Write the curve with its conditions to the output folder, and return its table."""
    conditions = {
        key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()
    } | {"chat": describe_chat(options.chat)}
    report = {
        "conditions": conditions | {"versions": installed_versions()},
        "points": [asdict(point) for point in points],
    }
    table = markdown(points)
    write_atomically(options.out / "hint_curve.json", json.dumps(report, indent=1) + "\n")
    write_atomically(options.out / "hint_curve.md", table)
    return table


if __name__ == "__main__":
    exit_quietly(main())
