"""Facts of this machine: nvidia-smi, the system, installed packages, torch, and checks on its GPUs."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from seele.cli.doctor.facts import GIB, Environment, Gpu, Machine
from seele.cli.doctor.judge import OTHER_PACKAGES, PINS, Finding
from seele.host import host_memory

PROBE_TIMEOUT_S = 180
"""Importing torch and transformers from a slow disk takes a minute."""
VARIABLES = ("CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "WANDB_API_KEY")
QUICKSTART_FILES = ("models/chains", "data/prepared/chains")


def gather() -> Machine:
    """Return all facts; one that is unavailable keeps its default."""
    names = {*OTHER_PACKAGES, *(name for pins in PINS.values() for name in pins)}
    return Machine(
        gpus=list_gpus(),
        environment=ask_environment(),
        packages={name: found for name in sorted(names) if (found := _version(name))},
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        memory_gib=host_memory() / GIB,
        shm_gib=_free("/dev/shm"),
        max_open_files=_max_open_files(),
        compiles=_compiles(),
        missing_files=tuple(name for name in QUICKSTART_FILES if not Path(name).exists()),
    )


def list_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi lists; none if it is missing or fails."""
    fields = ["name", "memory.total", "driver_version", "compute_cap"]
    # nvidia-smi of driver 470 refuses the whole query because of compute_cap.
    lines = _nvidia_smi(fields) or _nvidia_smi(fields[:-1])
    return tuple(_gpu(line) for line in lines)


def _nvidia_smi(fields: Sequence[str]) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    # A driver that fails may still print a sentence; a GPU's line has as many columns as were asked for.
    return [line for line in listed.splitlines() if line.count(",") == len(fields) - 1]


def _gpu(line: str) -> Gpu:
    name, memory, driver, *capability = (cell.strip() for cell in line.split(","))
    major, _, minor = (capability or [""])[0].partition(".")
    return Gpu(
        name=name,
        memory_gib=float(memory) / 1024 if re.fullmatch(r"[\d.]+", memory) else 0.0,
        driver=driver,
        capability=(int(major), int(minor)) if major.isdigit() and minor.isdigit() else None,
    )


def ask_environment() -> Environment:
    """Return what ``python -m seele_verl.checks.machine_probe`` prints last, or why it printed nothing."""
    command = [sys.executable, "-m", "seele_verl.checks.machine_probe"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Environment(error=f"torch did not answer within {PROBE_TIMEOUT_S} s")
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
        return Environment(error=lines[-1])
    return read_environment(json.loads(ended.stdout.strip().splitlines()[-1]))


def read_environment(said: dict[str, Any]) -> Environment:
    """Return the ``Environment`` in the probe's JSON, in which tuples are lists."""
    devices = tuple((major, minor) for major, minor in said.pop("devices"))
    return Environment(devices=devices, **said)


def _free(folder: str) -> float:
    return shutil.disk_usage(folder).free / GIB if Path(folder).is_dir() else 0.0


def _max_open_files() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _compiles() -> bool:
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    # Triton uses the variable, or one of these two; it does not look for "cc".
    return headers.is_file() and any(map(shutil.which, (os.environ.get("CC", "gcc"), "gcc", "clang")))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def run_gpu_checks(environment: Environment) -> Iterator[Finding]:
    """Yield one finding per check. If torch sees no GPU, nothing starts, and that is the only finding."""
    if not environment.cuda_available:
        yield Finding(
            what="checks on the GPUs",
            verdict="no",
            because=f"not started, because torch sees none: {environment.error or environment.cuda_error}",
            remedy="fix what is reported above",
        )
        return
    command = [sys.executable, "-m", "seele_verl.gpu_check"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "stdout is a pipe"
        for line in process.stdout:
            yield Finding(**json.loads(line))
    if process.returncode:
        yield Finding(
            what="checks on the GPUs",
            verdict="no",
            because=f"the checks ended with exit status {process.returncode} before they finished",
            remedy="see the messages above",
        )
