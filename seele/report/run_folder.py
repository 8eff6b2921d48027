"""Read a run folder, finished or not.

This module knows the names and formats of the folder's files. Runs are often killed, so every part is
optional, and the page notes each missing or damaged part. Nothing is computed from the values here.
"""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import yaml

from seele.errors import CheckpointError
from seele.report.rollout_lines import ShownRollout, read_rollouts

Metrics = Mapping[str, float]
"""One step's finite numbers by name; ``step`` is always present."""

# libyaml's loader if available: ten times as fast, and a comparison reads the settings of every run.
_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MARKS = ("resolved.yaml", "run_card.json", "metrics.jsonl")
"""A run folder holds at least one of these."""
FIRST_STAGE = "sft"
"""Folder in a two-stage run that holds the first stage's run."""
MERGED, STEP_FILE = "merged", "merged_step.txt"
"""Folder of the merged model, and the file in it whose first line is the step that the model comes from."""
TRACKER = "latest_checkpointed_iteration.txt"
"""verl's file with the step of the last checkpoint."""
LARGE_PARTS = ("metrics", "rollouts", "controller")
"""Fields of ``RunFolder`` that take long to read in a long run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLine:
    """The fields of a score in ``eval/scores.json`` that the report shows. Shares are in [0, 1]."""

    benchmark: str
    temperature: float
    """0 is greedy."""
    problems: int
    samples: int
    accuracy: float
    interval_95: tuple[float, float]
    mean_response_tokens: float
    truncated_share: float
    no_answer_share: float | None
    """None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """Contents of a run folder. Empty mappings and tuples stand for missing parts."""

    name: str
    card: Mapping[str, Any]
    settings: Mapping[str, Any]
    """``resolved.yaml``."""
    first_stage: Mapping[str, Any]
    """``sft/resolved.yaml`` of a run in two stages; empty for other runs."""
    metrics: tuple[Metrics, ...]
    """One entry per step, in order of steps."""
    rollouts: tuple[ShownRollout, ...]
    """The rollouts of the newest step that has any, given ones among them, without tokens."""
    rollouts_step: int | None
    controller: Mapping[str, Any]
    """The hint controller's state in the newest checkpoint."""
    controller_step: int | None
    """Step of the newest checkpoint."""
    scores: tuple[ScoreLine, ...]
    conditions: Mapping[str, Any]
    """Conditions under which the scores were measured."""
    notes: tuple[str, ...]
    """Missing and damaged parts, one sentence each."""
    own_parts: bool = False
    """True if a controller that is not one of ours may be imported, which executes its code."""

    @property
    def base_model(self) -> Any:
        """The model that training began with, None if unknown; with two stages, the first one's."""
        return _look_up(self.first_stage or self.settings, "actor_rollout_ref.model.path")

    @property
    def validation_files(self) -> list[str]:
        """Names of the validation files, without folder and ending, in the settings' order."""
        return [file.stem for file in self._files("data.val_files")]

    @property
    def train_files(self) -> list[Path]:
        """The training files, in the settings' order. Relative ones begin where the run was started."""
        return self._files("data.train_files")

    @property
    def hint_request(self) -> str | None:
        """The user's message with ``{question}`` and ``{hint}`` if there is a hint; None if hints are in the
        assistant's turn.
        """
        in_question = self.setting("seele.hints.placement") == "user"
        return str(self.setting("seele.hints.request") or "{hint}") if in_question else None

    def _files(self, dotted: str) -> list[Path]:
        files = self.setting(dotted) or []
        return [Path(str(file)) for file in (files if isinstance(files, list) else [files])]

    def setting(self, dotted: str) -> Any:
        """The setting under a dotted key such as ``seele.hints.rounds``, or None if it is missing."""
        return _look_up(self.settings, dotted)


def _look_up(settings: Mapping[str, Any], dotted: str) -> Any:
    value: Any = settings
    for key in dotted.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def read_run(path: Path, *, without: Collection[str] = (), own_parts: bool = False) -> RunFolder:
    """Read the run folder at ``path``.

    Args:
        path: The folder.
        without: Names of ``LARGE_PARTS`` to skip: they are empty, and have no notes.
        own_parts: As in ``RunFolder``; the folder names the code.

    Raises:
        CheckpointError: If it is not a run folder.
    """
    if not path.is_dir():
        raise CheckpointError(
            f"{path}: no such folder; expected a run folder, which holds {', '.join(MARKS)}"
        )
    if not is_run_folder(path):
        raise CheckpointError(
            f"{path}: not a run folder; expected at least one of {', '.join(MARKS)}, found {_listing(path)}"
        )
    notes: list[str] = []
    metrics = () if "metrics" in without else read_metrics(path / "metrics.jsonl", notes)
    scores, conditions = read_evaluation(path, "eval/scores.json", notes)
    # Only one step is read: the rollouts of a long run do not fit in memory.
    step = None if "rollouts" in without else max(rollout_files(path), default=None)
    if step is None and "rollouts" not in without:
        notes.append("There are no rollouts (rollouts/step_N.jsonl), so there are no examples.")
    controller_step, controller = (
        (None, {}) if "controller" in without else _read_newest_controller(path, notes)
    )
    settings = _read_settings(path / "resolved.yaml", notes)
    first = path / FIRST_STAGE / "resolved.yaml"
    has_two_stages = _look_up(settings, "seele.method") == "sft_rl" and first.is_file()
    return RunFolder(
        name=path.resolve().name,
        card=read_json(path, "run_card.json", notes, "so commit, versions and hardware are unknown"),
        settings=settings,
        first_stage=_read_settings(first, notes) if has_two_stages else {},
        metrics=metrics,
        rollouts=() if step is None else _read_rollouts(path / "rollouts" / f"step_{step}.jsonl", notes),
        rollouts_step=step,
        controller=controller,
        controller_step=controller_step,
        scores=scores,
        conditions=conditions,
        notes=tuple(notes),
        own_parts=own_parts,
    )


def is_run_folder(path: Path) -> bool:
    """Return True if the folder holds one of the files that every run writes first."""
    return any((path / mark).is_file() for mark in MARKS)


def rollout_files(path: Path) -> dict[int, Path]:
    """The run's rollout files by step, in no particular order."""
    return _numbered(path / "rollouts", "step_*.jsonl")


def _listing(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "nothing"


def _numbered(folder: Path, pattern: str) -> dict[int, Path]:
    """Entries such as ``step_12.jsonl`` or ``global_step_12`` by their number."""
    numbers = {}
    for entry in folder.glob(pattern):
        number = entry.stem.rpartition("_")[2]
        if number.isdecimal():
            numbers[int(number)] = entry
    return numbers


def _read_newest_controller(path: Path, notes: list[str]) -> tuple[int | None, Mapping[str, Any]]:
    """Return the step and state of the newest saved controller."""
    checkpoints = _numbered(path, "global_step_*")
    states = {step: f"{checkpoints[step].name}/seele/controller.json" for step in checkpoints}
    saved = [step for step, state in states.items() if (path / state).is_file()]
    if not saved:
        notes.append("There is no checkpoint with a hint controller, so there are no fitted curves.")
        return None, {}
    return max(saved), read_json(path, states[max(saved)], notes, "so there are no fitted curves")


def read_json(path: Path, where: str, notes: list[str], consequence: str) -> Mapping[str, Any]:
    """Return the JSON object in the file ``where`` of the folder ``path``; if there is none, add a note and
    return an empty one.
    """
    file = path / where
    if not file.is_file():
        notes.append(f"{where} is missing, {consequence}.")
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        notes.append(f"{where} is not JSON ({error}), {consequence}.")
        return {}
    if not isinstance(value, Mapping):
        notes.append(f"{where} is not a JSON object, {consequence}.")
        return {}
    return value


def _read_settings(file: Path, notes: list[str]) -> Mapping[str, Any]:
    if not file.is_file():
        notes.append(f"{file.name} is missing, so the settings are unknown.")
        return {}
    try:
        value = yaml.load(file.read_text(encoding="utf-8"), Loader=_SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        notes.append(f"{file.name} is not YAML ({error}), so the settings are unknown.")
        return {}
    if not isinstance(value, Mapping) or not value:
        notes.append(f"{file.name} holds no settings, so they are unknown.")
        return {}
    return value


def read_step(file: Path) -> int | None:
    """Return the step in ``STEP_FILE`` or ``TRACKER``; None if there is none or it is damaged."""
    text = file.read_text(errors="replace").partition("\n")[0].strip() if file.is_file() else ""
    return int(text) if text.isdecimal() else None


def read_lines(file: Path, notes: list[str]) -> Iterator[Mapping[str, Any]]:
    """Read one JSON object per line; other lines are skipped and noted."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except json.JSONDecodeError:
                notes.append(f"{file.name}, line {number}, is cut off or not JSON and was skipped.")
                continue
            if isinstance(value, Mapping):
                yield value
            else:
                notes.append(f"{file.name}, line {number}, is not a JSON object and was skipped.")


def read_metrics(file: Path, notes: list[str]) -> tuple[Metrics, ...]:
    """Return each step's last line, in order of steps. Missing or damaged parts are added to ``notes``."""
    if not file.is_file():
        notes.append("metrics.jsonl is missing: the run ended before its first step.")
        return ()
    by_step: dict[int, Metrics] = {}
    repeated = 0
    for line in read_lines(file, notes):
        numbers = {key: float(value) for key, value in line.items() if _is_number(value)}
        for key in line:
            if key not in numbers and (key.startswith("val/accuracy/") or key.endswith("_total")):
                at = f"metrics.jsonl, step {numbers.get('step', 0):.0f}"
                notes.append(f"{at}: {key} is {line[key]}, so it is not read.")
        if "step" not in numbers:
            notes.append("metrics.jsonl holds a line without a step, which was skipped.")
            continue
        step = int(numbers["step"])
        repeated += step in by_step
        by_step[step] = numbers
    if repeated:
        notes.append(
            f"{repeated} steps appear twice in metrics.jsonl (the run was resumed): the later entry counts."
        )
    if not by_step:
        notes.append("metrics.jsonl holds no complete step.")
    return tuple(by_step[step] for step in sorted(by_step))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read_rollouts(file: Path, notes: list[str]) -> tuple[ShownRollout, ...]:
    rollouts = tuple(read_rollouts(file, notes))
    if all(rollout.is_given for rollout in rollouts):
        notes.append(f"{file.name} holds no rollouts of the policy, so there are no examples.")
    return rollouts


def read_evaluation(
    path: Path, where: str, notes: list[str]
) -> tuple[tuple[ScoreLine, ...], Mapping[str, Any]]:
    """Return the scores in the file ``where`` of the run folder ``path``, and their conditions.

    Missing or damaged parts are added to ``notes``, one sentence each.
    """
    value = read_json(path, where, notes, "so there is no evaluation after training")
    entries = value.get("scores", ())
    lines = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    conditions = value.get("conditions")
    return _read_scores(lines, where, notes), conditions if isinstance(conditions, Mapping) else {}


def _read_scores(lines: Iterable[Mapping[str, Any]], where: str, notes: list[str]) -> tuple[ScoreLine, ...]:
    """Build a score from each line that has all fields with the annotated types."""
    scores = []
    types = get_type_hints(ScoreLine)
    for line in lines:
        try:
            scores.append(ScoreLine(**{name: _converted(line[name], kind) for name, kind in types.items()}))
        except (KeyError, TypeError, ValueError) as error:
            notes.append(f"{where} holds an entry that cannot be read ({type(error).__name__}: {error}).")
    return tuple(scores)


def _converted(value: Any, kind: Any) -> Any:
    if isinstance(kind, UnionType):
        return None if value is None else get_args(kind)[0](value)
    return kind(value)
