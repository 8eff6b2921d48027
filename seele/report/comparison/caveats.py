"""Sentences on what makes runs less comparable than they look. They never stop a comparison."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from seele.report.comparison.estimates import MIN_SEEDS
from seele.report.comparison.runs import ComparedRun
from seele.report.run_folder import MARKS

CONDITIONS = {
    "base model": "actor_rollout_ref.model.path",
    "training data": "data.train_files",
    "validation data": "data.val_files",
    "number of validation problems": "data.val_max_samples",
    "validation decoding": "actor_rollout_ref.rollout.val_kwargs",
    "prompts of a step": "data.train_batch_size",
    "rollouts of a prompt": "seele.hints.rollouts_per_prompt",
}
"""Settings that should agree between runs, by description."""

OF_LAST_STAGE = ("base model", "training data")
"""Conditions that describe only the second stage of a run in two stages."""


def caveats(arms: Mapping[str, Mapping[int, ComparedRun]]) -> list[str]:
    """Notes on conditions that differ, runs that ended early or were resumed, and arms with few seeds."""
    runs = [run for by_seed in arms.values() for run in by_seed.values()]
    few = [f"{arm} ({len(by_seed)})" for arm, by_seed in arms.items() if len(by_seed) < MIN_SEEDS]
    notes = [f"Fewer than {MIN_SEEDS} seeds, hence no interval: {', '.join(few)}."] if few else []
    notes += [
        note
        for what, key in CONDITIONS.items()
        for note in _difference(
            what,
            {
                run.folder: run.contents.setting(key)
                for run in runs
                if what not in OF_LAST_STAGE or "stages" not in run.contents.card
            },
        )
    ]
    for what in ("commit", "hardware"):
        notes += _difference(what, {run.folder: run.contents.card.get(what) for run in runs})
    for run in runs:
        notes += _history(run)
        # Notes on other parts of a run folder do not affect the comparison.
        notes += [
            f"{run.folder}: {note}" for note in run.contents.notes if any(mark in note for mark in MARKS)
        ]
    return notes


def _difference(what: str, value_by_folder: Mapping[str, Any]) -> list[str]:
    folders_by_value: dict[str, list[str]] = {}
    for folder, value in value_by_folder.items():
        text = "unknown" if value is None else value if isinstance(value, str) else json.dumps(value)
        folders_by_value.setdefault(text, []).append(folder)
    if len(folders_by_value) <= 1:
        return []
    parts = [f"{value} in {', '.join(folders)}" for value, folders in folders_by_value.items()]
    return [f"Not the same {what}: {'; '.join(parts)}."]


def _history(compared: ComparedRun) -> Sequence[str]:
    card, metrics = compared.contents.card, compared.contents.metrics
    notes = []
    if (status := card.get("status", "finished")) != "finished":
        notes.append(
            f"{compared.folder} did not finish (status: {status}); it counts as far as it was validated."
        )
    if (step := card.get("resumed_at_step")) is not None:
        notes.append(
            f"{compared.folder} was resumed after step {step}: what was done twice is not in its costs."
        )
    for stage in list(card.get("stages", {}))[:-1]:
        before = card["stages"][stage]
        notes.append(
            f"{compared.folder}: its {stage} stage took {before['steps']} steps and {before['seconds']} s, "
            "which are not among its steps and seconds; its tokens and FLOPs are those of both stages."
        )
    first = next((int(row["step"]) for row in metrics if row["step"] > 0), 1)
    if first != 1:
        notes.append(
            f"{compared.folder} begins with step {first}: what was spent before is not in its costs."
        )
    return notes
