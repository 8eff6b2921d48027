"""Problems over the run's token limits: counted before anything starts, skipped or cut, and reported.

The decisions are written to the run folder (``seele.data.overlong``), where trainers and validation read
them: nothing else counts tokens to decide which problems a run has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seele.config import SeeleConfig
from seele.data.overlong import Fits, Limits, Problem, Tokens, fit, keep_fitting, write_record
from seele.errors import DataError
from seele.methods.sources import OffPolicySource, build_source, given_responses
from seele.plugins import blame
from seele.records import Instance
from seele.rollout.solutions import EncodedProblem, encode_problem, encode_with_solution
from seele.rollout.templates import Tokenizer
from seele_verl.changes import with_changes

RECORD = "too_long.json"
WINDOW = "actor_rollout_ref.rollout.max_model_len"
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The problems that a run has."""

    training: list[Problem]
    validation: list[Problem]
    fits: tuple[Fits, Fits] = (Fits(), Fits())
    """How the limits affected training and validation problems."""
    to_keep_all: str = ""
    """Overrides under which all problems would fit as they are; empty if they do."""


def keep_problems(
    config: DictConfig,
    seele: SeeleConfig,
    tokenizer: Tokenizer,
    *,
    training: Sequence[tuple[Instance, Path]],
    validation: Sequence[tuple[Instance, Path]],
    needed: int,
    supervised: bool,
) -> Kept:
    """Return the problems that fit, or are made to fit.

    Args:
        config: The composed configuration.
        seele: Its ``seele`` block.
        tokenizer: The model's tokenizer.
        training: Problems in the form in which the run hints them, each with its file.
        validation: Problems that are never hinted.
        needed: Number of training problems in one step.
        supervised: True if the run learns worked solutions.

    Raises:
        DataError: With ``seele.data.overlong=refuse``, a problem does not fit. With the other values, no
            validation problem is left, or fewer training problems than ``needed``.
        PluginError: The off-policy source cannot give the first problem its responses.
    """
    limits = Limits(prompt=config.data.max_prompt_length, response=config.data.max_response_length)
    overlong, how = seele.data.overlong, seele.prompt
    source = build_source(seele.off_policy)
    learns_solutions = supervised or seele.interleave.problems > 0
    gives_hints = seele.hints.gives_hints
    reads_solutions = learns_solutions or source.reads_solutions or gives_hints
    needed_limits: list[Limits] = []
    too_long: dict[bool, list[Tokens]] = {True: [], False: []}  # to train on; of the validation

    def fits_of(problems: Sequence[tuple[Instance, Path]], *, trained: bool) -> Fits:
        left_out, hint_steps, num_cut, moved_cuts = {}, {}, 0, 0
        for instance, path in problems:
            steps = instance.steps if trained and reads_solutions else ()
            encoded = encode_problem(
                tokenizer,
                instance.question,
                steps,
                how.template,
                how.chat,
                hint_request=seele.hints.user_request,
                tiers=instance.tiers if trained else (),
            )
            tokens = Tokens(prompt=len(encoded.prompt_ids))
            if trained and not supervised:
                tokens = _lengths(encoded, instance, source, tokenizer, gives_hints=gives_hints)
                if instance is training[0][0]:  # a fault found now costs less than one in the first step
                    at_most = seele.hints.rollouts_of_rounds[0] - 1
                    given_responses(source, instance, encoded, tokenizer, at_most=at_most)
            if trained and learns_solutions and encoded.step_ids:
                solution = len(encoded.solution(tokenizer))
                tokens = replace(tokens, response=max(tokens.response, solution))
            if trained and seele.credit.by_distillation:
                request = seele.credit.request
                asked = encode_with_solution(tokenizer, instance, request, how.template, how.chat)
                tokens = replace(tokens, prompt=len(asked))
            needed_limits.append(tokens.needed)
            found = fit(tokens, limits, overlong)
            if found.why_not is not None:
                if overlong == "refuse":
                    raise DataError(
                        f"{path}: problem {instance.instance_id!r} {found.why_not}; raise the limit, remove "
                        "the problem, or skip such problems with seele.data.overlong=drop"
                    )
                left_out[instance.instance_id] = found.why_not
                too_long[trained].append(tokens)
            elif found.hint_steps is not None:
                hint_steps[instance.instance_id] = found.hint_steps
            num_cut += found.why_not is None and found.is_cut
            moved_cuts += encoded.moved_cuts if found.why_not is None else 0
        files = tuple(dict.fromkeys(str(path.resolve()) for _, path in problems))
        return Fits(
            files=files, left_out=left_out, hint_steps=hint_steps, num_cut=num_cut, moved_cuts=moved_cuts
        )

    fits = (fits_of(training, trained=True), fits_of(validation, trained=False))
    kept = Kept(
        training=keep_fitting(training, fits),
        validation=keep_fitting(validation, fits),
        fits=fits,
        to_keep_all=_overrides_for(config, needed_limits),
    )
    num_cuttable = sum(fit(tokens, limits, "truncate").why_not is None for tokens in too_long[True])
    remedy = _longer_prompts(too_long[True], limits)
    if num_cuttable and len(kept.training) + num_cuttable >= needed:
        remedy = f", or more of them with seele.data.overlong=truncate{remedy}"
    _check_enough("train_files", kept, kept.training, training, needed=needed, remedy=remedy)
    remedy = _longer_prompts(too_long[False], limits)
    _check_enough("val_files", kept, kept.validation, validation, needed=1, remedy=remedy)
    return kept


def _longer_prompts(lengths: Sequence[Tokens], limits: Limits) -> str:
    """Return what problems need whose prompt is too long even without a hint; empty if there are none."""
    prompts = [tokens.prompt for tokens in lengths if tokens.prompt > limits.prompt]
    if not prompts:
        return ""
    return (
        f" ({len(prompts)} too long even without a hint: data.max_prompt_length must be at least "
        f"{min(prompts)} for the shortest of their prompts, {max(prompts)} for the longest)"
    )


def _overrides_for(config: DictConfig, needed: Sequence[Limits]) -> str:
    """Return the limits to raise for the longest problems, as one writes them on the command line."""
    prompt = max([config.data.max_prompt_length, *(each.prompt for each in needed)])
    response = max([config.data.max_response_length, *(each.response for each in needed)])
    wanted = {"data.max_prompt_length": prompt, "data.max_response_length": response}
    changes = {key: value for key, value in wanted.items() if value > OmegaConf.select(config, key)}
    # Hardware files compute the window from the limits, and jobs set it.
    window = OmegaConf.select(with_changes(config, changes), WINDOW)
    if changes and window is not None and window < prompt + response:
        changes[WINDOW] = prompt + response
    return " ".join(f"{key}={value}" for key, value in changes.items())


def _lengths(
    encoded: EncodedProblem,
    instance: Instance,
    source: OffPolicySource,
    tokenizer: Tokenizer,
    *,
    gives_hints: bool,
) -> Tokens:
    """Return the lengths that must fit: supplied responses count as responses, revealed steps as hints."""
    with blame(source, f"response_tokens, problem {instance.instance_id!r}", key="seele.off_policy.source"):
        given = source.response_tokens(instance, encoded, tokenizer)
    tokens = Tokens(prompt=len(encoded.prompt_ids), response=given)
    if not gives_hints or not encoded.tokens_by_step:
        return tokens
    longest = instance.num_hint_steps(max(instance.legal_hint_ratios))
    steps = encoded.tokens_by_step[:longest]
    return replace(tokens, hint_steps=steps, hints_in_response=source.in_response)


def _check_enough(
    key: str,
    kept: Kept,
    left: Sequence[Problem],
    problems: Sequence[tuple[Instance, Path]],
    *,
    needed: int,
    remedy: str,
) -> None:
    if len(left) >= needed or len(left) == len(problems):
        return
    reasons = {instance_id: why for each in kept.fits for instance_id, why in each.left_out.items()}
    gone = [instance.instance_id for instance, _ in problems if instance.instance_id in reasons]
    shown = "; ".join(f"problem {instance_id!r} {reasons[instance_id]}" for instance_id in gone[:_SHOWN])
    raise DataError(
        f"data.{key}: {len(gone)} of {len(problems)} problems are too long and skipped, so the remaining "
        f"{len(left)} are fewer than the {needed} of one step: {shown}; keep all problems with "
        f"{kept.to_keep_all}{remedy}"
    )


def write_fits(
    run: Path, training: Sequence[str], validation: Sequence[str], fits: tuple[Fits, Fits]
) -> Path | None:
    """Write the record to the run folder, if there is anything to record.

    Args:
        run: The run folder.
        training: The files of the training problems, as the run reads them.
        validation: The files of the validation problems.
        fits: Which training and validation problems fit.

    Returns:
        The record; None if all problems fit as they are.
    """
    record = run / RECORD
    if not any(each.left_out or each.hint_steps for each in fits):
        record.unlink(missing_ok=True)
        return None
    named = [
        replace(each, files=tuple(files)) for each, files in zip(fits, (training, validation), strict=True)
    ]
    write_record(record, named)
    return record


def count_fits(fits: tuple[Fits, Fits]) -> dict[str, int]:
    """Return the counts for the run card."""
    training, validation = fits
    return {
        "num_problems_left_out": len(training.left_out),
        "num_problems_with_shorter_hints": len(training.hint_steps),
        "num_problems_with_cut_solution": training.num_cut,
        "num_steps_ending_inside_a_token": training.moved_cuts,
        "num_validation_problems_left_out": len(validation.left_out),
    }


def describe_fits(fits: tuple[Fits, Fits], counts: Any) -> str:
    """Return the driver's report: a line on problems that are too long and one on hints that end elsewhere,
    each only if needed. ``counts`` has the numbers of problems that are kept, and ``Kept.to_keep_all``.
    """
    training, validation = fits
    parts = []
    for each, what, kept in (
        (training, "training problems", counts.num_problems),
        (validation, "validation problems", counts.num_validation),
    ):
        if each.left_out:
            parts.append(f"{len(each.left_out)} of {len(each.left_out) + kept} {what} left out")
    if training.hint_steps:
        parts.append(f"{len(training.hint_steps)} with shorter hints")
    if training.num_cut:
        parts.append(f"{training.num_cut} with a cut solution")
    where = f" ({RECORD} names them)" if any(each.left_out or each.hint_steps for each in fits) else ""
    lines = [f"too long: {', '.join(parts)}{where}; to keep all: {counts.to_keep_all}\n"] if parts else []
    if training.moved_cuts:
        lines.append(f"{training.moved_cuts} steps end inside a token; their hints end before that token\n")
    return "".join(lines)
