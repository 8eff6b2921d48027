"""Measure checkpoints' un-hinted accuracy on their run's validation files, as the RL trainer does during
training: the same prompts, limits, decoding and grades.

    python -m seele_eval.validation --run RUN --models STEP=FOLDER ...

For trainers that cannot generate. Each model's result is one line of JSON on standard output.
"""

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import OmegaConf

from seele.config import SeeleConfig, from_mapping
from seele.data.overlong import read_fitting_problems
from seele.records import Instance
from seele.reward.function_grader import open_grader
from seele.reward.grader import ProblemGrader
from seele.reward.reading import counting_rules
from seele.rollout.sampling import rollout_seed
from seele.rollout.unanswered import (
    Graded,
    Unanswered,
    advise_run,
    find_unanswered,
    share_metrics,
    warn_of_unanswered,
)
from seele_eval.command import end_with_standard_input, exit_quietly, run_command
from seele_eval.generation import EngineSettings, complete, load_weights, start_engine
from seele_eval.prompts import Request, Response, begins_thinking, encode_requests, longest_prompt, stop_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """A run's validation settings, from its ``resolved.yaml``."""

    seele: SeeleConfig
    engine: EngineSettings
    temperature: float
    samples: int
    stop: tuple[str, ...] = ()
    """Strings that end a response."""
    begins_thinking: bool = False
    """True if the prompt ends with ``<think>``."""
    problems: tuple[tuple[str, Instance], ...]
    """``<data set>/<file>`` and problem, file after file."""


def read_conditions(run: Path) -> Conditions:
    """Read the run's validation settings."""
    config: Any = OmegaConf.load(run / "resolved.yaml")
    rollout, data = config.actor_rollout_ref.rollout, config.data
    raw: Any = OmegaConf.to_container(config.seele, resolve=True)
    problems = [
        (f"{problem.instance.data_source}/{problem.path.stem}", problem.instance)
        for problem in read_fitting_problems(
            data.val_files, data.get("val_max_samples", -1), data.get("overlong_record")
        )
    ]
    return Conditions(
        seele=from_mapping(SeeleConfig, raw, "seele"),
        engine=EngineSettings(
            max_tokens=data.max_response_length,
            seed=config.seele.seed,
            tensor_parallel=rollout.tensor_model_parallel_size,
            gpu_memory_share=rollout.gpu_memory_utilization,
            dtype=rollout.dtype,
        ),
        temperature=rollout.val_kwargs.temperature,
        samples=rollout.val_kwargs.n,
        problems=tuple(problems),
    )


def requests_of_step(conditions: Conditions, step: int) -> list[Request]:
    """Requests at ``step``, in order of problems and samples, with the seeds of an RL run."""
    seele = conditions.seele
    return [
        Request(
            question=instance.question,
            template=seele.prompt.template,
            chat=seele.prompt.chat,
            stop=conditions.stop,
            temperature=conditions.temperature,
            seed=rollout_seed(seele.seed, -1 - step, instance.instance_id, 0, sample),
        )
        for _, instance in conditions.problems
        for sample in range(conditions.samples)
    ]


def measure_splits(
    conditions: Conditions, responses: Sequence[Response], grader: ProblemGrader
) -> tuple[dict[str, float], dict[str, Unanswered]]:
    """Return each validation file's share of correct answers, and its responses without an answer or an end.

    A truncated response is judged as in training.
    """
    asked = [problem for problem in conditions.problems for _ in range(conditions.samples)]
    responses = [response.before_stop(conditions.stop) for response in responses]
    rules = counting_rules(conditions.seele.reward, begun=conditions.begins_thinking)
    grades = grader.grade_problems(
        [
            (rules.counted(response.text) or "", instance)
            for (_, instance), response in zip(asked, responses, strict=True)
        ]
    )
    corrects: dict[str, list[bool]] = defaultdict(list)
    graded: dict[str, list[Graded]] = defaultdict(list)
    for (split, _), response, grade in zip(asked, responses, grades, strict=True):
        grade = rules.unread(response.finish) or grade
        corrects[split].append(grade.correct)
        graded[split].append(Graded(response.text, grade.reason, response.finish))
    return (
        {split: fmean(values) for split, values in corrects.items()},
        {split: find_unanswered(values) for split, values in graded.items()},
    )


def validate(run: Path, models: Mapping[int, Path]) -> Iterator[dict[str, Any]]:
    """Yield the step, metrics, warning and seconds of each model, in the order given."""
    conditions, first = read_conditions(run), next(iter(models.values()))
    prompt = conditions.seele.prompt
    conditions = replace(
        conditions,
        stop=stop_of(prompt.template, prompt.stop, first),
        begins_thinking=begins_thinking(prompt.template, prompt.chat, first),
    )
    max_tokens = conditions.engine.max_tokens
    advice = advise_run(conditions.seele, max_tokens=max_tokens, supervised=True)
    prompts = encode_requests(first, requests_of_step(conditions, 0), max_tokens=max_tokens)
    engine = start_engine(first, conditions.engine, context_tokens=longest_prompt(prompts) + max_tokens)
    with open_grader(conditions.seele.reward) as grader:
        for step, model in models.items():
            started = time.monotonic()
            if model != first:
                load_weights(engine, model)
            prompts = encode_requests(first, requests_of_step(conditions, step), max_tokens=max_tokens)
            by_request = dict(complete(engine, prompts, conditions.engine))
            responses = [by_request[index] for index in range(len(prompts))]
            accuracies, unanswered = measure_splits(conditions, responses, grader)
            metrics = {f"val/accuracy/{split}": value for split, value in accuracies.items()}
            for split, each in unanswered.items():
                metrics |= share_metrics(each, split)
            groups = {f"step {step}, {split}": each for split, each in unanswered.items()}
            yield {
                "step": step,
                "metrics": metrics | {"timing_s/testing": time.monotonic() - started},
                "warning": warn_of_unanswered(groups, advice),
            }


def _model_of_step(text: str) -> tuple[int, Path]:
    step, separator, folder = text.partition("=")
    if not (step.isdigit() and separator and folder):
        raise argparse.ArgumentTypeError(f"expected STEP=FOLDER, got {text!r}")
    return int(step), Path(folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(description="Un-hinted accuracy on a run's validation files.")
    parser.add_argument("--run", type=Path, required=True, help="run folder with resolved.yaml")
    parser.add_argument("--models", type=_model_of_step, nargs="+", required=True, metavar="STEP=FOLDER")
    parser.add_argument("--attached", action="store_true", help="exit when standard input closes")
    options = parser.parse_args(argv)

    if options.attached:
        end_with_standard_input()

    def command() -> str:
        # Libraries' output meanwhile goes to standard error.
        with os.fdopen(os.dup(1), "w", buffering=1) as lines:
            os.dup2(2, 1)
            try:
                for measured in validate(options.run, dict(options.models)):
                    print(json.dumps(measured), file=lines)
            finally:
                os.dup2(lines.fileno(), 1)
        return ""

    return run_command(command)


if __name__ == "__main__":
    exit_quietly(main())
