"""Errors for a command line that Hydra cannot compose, or that relies on a hardware file for its sizes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig, OmegaConf

from seele.errors import ConfigError, did_you_mean
from seele_verl.options import OWN_RECIPES

# Sections that are passed unchanged to Ray, vLLM, transformers or a part of the run: new keys are allowed
# there.
OPEN_SECTIONS = (
    "actor_rollout_ref.model.override_config.",
    "actor_rollout_ref.rollout.engine_kwargs.",
    "data.apply_chat_template_kwargs.",
    "custom_reward_function.reward_kwargs.",
    "global_profiler.",
    "ray_kwargs.ray_init.",
    "reward.custom_reward_function.reward_kwargs.",
    "seele.curriculum.settings.",
    "seele.hints.settings.",
    "seele.reward.kwargs.",
    "seele.selection.settings.",
)

JOB_OF_HARDWARE = {
    "cpu": "tiny",
    "gpu_tiny": "tiny",
    "gpu1": "small",
    "gpu1_24": "small",
    "gpu1_48": "small",
}
"""Hardware -> the job that suits it."""


def check_job(overrides: Iterable[str]) -> None:
    """Raise ``ConfigError``, naming the choice, if a command on small hardware does not say how large its run
    is.

    Args:
        overrides: What the user typed.
    """
    typed = dict(override.partition("=")[::2] for override in overrides)
    hardware = typed.get("hardware", "")
    job = JOB_OF_HARDWARE.get(hardware)
    # A recipe for a CPU sets its own sizes.
    if job is None or "job" in typed or typed.get("recipe") in OWN_RECIPES:
        return
    # A recipe has sizes for gpu1, but none for a tiny job.
    if job == "small" and typed.get("recipe", "null") != "null":
        return
    raise ConfigError(
        f"job: not given with hardware={hardware}; say how large the run is (batch, steps, learning rate, "
        f"lengths): job={job}, or job=method for the sizes of the method or recipe"
    )


def check_options(arguments: Sequence[str]) -> None:
    """Raise ``ConfigError`` if an argument is an option that Hydra does not have, or a name without value."""
    known, others = get_args_parser().parse_known_args(arguments)
    unknown = [each for each in others if each.startswith("-")]
    if unknown:
        raise ConfigError(
            f"{unknown[0]}: no such option; settings are written NAME=VALUE, such as "
            "trainer.total_training_steps=30; `seele train --help` lists the groups and their options"
        )
    check_have_values(known.overrides)


def check_have_values(overrides: Sequence[str]) -> None:
    """Raise ``ConfigError`` if an override is not written NAME=VALUE; ``~NAME`` removes a setting."""
    for name, following in pairwise([*overrides, "VALUE"]):
        if "=" not in name and not name.startswith("~"):
            value = "VALUE" if "=" in following else following
            raise ConfigError(f"{name}: no value; settings are written NAME=VALUE: write {name}={value}")


UNKNOWN_OPTION = re.compile(r"Could not find '([^/']+)/([^']+)'\s+Available options in .*\n((?:\t.*\n)+)")
"""Hydra's message about an option that a group lacks: the group, the option, and those that it has."""

GROUPS = ("adapter", "curriculum", "hardware", "job", "method", "model", "recipe", "replay", "selection")
"""Groups of the configuration that are not sections of it."""

HEADER = "# @package _global_"
"""The first line of a composition's file; without it, Hydra puts the file's keys under its group's name."""


def check_places(config: DictConfig, folder: Path) -> None:
    """Raise ``ConfigError`` if the keys of a user's own file stand in a section where nothing reads them.

    Args:
        config: The composed configuration.
        folder: The folder of the user's own files (``--config-dir``).
    """
    for group in GROUPS:
        files = [file for file in sorted((folder / group).rglob("*.yaml")) if not _has_header(file)]
        if group in config and files:
            raise ConfigError(
                f"{group}: got {[*config[group]]}, which has no effect there; make the first line of "
                f"{' and '.join(map(str, files))} `{HEADER}`"
            )
    if "data" in config.data:
        raise ConfigError(
            f"data.data: got {[*config.data.data]}, which has no effect; in a file of yours under data/, the "
            "keys of the section stand at the top level, without `data:` above them"
        )


def _has_header(file: Path) -> bool:
    """True if Hydra finds the header: before anything else but empty lines."""
    return file.read_text(encoding="utf-8").lstrip().partition("\n")[0].split() == HEADER.split()


def check_names(config: DictConfig, known: DictConfig, folder: Path, overrides: Iterable[str]) -> None:
    """Raise ``ConfigError`` if a user's own file sets a key that does not exist.

    Args:
        config: The composed configuration.
        known: One with all keys that our own files and verl's set. Sections that are empty there take any
            key.
        folder: The folder of the user's own files (``--config-dir``).
        overrides: What the user typed; keys that it adds have a check of their own.
    """
    typed = (f"{each.partition('=')[0].lstrip('+')}." for each in overrides if each.startswith("+"))
    is_open = (*OPEN_SECTIONS, *typed)
    ours, theirs = (OmegaConf.to_container(each, resolve=False) for each in (known, config))
    for key in _keys_beyond(theirs, ours):
        if not f"{key}.".startswith(is_open):
            raise ConfigError(f"--config-dir {folder}: {unknown_key(key, known)}")


def _keys_beyond(values: Any, known: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted keys of sections that the same sections of ``known`` lack."""
    if not (isinstance(values, Mapping) and isinstance(known, Mapping) and known):
        return
    for name, value in values.items():
        if name in known:
            yield from _keys_beyond(value, known[name], f"{path}{name}.")
        else:
            yield f"{path}{name}"


def explain(message: str, config: DictConfig) -> str:
    """Return Hydra's message in our form: an unknown key or option with the known ones.

    Args:
        message: Hydra's message. For an unknown key it advises adding it, which few sections here allow.
        config: The configuration without overrides.
    """
    if found := re.match(r"Could not override '([\w.]+)'", message):
        return unknown_key(found[1], config)
    if found := UNKNOWN_OPTION.search(message):
        group, name, options = found[1], found[2], found[3].split()
        return f"{group}: unknown option {name!r}{did_you_mean(name, options)}; allowed are {options}"
    head, *_ = message.split("\nConfig search path")
    return " ".join(head.split())


def unknown_key(key: str, config: DictConfig) -> str:
    """Return the message for an unknown key: the nearest key, and its section's keys or how to add one."""
    path, _, name = key.rpartition(".")
    section = OmegaConf.select(config, path) if path else config
    if not isinstance(section, DictConfig):
        return (
            unknown_key(path, config)
            if path and section is None
            else f"{key}: unknown key, {path} is a value"
        )
    allowed = sorted({*map(str, section), *(GROUPS if not path else ())})
    near = did_you_mean(name, allowed)
    if f"{key}.".startswith(OPEN_SECTIONS):
        return f"{key}: no value to change there{near}; a leading '+' adds one: +{key}=VALUE"
    return f"{key}: unknown key{near}; allowed {f'in {path}' if path else 'there'} are {allowed}"
