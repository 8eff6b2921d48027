"""Evaluate a model without hints: ``python -m seele_eval.run --model M --benchmarks B --data-dir D --out O``.

Start here. Everything that a user can get wrong is checked first; then vLLM is loaded, generates, and the
samples are graded. The output folder is written at the end: predictions.jsonl (each sample), scores.md, and
scores.json last, so that its presence stands for a complete evaluation.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seele.data.files import file_sha256, write_atomically
from seele.errors import ConfigError
from seele.records import Completion, Instance
from seele.reward.grader import GraderPool
from seele.rollout.seeding import rollout_seed
from seele_eval.arguments import MAX_TOKENS, Arguments, parse_arguments
from seele_eval.benchmarks import Benchmark, find_benchmarks, load_problems, problem_file
from seele_eval.command import exit_quietly, run_command
from seele_eval.conditions import RunDefaults, find_weights, installed_versions, read_run_defaults
from seele_eval.generation import (
    EngineSettings,
    Request,
    TokenPrompts,
    generate,
    tokenize_prompts,
)
from seele_eval.scores import Prediction, Score, markdown_table, score_predictions


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One sample to generate and grade."""

    benchmark: str
    instance: Instance
    template: str
    temperature: float
    sample: int


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 for something that the user can fix."""
    arguments = parse_arguments(argv)
    return run_command(lambda: markdown_table(evaluate(arguments)))


def evaluate(
    arguments: Arguments,
    *,
    tokenize: Callable[..., TokenPrompts] = tokenize_prompts,
    complete: Callable[..., list[Completion]] = generate,
) -> list[Score]:
    """Check, generate, grade, score and write. ``tokenize`` and ``complete`` are all that knows the model."""
    defaults = read_run_defaults(arguments.run) if arguments.run else None
    model, out = _choose_folders(arguments)
    weights = find_weights(model)
    draws = plan_draws(choose_benchmarks(arguments, defaults), arguments, defaults)
    settings = EngineSettings(
        max_tokens=arguments.max_tokens or (defaults.max_tokens if defaults else MAX_TOKENS),
        seed=arguments.seed,
        tensor_parallel=arguments.tensor_parallel,
        gpu_memory_share=arguments.gpu_memory_share,
    )
    requests = [
        Request(
            question=draw.instance.question,
            template=draw.template,
            temperature=draw.temperature,
            seed=rollout_seed(
                arguments.seed, 0, f"{draw.benchmark}/{draw.instance.instance_id}", 0, draw.sample
            ),
        )
        for draw in draws
    ]
    prompts = tokenize(model, requests, max_tokens=settings.max_tokens)

    predictions = grade(draws, complete(model, requests, prompts, settings))
    scores = score_by_condition(draws, predictions)
    conditions = {
        "model": str(model),
        "weights_sha256": {file.name: file_sha256(file) for file in weights},
        "hinted": False,
        **asdict(settings),
        "versions": installed_versions(),
    }
    _write(out, predictions, scores, conditions)
    return scores


def _choose_folders(arguments: Arguments) -> tuple[Path, Path]:
    """The model's folder and the output folder."""
    model = arguments.model or (arguments.run and arguments.run / "merged")
    out = arguments.out or (arguments.run and arguments.run / "eval")
    if model is None or out is None:
        raise ConfigError("name --model and --out, or --run for a run folder with its merged model")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file; expected a folder, or a path where one can be made")
    return model, out


def choose_benchmarks(arguments: Arguments, defaults: RunDefaults | None) -> list[Benchmark]:
    """The named problem files and benchmarks; the run's validation files where neither is named."""
    files: Mapping[str, Path] = dict(arguments.problems)
    if defaults and not files and not arguments.benchmarks:
        files = defaults.problem_files
    chosen = [problem_file(name, path) for name, path in files.items()]
    chosen += find_benchmarks(arguments.benchmarks, arguments.data_dir)
    names = [name for name, _ in arguments.problems or files.items()] + list(arguments.benchmarks)
    if not chosen:
        raise ConfigError("nothing to evaluate: name --benchmarks, --problems or --run")
    if len(set(names)) < len(names):
        raise ConfigError(f"benchmarks must have different names, got {names}")
    return chosen


def plan_draws(
    benchmarks: Sequence[Benchmark], arguments: Arguments, defaults: RunDefaults | None
) -> list[Draw]:
    """Every sample to draw, grouped by benchmark and temperature. All problems are read here."""
    draws = []
    for benchmark in benchmarks:
        problems = load_problems(benchmark, limit=arguments.limit)
        template = arguments.template or (defaults.template if defaults else benchmark.template)
        for temperature in arguments.temperature or (benchmark.temperature,):
            num_samples = (arguments.samples or benchmark.samples) if temperature > 0 else 1
            draws += [
                Draw(
                    benchmark=benchmark.name,
                    instance=problem,
                    template=template,
                    temperature=temperature,
                    sample=sample,
                )
                for problem in problems
                for sample in range(num_samples)
            ]
    return draws


def grade(draws: Sequence[Draw], completions: Sequence[Completion]) -> list[Prediction]:
    """Each completion with the grader's verdict against its problem's answer."""
    with GraderPool() as grader:
        grades = grader.grade_many(
            [
                (completion.text, draw.instance.answer)
                for draw, completion in zip(draws, completions, strict=True)
            ]
        )
    return [
        Prediction(
            benchmark=draw.benchmark,
            temperature=draw.temperature,
            instance_id=draw.instance.instance_id,
            level=draw.instance.level,
            sample=draw.sample,
            question=draw.instance.question,
            answer=draw.instance.answer,
            text=completion.text,
            correct=verdict.correct,
            reason=verdict.reason,
            finish=completion.finish,
            response_tokens=len(completion.token_ids),
        )
        for draw, completion, verdict in zip(draws, completions, grades, strict=True)
    ]


def score_by_condition(draws: Sequence[Draw], predictions: Sequence[Prediction]) -> list[Score]:
    """One score per benchmark and temperature, in the order in which they were drawn."""
    groups: dict[tuple[str, float, str], list[Prediction]] = {}
    for draw, prediction in zip(draws, predictions, strict=True):
        groups.setdefault((draw.benchmark, draw.temperature, draw.template), []).append(prediction)
    return [score_predictions(group, template=template) for (_, _, template), group in groups.items()]


def _write(
    out: Path, predictions: Sequence[Prediction], scores: Sequence[Score], conditions: Mapping[str, Any]
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(asdict(prediction), ensure_ascii=False) + "\n" for prediction in predictions]
    write_atomically(out / "predictions.jsonl", "".join(lines))
    write_atomically(out / "scores.md", markdown_table(scores))
    report = {"conditions": conditions, "scores": [asdict(score) for score in scores]}
    write_atomically(out / "scores.json", json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    exit_quietly(main())
