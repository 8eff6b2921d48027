"""Start here: choose arms, splits, costs and budget, and compare run folders.

Conditions that make runs less comparable become notes; they never stop a comparison.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from seele.errors import ConfigError
from seele.maths.irt import Array
from seele.report.comparison.curves import COSTS, Curve, make_curve, spent
from seele.report.comparison.results import MIN_SEEDS, Comparison, Result, compare_arms
from seele.report.comparison.runs import (
    ComparedRun,
    decisive_keys,
    has_setting,
    read_arms,
    read_compared,
    value_of,
)
from seele.report.run_folder import FIRST_STAGE, MARKS, RunFolder
from seele.report.series import VALIDATION, validation_splits

DEFAULT_REFERENCE = "grpo"


def compare(
    folders: Sequence[Path],
    *,
    by: Sequence[str] = (),
    labels: Sequence[str] = (),
    reference: str | None = None,
    splits: Sequence[str] = (),
    costs: Sequence[str] = (),
    accuracy: float | None = None,
    budget: float | None = None,
    read: Callable[[Path], RunFolder] = read_compared,
) -> Comparison:
    """Compare the runs' un-hinted accuracy at equal cost.

    Args:
        folders: At least one run folder.
        by: See ``read_arms``.
        labels: See ``read_arms``.
        reference: The arm that the others are compared with; by default ``grpo`` or else the first.
        splits: Validation splits; all by default.
        costs: Names in ``COSTS``; all by default.
        accuracy: The accuracy whose cost is compared, in [0, 1]; by default the last accuracy of the
            reference's mean curve.
        budget: The cost at which the arms are compared, in units of the only cost that ``costs`` then names;
            by default the largest up to which every run was validated.
        read: See ``read_arms``.

    Raises:
        CheckpointError: If a folder is not a run folder or lacks what is compared.
        ConfigError: If a name is unknown, a number is not allowed, or the runs cannot be compared.
    """
    if accuracy is not None and not 0.0 <= accuracy <= 1.0:
        raise ConfigError(f"--accuracy: expected a number in [0, 1], got {accuracy:g}")
    if unknown := [cost for cost in costs if cost not in COSTS]:
        raise ConfigError(f"--cost {unknown[0]}: expected one of {list(COSTS)}")
    if budget is not None and len(costs) != 1:
        raise ConfigError(f"--budget {budget:g}: needs one --cost, which is its unit; got {len(costs)}")
    arms = read_arms(folders, by=by, labels=labels, read=read)
    reference = _choose_reference(list(arms), reference)
    arms = {reference: arms[reference]} | arms
    runs = [run for by_seed in arms.values() for run in by_seed.values()]
    splits, notes_on_splits = _choose_splits(runs, splits)
    totals, notes = _read_totals(runs, [cost for cost in COSTS if cost in (costs or COSTS)])
    curves: dict[str, dict[str, dict[str, dict[int, Curve]]]] = {}
    results: dict[str, dict[str, Result]] = {}
    left_out: dict[str, list[str]] = {}
    begun_late: dict[str, list[str]] = {}
    for split, cost in itertools.product(splits, totals):
        by_folder = {run.folder: _curve(run, split, totals[cost][run.folder]) for run in runs}
        if obstacle := _obstacle(by_folder):
            left_out.setdefault(f"{cost} is skipped: {obstacle}", []).append(split)
            continue
        drawn = {
            arm: {seed: by_folder[run.folder] for seed, run in by_seed.items()}
            for arm, by_seed in arms.items()
        }
        latest = max(by_folder, key=lambda folder: by_folder[folder].first)
        if (begin := by_folder[latest].first) > min(curve.first for curve in by_folder.values()):
            said = f"Averages by {cost} begin at {begin:,.0f}, where {latest} was first validated"
            begun_late.setdefault(said, []).append(split)
        shortest = _ends_first(by_folder)
        if budget is not None:
            _check_budget(budget, by_folder, shortest)
        curves.setdefault(split, {})[cost] = drawn
        results.setdefault(split, {})[cost] = compare_arms(
            drawn,
            budget=by_folder[shortest].last if budget is None else budget,
            budget_set_by=shortest if budget is None else None,
            accuracy=accuracy,
            reference=reference,
        )
    notes += [f"{said} ({', '.join(where)})." for said, where in (left_out | begun_late).items()]
    notes += notes_on_splits
    if not results:
        raise ConfigError(f"these runs cannot be compared by any cost: {' '.join(notes)}")
    return Comparison(
        reference=reference, arms=arms, curves=curves, results=results, notes=(*caveats(arms), *notes)
    )


def _choose_reference(arms: Sequence[str], reference: str | None) -> str:
    if reference is None:
        return DEFAULT_REFERENCE if DEFAULT_REFERENCE in arms else arms[0]
    if reference not in arms:
        raise ConfigError(f"--reference {reference}: no such arm; the runs' arms are {list(arms)}")
    return reference


def _choose_splits(runs: Sequence[ComparedRun], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the requested splits, by default those that all runs were validated on, and a note for each
    split that only some runs were validated on.
    """
    splits_by_run = {run.folder: set(validation_splits(run.contents.metrics)) for run in runs}
    known = sorted(set().union(*splits_by_run.values()))
    if unknown := [split for split in wanted if split not in known]:
        raise ConfigError(f"--split {unknown[0]}: no run was validated on it; expected one of {known}")
    lacking = {
        split: [folder for folder, splits in splits_by_run.items() if split not in splits]
        for split in wanted or known
    }
    shared = [split for split, folders in lacking.items() if not folders]
    if not shared or (wanted and len(shared) < len(lacking)):
        split = next(split for split, folders in lacking.items() if folders)
        raise ConfigError(
            f"{lacking[split][0]} was not validated on {split!r}, as other runs were, but on "
            f"{sorted(splits_by_run[lacking[split][0]])}; omit the run, or name splits that all runs have "
            "(--split)"
        )
    notes = [
        f"{split} is skipped: {', '.join(folders)} was not validated on it."
        for split, folders in lacking.items()
        if folders
    ]
    return shared, notes


def _read_totals(
    runs: Sequence[ComparedRun], costs: Sequence[str]
) -> tuple[dict[str, dict[str, Array]], list[str]]:
    """Cost -> folder -> (S,) totals for the costs that all runs count, and a note on each other cost."""
    totals, notes = {}, []
    for cost in costs:
        by_folder = {run.folder: spent(run.contents.metrics, COSTS[cost]) for run in runs}
        counted = {folder: total for folder, total in by_folder.items() if total is not None}
        if len(counted) == len(by_folder):
            totals[cost] = counted
        else:
            lacking = ", ".join(folder for folder in by_folder if folder not in counted)
            notes.append(
                f"{cost} is skipped: {COSTS[cost].metric} is missing in some step's metrics, or falls, in "
                f"{lacking if counted else 'every run'}."
            )
    return totals, notes


def _curve(compared: ComparedRun, split: str, totals_S: Array) -> Curve:
    key = VALIDATION + split
    rows = zip(totals_S, compared.contents.metrics, strict=True)
    cost_V, accuracy_V = np.array([(total, row[key]) for total, row in rows if key in row]).T
    return make_curve(cost_V, accuracy_V)


def _ends_first(curves: Mapping[str, Curve]) -> str:
    """The run whose last validation came at the smallest cost: it sets the budget."""
    return min(curves, key=lambda folder: curves[folder].last)


def _check_budget(budget: float, curves: Mapping[str, Curve], shortest: str) -> None:
    first, last = max(curve.first for curve in curves.values()), curves[shortest].last
    if not first <= budget <= last:
        raise ConfigError(
            f"--budget {budget:g}: expected a number between {first:g} and {last:g}, where every run was "
            f"validated; {shortest} ends first"
        )


def _obstacle(curves: Mapping[str, Curve]) -> str | None:
    """Return why the runs share no budget; None if they share one."""
    shortest = _ends_first(curves)
    latest = max(curves, key=lambda folder: curves[folder].first)
    if curves[shortest].last == 0.0:
        return f"{shortest} had spent none when it was last validated"
    if curves[latest].first > curves[shortest].last:
        return f"{latest} was first validated after {shortest} was last validated"
    return None


CONDITIONS = {
    "number of training problems": "data.train_max_samples",
    "validation data": "data.val_files",
    "number of validation problems": "data.val_max_samples",
    "validation decoding": "actor_rollout_ref.rollout.val_kwargs",
    "length limit of prompts": "data.max_prompt_length",
    "length limit of responses": "data.max_response_length",
    "handling of problems that are too long": "seele.data.overlong",
    "prompt": "seele.prompt",
    "grader": "seele.reward.grader",
    "arguments of the reward function": "seele.reward.kwargs",
    "reward from which a rollout counts as solved": "seele.reward.correct_from",
    "grading of truncated responses": "seele.reward.truncated_is_wrong",
    "grading of thoughts": "seele.reward.after_thinking",
    "prompts of a step": "data.train_batch_size",
    "rollouts of a prompt": "seele.hints.rollouts_per_prompt",
    "prompts of an update": "actor_rollout_ref.actor.ppo_mini_batch_size",
    "updates on the same rollouts": "actor_rollout_ref.actor.ppo_epochs",
    "learning rate": "actor_rollout_ref.actor.optim.lr",
    "sampling temperature": "actor_rollout_ref.rollout.temperature",
    "number of planned steps": "trainer.total_training_steps",
    "number of steps between validations": "trainer.test_freq",
}
"""Settings that should agree between runs, by description, besides base model and training data."""

LEFT_OUT = {
    "number of training problems left out as too long": "num_problems_left_out",
    "number of validation problems left out as too long": "num_validation_problems_left_out",
}
"""Keys of ``run_card.json`` that should agree between runs, by description."""

INPUTS = {
    "base model": "base_model",
    "training data": "train_files",
    "data of the first stage": "sft_train_files",
    "validation data": "val_files",
}
"""Keys of ``inputs`` in ``run_card.json``, by the description of the setting that names the files."""


def caveats(arms: Mapping[str, Mapping[int, ComparedRun]]) -> list[str]:
    """Notes on conditions that differ, between runs or within an arm, runs that ended early or were resumed,
    and arms with few seeds.
    """
    runs = [run for by_seed in arms.values() for run in by_seed.values()]
    few = [f"{arm} ({len(by_seed)})" for arm, by_seed in arms.items() if len(by_seed) < MIN_SEEDS]
    notes = [f"Fewer than {MIN_SEEDS} seeds, so no interval: {', '.join(few)}."] if few else []
    notes += _difference_of_setting("base model", attrgetter("base_model"), runs)
    # Two stages train on copies in their run's folder, whose paths always differ.
    one_stage = [run for run in runs if not run.contents.first_stage]
    notes += _difference_of_setting("training data", methodcaller("setting", "data.train_files"), one_stage)
    # A run that is older than the setting had none either.
    notes += _difference_of_setting(
        "data of the first stage", lambda run: run.setting("seele.sft.train_files") or [], runs
    )
    for what, key in CONDITIONS.items():
        notes += _difference_of_setting(what, methodcaller("setting", key), runs)
    for what, key in LEFT_OUT.items():
        notes += _difference(what, {run.folder: run.contents.card.get(key, 0) for run in runs})
    for arm, by_seed in arms.items():
        notes += _differences_within(arm, [*by_seed.values()])
    for what in ("commit", "hardware"):
        notes += _difference(what, {run.folder: run.contents.card.get(what) for run in runs})
    for run in runs:
        notes += _history(run)
        # Notes on other parts of a run folder do not affect the comparison.
        notes += [
            f"{run.folder}: {note}" for note in run.contents.notes if any(mark in note for mark in MARKS)
        ]
    return notes


def _differences_within(arm: str, runs: Sequence[ComparedRun]) -> list[str]:
    """Notes on settings in which the arm's runs differ beside their seeds."""
    notes = []
    conditions = tuple(f"{key}." for key in CONDITIONS.values())
    for key in decisive_keys([run.contents for run in runs]):
        if not f"{key}.".startswith(conditions):
            values = {
                run.folder: value_of(run.contents, key) for run in runs if has_setting(run.contents, key)
            }
            notes += _difference(f"{key} within the arm {arm}", values)
    return notes


def _difference_of_setting(
    what: str, setting: Callable[[RunFolder], Any], runs: Sequence[ComparedRun]
) -> list[str]:
    """Notes on a setting that differs. A path stands for its contents if all runs have recorded them."""
    values = {run.folder: setting(run.contents) for run in runs}
    digests = {run.folder: run.contents.card.get("inputs", {}).get(INPUTS.get(what)) for run in runs}
    if None in digests.values():
        return _difference(what, values)
    named: dict[str, str] = {}
    for folder, digest in digests.items():
        named.setdefault(digest, f"{_text(values[folder])} (SHA-256 {digest[:8]})")
    return _difference(what, {folder: named[digest] for folder, digest in digests.items()})


def _text(value: Any) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _difference(what: str, value_by_folder: Mapping[str, Any]) -> list[str]:
    folders_by_value: dict[str, list[str]] = {}
    for folder, value in value_by_folder.items():
        folders_by_value.setdefault(_text(value), []).append(folder)
    if len(folders_by_value) <= 1:
        return []
    parts = [f"{value} in {', '.join(folders)}" for value, folders in folders_by_value.items()]
    return [f"Not the same {what}: {'; '.join(parts)}."]


def _history(compared: ComparedRun) -> Sequence[str]:
    card, metrics = compared.contents.card, compared.contents.metrics
    notes = []
    if (status := card.get("status", "finished")) != "finished":
        notes.append(
            f"{compared.folder} did not finish (status: {status}); it counts up to its last validation."
        )
    if (step := card.get("resumed_at_step")) is not None:
        notes.append(
            f"{compared.folder} was resumed after step {step}: its costs do not include work done twice."
        )
    if before := card.get("stages", {}).get(FIRST_STAGE):
        notes.append(
            f"{compared.folder}: its {FIRST_STAGE} stage took {before['steps']} steps and "
            f"{before['seconds']} s, which are not among its steps and seconds; its tokens and FLOPs are "
            "those of both stages."
        )
    elif compared.contents.first_stage:
        notes.append(
            f"{compared.folder}: its steps and seconds do not include its {FIRST_STAGE} stage; its tokens "
            "and FLOPs are those of both stages."
        )
    first = next((int(row["step"]) for row in metrics if row["step"] > 0), 1)
    if first != 1:
        notes.append(f"{compared.folder} begins with step {first}: its seconds do not include earlier steps.")
    return notes
