"""Read the runs to compare, label each with its arm, and group them.

An arm is a method with its settings; its runs differ in their seeds.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.errors import CheckpointError, ConfigError
from seele.report.run_folder import RunFolder, read_run
from seele.report.series import validation_splits

TOLD_APART_BY = (
    "seele.hints",
    "seele.curriculum",
    "seele.selection",
    "seele.advantage",
    "seele.credit",
    "seele.imitation",
    "seele.off_policy",
    "seele.interleave",
    "seele.replay",
)
"""Sections whose settings split a method's runs into arms if they differ."""

TEXTS = ("seele.hints.request", "seele.credit.request")
"""Settings of these sections that split no arm, because they are too long for its name."""

DECISIVE = ("algorithm", "actor_rollout_ref", "critic", "data", "reward", "seele")
"""Sections that decide what a run learns: a comparison notes where an arm's runs differ in them."""

_OF_ONE_RUN = re.compile(r"(seed|path|files|record|served_model_name)$")
"""Settings in which the runs of an arm may differ: seeds, places, and data that is compared by itself."""

UNSET = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run folder's place in the comparison."""

    folder: str
    """Path as the user gave it."""
    arm: str
    seed: int
    contents: RunFolder


def read_compared(folder: Path) -> RunFolder:
    """Read a run folder as far as comparisons need it.

    Raises:
        CheckpointError: If it is not a run folder.
    """
    return read_run(folder, without=("rollouts", "controller"))


def read_arms(
    folders: Sequence[Path],
    *,
    by: Sequence[str] = (),
    labels: Sequence[str] = (),
    read: Callable[[Path], RunFolder] = read_compared,
) -> dict[str, dict[int, ComparedRun]]:
    """Return arm -> seed -> run. Arms keep the order of ``folders``; seeds are sorted.

    Args:
        folders: At least one run folder.
        by: Dotted settings that tell runs of one method apart, instead of those of ``TOLD_APART_BY``.
        labels: ``RUN=NAME`` each: the arm of a run, which is identified by its path or its folder's name.
        read: Reads a folder; a cached function saves time when comparisons share runs.

    Raises:
        CheckpointError: If a folder is not a run folder, was never validated, or lacks its method or seed.
        ConfigError: If a key or label matches no run, or two runs of an arm have the same seed.
    """
    runs = [_checked(folder, read(folder)) for folder in folders]
    for key in by:
        if all(run.setting(key) is None for run in runs):
            raise ConfigError(
                f"--by {key}: no run has such a setting; expected a dotted key of resolved.yaml"
            )
    named = _parse_labels(labels, folders)
    unnamed = [run for place, run in enumerate(runs) if place not in named]
    differing = _differing(unnamed, by)
    arms: dict[str, dict[int, ComparedRun]] = {}
    for place, (folder, run) in enumerate(zip(folders, runs, strict=True)):
        arm = named[place] if place in named else _label(run, differing)
        compared = ComparedRun(folder=folder.as_posix(), arm=arm, seed=_seed(folder, run), contents=run)
        other = arms.setdefault(arm, {}).setdefault(compared.seed, compared)
        if other is not compared:
            raise ConfigError(
                f"{other.folder} and {compared.folder} are both {arm!r} with seed {compared.seed}; omit one, "
                "or tell them apart by a setting (--by KEY) or a label (--label RUN=NAME)"
            )
    return {arm: dict(sorted(by_seed.items())) for arm, by_seed in arms.items()}


def _checked(folder: Path, run: RunFolder) -> RunFolder:
    if not validation_splits(run.metrics):
        raise CheckpointError(
            f"{folder}: no un-hinted validation (val/accuracy/SPLIT in metrics.jsonl), so nothing to "
            "compare; omit it, or train with trainer.test_freq or trainer.val_before_train"
        )
    return run


def _seed(folder: Path, run: RunFolder) -> int:
    seed = _recorded(run, "seed")
    if not isinstance(seed, int):
        raise CheckpointError(f"{folder}: neither run_card.json nor resolved.yaml has the seed")
    return seed


def _recorded(run: RunFolder, name: str) -> Any:
    """Value from the run card, or else from the settings."""
    return run.card[name] if name in run.card else run.setting(f"seele.{name}")


def _differing(runs: Sequence[RunFolder], by: Sequence[str]) -> dict[str, list[str]]:
    """Method -> the settings in which its runs differ.

    A run that is older than a setting does not differ in it, unless that setting was requested.
    """
    runs_by_method: dict[str, list[RunFolder]] = {}
    for run in runs:
        runs_by_method.setdefault(_method(run), []).append(run)
    return {
        method: [
            key
            for key in by or keys_of_arms(of_method)
            if len({value_of(run, key) for run in of_method if by or has_setting(run, key)}) > 1
        ]
        for method, of_method in runs_by_method.items()
    }


def _label(run: RunFolder, differing: Mapping[str, Sequence[str]]) -> str:
    """Return the method, with the settings in which its runs differ: ``seele:controller=bayes,rounds=2``."""
    method = _method(run)
    settings = [f"{_short(key)}={value_of(run, key)}" for key in differing[method]]
    return f"{method}:{','.join(settings)}" if settings else method


def _method(run: RunFolder) -> str:
    method = _recorded(run, "method")
    if method is None:
        raise CheckpointError(
            f"{run.name}: neither run_card.json nor resolved.yaml has the method; give the run a label "
            f"(--label {run.name}=NAME)"
        )
    return str(method)


def keys_of_arms(runs: Collection[RunFolder]) -> list[str]:
    """Dotted keys of the settings of ``TOLD_APART_BY`` that any of the runs has, section by section."""
    keys = (
        f"{section}.{name}"
        for section in TOLD_APART_BY
        for run in runs
        for name in run.setting(section) or ()
    )
    return [key for key in dict.fromkeys(keys) if key not in TEXTS]


def decisive_keys(runs: Collection[RunFolder]) -> list[str]:
    """Dotted keys of the settings of ``DECISIVE`` that any of the runs has, but for seeds and places."""
    found = (key for run in runs for section in DECISIVE for key in _keys(section, run.setting(section)))
    return [key for key in dict.fromkeys(found) if not _OF_ONE_RUN.search(key)]


def _keys(key: str, value: Any) -> Iterator[str]:
    """The dotted keys of a section's settings, those of the sections in it included; free arguments, which
    a run need not have, are one setting.
    """
    if isinstance(value, Mapping) and value and not key.endswith(("settings", "kwargs")):
        for name, inner in value.items():
            yield from _keys(f"{key}.{name}", inner)
    else:
        yield key


def has_setting(run: RunFolder, key: str) -> bool:
    """True if the run's settings have the dotted key, be it null; a run may be older than a setting."""
    section, _, name = key.rpartition(".")
    return name in (run.setting(section) or ())


def value_of(run: RunFolder, key: str) -> str:
    """The setting as the label of an arm shows it; ``null`` if it is missing."""
    value = run.setting(key)
    if value is None:
        return UNSET
    if not isinstance(value, dict | list):
        return str(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _short(key: str) -> str:
    """The last part of a dotted key, or the part before it if the last is ``name``."""
    *_, section, name = ("", *key.split("."))
    return section if name == "name" else name


def _parse_labels(labels: Sequence[str], folders: Sequence[Path]) -> Mapping[int, str]:
    """Label by the run's place among ``folders``."""
    named: dict[int, str] = {}
    # A path may contain "=", as Hydra's do, so known names are tried instead of splitting at "=": first paths
    # as they were given, then folder names.
    kinds = ([each.as_posix() for each in folders], [each.resolve().name for each in folders])
    for label in labels:
        fits: dict[int, str] = {}
        for names in kinds:
            fits = fits or {
                place: label.removeprefix(f"{name}=")
                for place, name in enumerate(names)
                if label.startswith(f"{name}=")
            }
        if len(fits) != 1 or not all(fits.values()):
            raise ConfigError(
                f"--label {label}: expected RUN=NAME with the path or the folder name of exactly one of "
                f"{[folder.as_posix() for folder in folders]}"
            )
        if fits.keys() & named.keys():
            raise ConfigError(f"--label {label}: the run has a label already; give one")
        named.update(fits)
    return named
