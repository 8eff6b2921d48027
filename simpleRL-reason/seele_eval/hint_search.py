"""The search for the shortest hint with which a model solves a problem, for commands that need one.

Each problem is sampled without a hint; if no sample is right, with one step of its worked solution, then with
two, and so on, up to the longest hint that the command allows. Samples are saved next to the command's
output, in OUT.samples.jsonl, some problems at a time, so that a killed command can resume.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seele.config import RewardConfig
from seele.data.storage.append_log import LineAppender, read_whole_lines
from seele.data.storage.files import file_sha256, settings_files
from seele.errors import CheckpointError, ConfigError
from seele.records import Chat, Finish, GradeReason, Instance
from seele.reward.grader import GraderPool
from seele.rollout.sampling import rollout_seed
from seele.rollout.templates import CHAT, template_text
from seele_eval.arguments import add_sampling, engine_settings
from seele_eval.conditions import deciding, describe_chat, differing
from seele_eval.generation import complete as complete_prompts
from seele_eval.generation import find_model, find_weights, start_engine
from seele_eval.grading import BOX, Reading, extract_boxed, judge_found, judge_one
from seele_eval.parallel import completion, share_gpus, visible_gpus
from seele_eval.predictions import read_predictions
from seele_eval.problems import from_instance
from seele_eval.prompts import (
    Complete,
    Request,
    Response,
    Responses,
    encode_requests,
    longest_prompt,
    stop_of,
)

AT_A_TIME = 256
"""Problems for each copy of the model whose samples are drawn together, and lost together if the command is
killed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A problem sampled with a hint."""

    instance_id: str
    hint_steps: int
    text: str | None
    """The first right response; None if no sample was right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """The hints that a search tries, and their place in a request."""

    longest: Callable[[Instance], int]
    """Number of steps in a problem's longest hint; 0 for none."""
    give: Callable[[Request, Instance, int], Request]
    """Add this many steps of the problem's solution to a request without a hint."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Conditions of the samples in addition to the options that all searches have."""


def search(
    options: argparse.Namespace,
    problems: Sequence[Instance],
    hints: Hints,
    *,
    complete: Complete | None = None,
) -> list[Tried]:
    """Draw the missing samples, and return every problem with every hint that was tried.

    Args:
        options: Parsed by a parser from ``parser_of`` (``parse_sampling``).
        problems: The problems of ``options.file``.
        hints: The command's hints.
        complete: Function that completes requests; by default an engine in this process, or one process for
            each copy of the model.

    Raises:
        SeeleError: For anything that the user can fix.
    """
    ledger = options.out.with_name(f"{options.out.name}.samples.jsonl")
    conditions = _conditions(options)
    stop = stop_of(options.template, options.stop, options.model)
    if options.samples_dir:
        _check_samples(options, weights=conditions["weights"], stop=stop)
    found, appender = _open(ledger, {**conditions, **hints.conditions})
    if options.samples_dir:
        # The filter's samples are in no ledger: a run that goes on finds later hints there.
        tried = {each.instance_id for each in found if each.hint_steps == 0}
        new = {each.instance_id for each in problems} - tried
        found += _filters_samples(options.samples_dir, new)

    def ask(instance: Instance, hint_steps: int, number: int) -> Request:
        return hints.give(_request(instance, hint_steps, number, options, stop), instance, hint_steps)

    at_a_time = AT_A_TIME
    if complete is None:
        gpus, of_copy = visible_gpus(), options.tensor_parallel
        copies = len(share_gpus(gpus, tensor_parallel=of_copy, copies=options.data_parallel))
        at_a_time *= copies
        if copies == 1:
            # Each problem's longest prompt sizes the engine, so that one engine serves every hint.
            complete = _engine(options, [ask(each, hints.longest(each), 0) for each in problems])
        else:
            complete = completion(options.model, engine_settings(options), copies=copies)
    with GraderPool(RewardConfig(grader=options.grader)) as grader, appender:
        for hint_steps, batch in _untried(problems, found, hints.longest, at_a_time=at_a_time):
            responses = dict(
                complete(
                    [ask(each, hint_steps, number) for each in batch for number in range(options.samples)]
                )
            )
            for index, instance in enumerate(batch):
                drawn = [responses[index * options.samples + number] for number in range(options.samples)]
                text = _first_right(grader, instance, [each.before_stop(stop) for each in drawn])
                found.append(Tried(instance_id=instance.instance_id, hint_steps=hint_steps, text=text))
                appender.append(json.dumps([instance.instance_id, hint_steps, text]))
    return found


def solved(found: Sequence[Tried]) -> dict[str, Tried]:
    """The problems with a right response, by id, with the shortest hint that had one."""
    return {each.instance_id: each for each in found if each.text is not None}


def _untried(
    problems: Sequence[Instance],
    found: Sequence[Tried],
    longest: Callable[[Instance], int],
    *,
    at_a_time: int,
) -> Iterator[tuple[int, list[Instance]]]:
    """Yield each hint length with problems that have no right response yet and were not tried at that length.

    ``found`` may grow during the iteration.
    """
    for hint_steps in range(max(map(longest, problems)) + 1):
        tried = {each.instance_id for each in found if each.hint_steps == hint_steps}
        known = tried | solved(found).keys()
        left = [each for each in problems if each.instance_id not in known and hint_steps <= longest(each)]
        for first in range(0, len(left), at_a_time):
            yield hint_steps, left[first : first + at_a_time]


def _engine(options: argparse.Namespace, longest: Sequence[Request]) -> Complete:
    """Return an engine that starts with the first request and has room for the longest.

    Raises:
        SeeleError: As ``encode_requests``.
    """
    settings = engine_settings(options)
    prompts = encode_requests(options.model, longest, max_tokens=options.max_tokens)
    context_tokens = longest_prompt(prompts) + options.max_tokens
    engine: Any = None

    def completed(requests: Sequence[Request]) -> Responses:
        nonlocal engine
        engine = engine or start_engine(options.model, settings, context_tokens=context_tokens)
        prompts = encode_requests(options.model, requests, max_tokens=options.max_tokens)
        return complete_prompts(engine, prompts, settings)

    return completed


def _first_right(grader: GraderPool, instance: Instance, responses: Sequence[Response]) -> str | None:
    problem, reading = from_instance(instance), Reading(answers=BOX)
    for response in responses:
        read = reading.read(response.text, problem, extract_boxed)
        verdict = judge_found(judge_one, grader, problem, read)
        if verdict.reason is GradeReason.CORRECT and response.finish is Finish.STOP:
            return response.text
    return None


def _request(
    instance: Instance, hint_steps: int, number: int, options: argparse.Namespace, stop: tuple[str, ...]
) -> Request:
    return Request(
        question=instance.question,
        template=options.template,
        chat=options.chat,
        stop=stop,
        temperature=options.temperature,
        seed=rollout_seed(options.seed, 0, instance.instance_id, hint_steps, number),
    )


def _conditions(options: argparse.Namespace) -> dict[str, Any]:
    """Conditions on which the samples of every search depend."""
    model = find_model(str(options.model))
    return {
        "problems": file_sha256(options.file),
        "weights": [file_sha256(each) for each in find_weights(model)],
        "files": {each.name: file_sha256(each) for each in settings_files(model)},
        "template": options.template,
        "template_text": None if options.template == CHAT else template_text(options.template),
        "chat": describe_chat(options.chat),
        "stop": options.stop,
        **{
            key: getattr(options, key)
            for key in ("samples", "temperature", "max_tokens", "seed", "dtype", "grader")
        },
    }


def _open(ledger: Path, conditions: Mapping[str, Any]) -> tuple[list[Tried], LineAppender]:
    """Return what an earlier command found, and the ledger; a new ledger begins with its conditions.

    Raises:
        ConfigError: If the ledger has other conditions, or another process writes to it.
        CheckpointError: If the ledger is damaged anywhere but at its end.
    """
    conditions = json.loads(json.dumps(conditions))
    ledger.parent.mkdir(parents=True, exist_ok=True)
    read = read_whole_lines(ledger, begin=b'{"problems": ')
    try:
        before, *lines = [*map(json.loads, read.lines)] or [conditions]
        is_known = before["template"] == conditions["template"]
        assumed = ("files", "template_text") if is_known else ("files",)
        before = {key: conditions[key] for key in assumed} | {"grader": RewardConfig().grader} | before
        found = [Tried(instance_id=key, hint_steps=steps, text=text) for key, steps, text in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{ledger}: is damaged ({error}); remove the damaged line, or the file to draw all samples again"
        ) from error
    decided, decides = deciding(before), deciding(conditions)
    if differs := sorted(key for key in {*decided, *decides} if decided.get(key) != decides.get(key)):
        raise ConfigError(
            f"{ledger}: its samples were drawn with other {', '.join(differs)}; name another --out, or "
            "remove that file"
        )
    appender = LineAppender(ledger, whole_bytes=read.whole_bytes, total_bytes=read.total_bytes)
    if not read.lines:
        appender.append(json.dumps(conditions))
    return found, appender


def _check_samples(options: argparse.Namespace, *, weights: Sequence[str], stop: Sequence[str]) -> None:
    """Raise ``ConfigError`` if the samples of ``--samples-dir`` are not this model's responses to the same
    prompts, each ended and answered as here. Older files do not record everything; a server has no weights.
    """
    there = read_predictions(options.samples_dir).conditions
    is_chat = options.template == CHAT
    now: dict[str, Any] = {
        "weights": sorted(weights),
        "template": CHAT if is_chat else template_text(options.template),
        "chat": describe_chat(options.chat if is_chat else Chat(ask="")),
        "stop": list(stop),
        "answers": BOX,
        "grader": options.grader,
    }
    before = {
        **there,
        "weights": sorted(there.get("weights_sha256", {}).values()) or now["weights"],
        "template": there.get("template_text") or there.get("template", now["template"]),
    }
    if is_chat and "server" in there and not before.get("stop"):
        # A server ends a turn by itself.
        del now["stop"]
    recorded = {key: before.get(key, value) for key, value in now.items()}
    if differences := differing(recorded, now, ignoring=frozenset()):
        raise ConfigError(
            f"--samples-dir {options.samples_dir}: samples drawn otherwise: {'; '.join(differences)}. Give "
            "this command the filter's --model and template options, or omit --samples-dir"
        )


def _filters_samples(folder: Path, wanted: Set[str]) -> list[Tried]:
    """Return the un-hinted results of ``seele data filter`` for the problems ``wanted``."""
    texts: dict[str, str | None] = {}
    for each in read_predictions(folder).predictions:
        if each.instance_id in wanted and texts.get(each.instance_id) is None:
            is_right = each.correct and each.finish is Finish.STOP
            texts[each.instance_id] = each.text if is_right else None
    return [Tried(instance_id=key, hint_steps=0, text=text) for key, text in texts.items()]


def parser_of(prog: str, description: str, *, samples: int) -> argparse.ArgumentParser:
    """Return a parser with the options of all searches; ``samples`` is the default of ``--samples``."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("file", type=Path, help="parquet in our schema")
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face folder or name on the hub")
    parser.add_argument("--out", type=Path, required=True, help="parquet file to write")
    parser.add_argument(
        "--samples-dir", type=Path, help="samples of `seele data filter` of the same problems, to start from"
    )
    add_sampling(parser, samples=samples, max_tokens=1024)
    return parser
