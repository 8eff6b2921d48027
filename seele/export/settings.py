"""Which settings of a run are not its method's defaults. Values that are paths lose their folders."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from seele.report.run_folder import RunFolder

LEFT_OUT = frozenset({"seele.method", "seele.seed", "seele.reward.num_workers"})
"""The card has a line for the first two; the last decides nothing but speed."""


def changed_settings(run: RunFolder, defaults: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The run's value and the default, by dotted key, where the run has the key and they differ."""
    values = {key: run.setting(key) for key in defaults if key not in LEFT_OUT and _has(run, key)}
    return {
        key: (without_folders(value), defaults[key])
        for key, value in values.items()
        if not _equal(value, defaults[key])
    }


def _has(run: RunFolder, dotted: str) -> bool:
    section, _, key = dotted.rpartition(".")
    values = run.setting(section)
    return isinstance(values, Mapping) and key in values


def _equal(value: Any, default: Any) -> bool:
    """YAML reads 5e-5 as a text and 5.0e-05 as a number."""
    try:
        return float(value) == float(default)
    except (TypeError, ValueError):
        return bool(value == default)


def without_folders(value: Any) -> Any:
    """The value; of an absolute path the last part, since the rest is the machine's."""
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    return value
