"""The ``seele doctor`` command: its options, output and exit status."""

import json
import os
import platform
import shutil
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer

from seele.cli.doctor.facts import GIB, Machine
from seele.cli.doctor.gather import gather, run_gpu_checks
from seele.cli.doctor.judge import GPUS_OF_HARDWARE, Finding, can_train, default_hardware, judge
from seele.cli.doctor.needs import find_model
from seele.errors import ConfigError


def doctor_command(
    hardware: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(GPUS_OF_HARDWARE)}. [default: the GPUs if there are any, else cpu]"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model to be trained: a preset such as qwen2_5_7b, or a folder.")
    ] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Also test the GPUs, for a few minutes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Report what this machine can run, what is missing for the rest, and how to fix it.

    Exit status 1 if training cannot run on ``--hardware``, or a check of ``--gpu`` failed.

    Raises:
        ConfigError: If hardware or model is unknown.
    """
    if hardware is not None and hardware not in GPUS_OF_HARDWARE:
        raise ConfigError(f"--hardware: got {hardware!r}; allowed are {list(GPUS_OF_HARDWARE)}")
    size = None if model is None else find_model(model)
    machine = gather()
    chosen = hardware or default_hardware(machine)
    findings = judge(machine, hardware=chosen, model=model, size=size)
    if not as_json:
        typer.echo(describe_machine(machine))
        for finding in findings:
            _print(finding)
    checks = []
    for finding in run_gpu_checks(machine.environment) if gpu else ():
        checks.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        said = {"machine": describe_machine(machine), "hardware": chosen, "findings": findings}
        typer.echo(json.dumps(said | ({"gpu_checks": checks} if gpu else {}), indent=1, default=asdict))
    if not can_train(findings, hardware=chosen) or any(check.verdict == "no" for check in checks):
        raise typer.Exit(1)


def describe_machine(machine: Machine) -> str:
    """Return system, interpreter, cores, memory, disk and GPUs in one line."""
    disk = shutil.disk_usage(".").free / GIB
    counts = Counter(f"{gpu.name} ({gpu.memory_gib:.0f} GiB)" for gpu in machine.gpus)
    gpus = [f"{count} x {name}" for name, count in counts.items()]
    return (
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"{len(os.sched_getaffinity(0))} cores, {machine.memory_gib:.1f} GiB of memory, "
        f"{disk:.0f} GiB of disk free, {', '.join(gpus) or 'no GPU'}"
    )


def _print(finding: Finding) -> None:
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    typer.echo(f"{finding.verdict:>7}  {finding.what}: {finding.because}{remedy}")
