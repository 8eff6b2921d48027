"""Settings of a source: where its rows are, and how a row encodes a problem.

Named sources are YAML files in this folder; a user's own are YAML files anywhere. Their keys are the fields
below.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from seele.config.build import from_mapping, require_fraction
from seele.data.sources.reference import HubReference, beside, is_function, parse_reference, plain_name
from seele.data.storage.files import read_yaml
from seele.errors import ConfigError, did_you_mean
from seele.plugins import find_part, installed_names

GENERATED = ("arc_1d", "chains", "countdown", "gsm8k", "zebra")
"""Sources with commands of their own."""

ENTRY_POINTS = "data_sources"
"""Group of ``seele.plugins`` in which installed packages register sources."""

DETECTED = ("question", "answer", "solution", "level")
"""Contents for which columns are detected if none are named."""


class Reason(StrEnum):
    """Why a row gives no problem."""

    NO_QUESTION = "no_question"
    NO_ANSWER = "no_answer"
    DUPLICATE = "duplicate"
    """An earlier row has the same question, ignoring whitespace, and the same answer."""
    OTHER_ANSWER = "other_answer"
    """An earlier row has the same question with another answer."""
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns by what they hold. ``a.b`` is a nested key, ``prompt[0].content`` a key in a list item."""

    question: str = "question"
    answer: str | None = "answer"
    r"""None: the last ``\boxed{}`` of the solution."""
    solution: str | None = None
    """Text of the worked solution, which is then cut into steps."""
    steps: str | None = None
    """List of the steps, if the source has them; not together with ``solution``."""
    level: str | None = None
    """Difficulty: a number, or a text that contains one, such as ``Level 3``."""

    def __post_init__(self) -> None:
        if self.solution and self.steps:
            raise ValueError(f"give solution ({self.solution!r}) or steps ({self.steps!r}), not both")
        if not self.answer and not self.solution:
            raise ValueError("without an answer column, the answer is read from the solution: map its column")

    @property
    def named(self) -> dict[str, str]:
        """The given columns by what they hold."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """One source."""

    data_source: str
    """Stored in every problem: the name by which graders and metrics tell data sets apart."""
    reference: str
    """See ``seele.data.sources.reference``."""
    title: str = ""
    licence: str = "unknown"
    splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train"})
    """Our split name -> the source's split name."""
    heldout_share: float = 0.0
    """Share of the problems of ``train`` that are written to ``heldout`` instead, for sources without such a
    split. They are chosen by a hash of the problem, so the order of the rows does not matter.
    """
    columns: Columns = field(default_factory=Columns)
    question_prefix: str = ""
    """Text that is removed from the beginning of the question, if present."""
    question_suffix: str = ""
    """Text that is removed from the end of the question, if present."""
    thinking: str = "keep"
    """``drop``: the solution is the text after the last ``</think>``; a solution whose thinking never ends
    counts as missing.
    """
    solution_form: str = "text"
    """``gsm8k``: the solution consists of lines with calculator marks, the last of which is ``#### NUMBER``,
    the answer; each line is a step, and there is no column for the answer.
    """
    separator: str = "\n"
    """Text between the steps of a list, added to those that do not end with it."""
    max_steps: int | None = None
    """Most steps of a solution that is cut here; neighbouring steps are merged."""
    max_chars: int | None = None
    """Skip problems whose question and solution together are longer."""
    detect: tuple[str, ...] = ()
    """Contents whose columns are found by their usual names (``seele.data.sources.mapping``)."""
    leave_out: tuple[str, ...] = ()
    """Reasons for which a row is skipped and counted; any other bad row ends the preparation."""

    def __post_init__(self) -> None:
        if self.thinking not in ("keep", "drop"):
            raise ValueError(f"thinking must be 'keep' or 'drop', got {self.thinking!r}")
        if self.solution_form not in ("text", "gsm8k"):
            raise ValueError(f"solution_form must be 'text' or 'gsm8k', got {self.solution_form!r}")
        if self.solution_form == "gsm8k" and (self.columns.answer or not self.columns.solution):
            raise ValueError(
                "solution_form 'gsm8k' takes the answer from the solution: map solution=COLUMN answer="
            )
        require_fraction("heldout_share", self.heldout_share, "[0, 1)")
        if self.heldout_share and ("train" not in self.splits or "heldout" in self.splits):
            raise ValueError(
                f"heldout_share takes 'heldout' out of 'train', but the splits are {sorted(self.splits)}"
            )
        for name in ("max_steps", "max_chars"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        if self.max_steps is not None and self.columns.steps:
            raise ValueError(
                f"max_steps is for solutions that are cut here, but {self.columns.steps!r} is a list of steps"
            )
        if self.thinking == "drop" and self.columns.steps:
            raise ValueError(
                f"thinking is for a solution in one text, but {self.columns.steps!r} is a list of steps; "
                "leave thinking out"
            )
        if self.separator != "\n" and not self.columns.steps and "solution" not in self.detect:
            raise ValueError(
                "separator has no effect without a list of steps: map steps=COLUMN, or leave it out"
            )
        if self.max_steps is not None and self.solution_form == "gsm8k":
            raise ValueError("max_steps has no effect on solution_form 'gsm8k': each line is a step")
        if unknown := [reason for reason in self.leave_out if reason not in list(Reason)]:
            raise ValueError(f"leave_out: unknown reasons {unknown}; known are {[*map(str, Reason)]}")
        for name in (self.data_source, *self.splits):
            if not name or not name.replace("_", "a").replace("-", "a").isalnum():
                raise ValueError(f"names must consist of letters, digits, '_' and '-', got {name!r}")


def source_names() -> list[str]:
    """Return the names of the sources with a file in this folder."""
    return sorted(
        file.name.removesuffix(".yaml")
        for file in files(__package__).iterdir()
        if file.name.endswith(".yaml")
    )


def find_settings(
    name_or_reference: str,
    *,
    columns: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> SourceSettings:
    """Return the settings of a named source, a user's source, or the defaults for a reference, with changes.

    A reference to the repository of a named source gets that source's columns; for any other reference,
    columns that are not given are detected.

    Args:
        name_or_reference: One of ``source_names``; a YAML file; an entry point of ``seele.data_sources`` or
            ``package.module:SOURCE``, a mapping with a YAML file's keys; or a reference.
        columns: Columns by what they hold, replacing the source's own; an empty one removes a column.
        changes: Values of other fields.

    Raises:
        ConfigError: If a name is unknown, a reference or a value is invalid, or ``changes`` has columns
            besides ``columns``.
    """
    raw = _settings_of(name_or_reference)
    if columns and changes and "columns" in changes:
        raise ConfigError("--set columns: the columns are given with --map; give all of them there")
    mapped = {key: value or None for key, value in (columns or {}).items()}
    if mapped and "columns" not in raw:
        # A map of some columns is a choice among the others, too.
        raw["detect"] = [name for name in ("question", "answer") if name not in mapped]
    if raw.get("solution_form") == "gsm8k" and mapped.get("answer"):
        raw["solution_form"] = "text"
    if mapped:
        raw["columns"] = raw.get("columns", {}) | mapped
    raw |= changes or {}
    if changes and "columns" in changes and "detect" not in changes:
        raw.pop("detect", None)
    return from_mapping(SourceSettings, raw, name_or_reference)


def _settings_of(name_or_reference: str) -> dict[str, Any]:
    if name_or_reference in source_names():
        return _read(name_or_reference)
    if name_or_reference.endswith((".yaml", ".yml")):
        path = Path(name_or_reference).expanduser()
        return _own({"data_source": _plain(path.stem)} | read_yaml(path), name_or_reference, path.parent)
    if is_function(name_or_reference) or name_or_reference in installed_names(ENTRY_POINTS):
        part = find_part(name_or_reference, key="seele data prepare", group=ENTRY_POINTS, built_in={})
        if isinstance(part, Mapping):
            file = Path(name_or_reference.rpartition(":")[0])
            return _own(dict(part), name_or_reference, file.parent if file.suffix == ".py" else Path())
    return _settings_of_reference(name_or_reference)


def _own(raw: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    """Return the settings of a user's source, with paths relative to ``folder``; columns are detected unless
    it names them.
    """
    if missing := [key for key in ("data_source", "reference") if not isinstance(raw.get(key), str)]:
        raise ConfigError(f"{name}: expected a text under {missing[0]!r}, got {raw.get(missing[0])!r}")
    if not isinstance(raw.get("columns", {}), Mapping):
        raise ConfigError(f"{name}.columns: expected a section with keys, got {raw['columns']!r}")
    if "columns" not in raw:
        raw = {"detect": list(DETECTED)} | raw
    return raw | {"reference": beside(folder, raw["reference"])}


def _read(source: str) -> dict[str, Any]:
    text = (files(__package__) / f"{source}.yaml").read_text(encoding="utf-8")
    raw: dict[str, Any] = yaml.safe_load(text)
    return raw


def _settings_of_reference(reference: str) -> dict[str, Any]:
    parsed = parse_reference(reference)
    if isinstance(parsed, HubReference):
        name, split = parsed.name.split("/")[-1], parsed.split or "train"
        for source in map(_read, source_names()):
            own = parse_reference(source["reference"])
            if isinstance(own, HubReference) and own.name.lower() == parsed.name.lower():
                whole = reference if parsed.configs else replace(parsed, configs=own.configs).text
                # A named source decides what is held out; a reference means exactly the rows that it names.
                source.pop("heldout_share", None)
                return source | {"reference": whole, "splits": {"train": split}}
    elif is_function(reference):
        name, split = reference.rpartition(":")[2], "train"
    elif parsed.exists():
        name, split = plain_name(parsed).removesuffix(parsed.suffix), "train"
    else:
        names = [*dict.fromkeys((*source_names(), *installed_names(ENTRY_POINTS), *GENERATED))]
        raise ConfigError(
            f"{reference}: neither a file or folder nor a source{did_you_mean(reference, names)}; sources "
            f"are {names}, a data set on the hub is hf://OWNER/NAME?config=...&split=...&revision=..., and a "
            "source of your own is a YAML file (docs/data.md)"
        )
    return {
        "data_source": _plain(name),
        "reference": reference,
        "splits": {"train": split},
        "detect": list(DETECTED),
    }


def _plain(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in name)
