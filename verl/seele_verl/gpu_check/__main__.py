"""Runs the checks, each in its own process, and prints a line of JSON when one finishes.

    python -m seele_verl.gpu_check                             # all that this node has GPUs for
    python -m seele_verl.gpu_check --only all_reduce

A line holds the fields of ``seele.cli.doctor.judge.Finding``. A check that hangs is killed with all its
processes when its time is up, and counts as a "no", like one that crashes; its output stays in a log file.
"""

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seele_verl.cpu import ENVIRONMENT
from seele_verl.gpu_check.agreement import CheckFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: ``module.check(device, **settings)``."""

    what: str
    module: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    limit_s: int = 120
    """Time limit, several times the expected time; the first reads of a file system are slow."""
    gpus: int = 1
    """Number of GPUs that it needs; it is skipped with fewer."""
    failure: str = "no"
    """Verdict if it fails: ``warning`` for what a run needs only if it asks for it."""


def _engine(tensor_parallel: int, runner: int) -> Check:
    return Check(
        what=f"vLLM: sleep, new weights, wake; TP {tensor_parallel}, model runner V{runner + 1}",
        module="engine",
        settings={"tensor_parallel": tensor_parallel, "runner": runner},
        limit_s=300,
        gpus=tensor_parallel,
        failure="warning" if runner else "no",
    )


CHECKS: Mapping[str, Check] = {
    "attention": Check(what="varlen attention against SDPA", module="attention"),
    "probabilities": Check(what="log-probabilities and entropy in bfloat16", module="probabilities"),
    "all_reduce": Check(what="NCCL all-reduce over the GPUs", module="all_reduce"),
    "bucket": Check(what="a bucket of weights over CUDA IPC", module="bucket"),
    "engine_tp1_v1": _engine(1, 0),
    "engine_tp1_v2": _engine(1, 1),
    "engine_tp2_v1": _engine(2, 0),
    "engine_tp2_v2": _engine(2, 1),
}


def run_in_process(what: str, command: Sequence[str], *, limit_s: float, folder: Path) -> dict[str, str]:
    """Return the finding of ``command``, which writes ``{"verdict", "because"}`` to ``FOLDER/result.json``.

    Args:
        what: The finding's name.
        command: The process; it gets its own session, and none of its processes survives this call.
        limit_s: Seconds after which it is killed.
        folder: An empty folder for the result, and for the process's output, ``log.txt``.
    """
    result, log = folder / "result.json", folder / "log.txt"
    with log.open("w") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=printed, start_new_session=True)
        try:
            ended = f"ended with exit status {process.wait(timeout=limit_s)} and no result"
        except subprocess.TimeoutExpired:
            ended = f"did not finish within {limit_s:g} s"
        finally:
            # This includes the engine's processes, and those of a check that was interrupted.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    found = json.loads(result.read_text()) if result.is_file() else {"verdict": "no", "because": ended}
    remedy = "" if found["verdict"] == "yes" else f"read {log}"
    return {"what": what, "remedy": remedy, **found}


def run_here(name: str, device: str, result: Path) -> None:
    """Run the check ``name`` in this process, and write its finding to ``result``."""
    check = CHECKS[name]
    try:
        module = importlib.import_module(f"seele_verl.gpu_check.{check.module}")
        found = {"verdict": "yes", "because": module.check(device, **check.settings)}
    except CheckFailed as failed:
        found = {"verdict": "no", "because": str(failed)}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is this check's finding
        traceback.print_exc()
        first_line = next(iter(str(error).strip().splitlines()), "")
        found = {"verdict": "no", "because": f"{type(error).__name__}: {first_line}"}
    # Renamed, so that a process that is killed while it writes leaves no partial result.
    unfinished = result.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found))
    unfinished.replace(result)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Exercise the GPUs of this node with a series of short checks."
    )
    parser.add_argument("--only", choices=sorted(CHECKS), nargs="+", help="only these checks, in this order")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--result", type=Path, help="run the one check here, and write its finding there")
    arguments = parser.parse_args(argv)
    if arguments.device == "cpu":
        os.environ.update(ENVIRONMENT)
    if arguments.result is not None:
        run_here(arguments.only[0], arguments.device, arguments.result)
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads that wait for the other end of a failed transfer would keep the process alive.
        os._exit(0)
    for name in arguments.only or _possible(arguments.device):
        check = CHECKS[name]
        folder = Path(tempfile.mkdtemp(prefix=f"seele-doctor-{name}-"))
        command = [sys.executable, "-m", "seele_verl.gpu_check", "--only", name]
        command += ["--device", arguments.device, "--result", str(folder / "result.json")]
        finding = run_in_process(check.what, command, limit_s=check.limit_s, folder=folder)
        if finding["verdict"] == "no":
            finding["verdict"] = check.failure
        sys.stdout.write(json.dumps(finding) + "\n")
        sys.stdout.flush()
        if finding["verdict"] == "yes":
            shutil.rmtree(folder, ignore_errors=True)


def _possible(device: str) -> list[str]:
    import torch

    gpus = torch.cuda.device_count() if device == "cuda" else 1
    return [name for name, check in CHECKS.items() if check.gpus <= gpus]


if __name__ == "__main__":
    main()
