"""Data-parallel generation: one process per copy of the model, each on its own GPUs.

Requests are dealt in turn. Each copy runs ``seele_eval.worker``, which reads a job as one line and writes one
line per response. It ends with this process, even if this process is killed.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from seele.errors import ConfigError, DependencyError
from seele.records import Finish
from seele_eval.generation import EngineSettings, complete_here
from seele_eval.prompts import Complete, Prompt, Request, Response, Responses, encode_requests

WORKER = (sys.executable, "-m", "seele_eval.worker")

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them; empty on a CPU."""
    if _VISIBLE in os.environ:
        return [name for name in os.environ[_VISIBLE].split(",") if name.strip()]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def share_gpus(gpus: Sequence[str], *, tensor_parallel: int, copies: int | None) -> list[tuple[str, ...]]:
    """Divide the GPUs between copies of the model; without GPUs, one copy runs on the CPU.

    Args:
        gpus: All usable GPUs.
        tensor_parallel: GPUs per copy.
        copies: Number of copies; by default as many as the GPUs allow.

    Raises:
        ConfigError: If there are too few GPUs.
    """
    if not gpus and tensor_parallel == 1 and copies in (None, 1):
        return [()]
    possible = len(gpus) // tensor_parallel
    if not possible or possible < (copies or 1):
        raise ConfigError(
            f"--data-parallel {copies or 1} times --tensor-parallel {tensor_parallel} needs "
            f"{(copies or 1) * tensor_parallel} GPUs, this machine has {len(gpus)}"
        )
    starts = range(0, (copies or possible) * tensor_parallel, tensor_parallel)
    return [tuple(gpus[start : start + tensor_parallel]) for start in starts]


def completion(folder: Path, settings: EngineSettings, *, copies: int | None) -> Complete:
    """Return what completes requests: this process, or one process for each copy of the model.

    Raises:
        ConfigError: As ``share_gpus``.
    """
    shares = share_gpus(visible_gpus(), tensor_parallel=settings.tensor_parallel, copies=copies)
    if len(shares) == 1:
        return partial(complete_here, folder, settings=settings)
    return partial(complete_in_processes, folder, settings=settings, shares=shares)


def complete_in_processes(
    model: Path,
    requests: Sequence[Request],
    settings: EngineSettings,
    shares: Sequence[Sequence[str]],
    *,
    command: Sequence[str] = WORKER,
) -> Responses:
    """Draw one response per request with one process for each share of the GPUs.

    Args:
        model: Hugging Face folder.
        requests: Requests, dealt in turn so that every process gets its part of each benchmark.
        settings: Settings of every process.
        shares: Names of GPUs, as from ``share_gpus``.
        command: Command of each process.

    Raises:
        SeeleError: As ``encode_requests``, before anything is started.
    """
    prompts = encode_requests(model, requests, max_tokens=settings.max_tokens)
    return _stream(model, prompts, settings, shares, command)


@dataclass(slots=True)
class _Copy:
    """One process, the positions of its prompts, and its standard error."""

    process: subprocess.Popen[str]
    positions: list[int]
    errors: IO[str] = field(repr=False)


def _stream(
    model: Path,
    prompts: Sequence[Prompt],
    settings: EngineSettings,
    shares: Sequence[Sequence[str]],
    command: Sequence[str],
) -> Responses:
    lines: queue.SimpleQueue[tuple[_Copy, str | None]] = queue.SimpleQueue()
    copies = []
    try:
        for offset, gpus in enumerate(shares[: len(prompts)]):
            copies.append(_start(command, gpus, list(range(offset, len(prompts), len(shares)))))
        for copy in copies:
            job = {"model": str(model), "settings": asdict(settings)}
            _send(copy, job | {"prompts": [asdict(prompts[position]) for position in copy.positions]})
            threading.Thread(target=_forward, args=(copy, lines), daemon=True).start()
        running = len(copies)
        while running:
            copy, line = lines.get()
            if line is None:
                _check_end(copy)
                running -= 1
                continue
            reply = json.loads(line)
            position = copy.positions[reply["index"]]
            yield (
                position,
                Response(text=reply["text"], num_tokens=reply["num_tokens"], finish=Finish(reply["finish"])),
            )
    finally:
        for copy in copies:
            copy.process.kill()
            copy.process.wait()
            copy.errors.close()


def _start(command: Sequence[str], gpus: Sequence[str], positions: list[int]) -> _Copy:
    environment = os.environ | ({_VISIBLE: ",".join(gpus)} if gpus else {})
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process runs
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
    )
    return _Copy(process, positions, errors)


def _send(copy: _Copy, job: dict[str, Any]) -> None:
    assert copy.process.stdin is not None, "opened as a pipe"
    # Stays open: the process ends when this pipe closes. _check_end finds a process that has already ended.
    with contextlib.suppress(BrokenPipeError):
        copy.process.stdin.write(json.dumps(job) + "\n")
        copy.process.stdin.flush()


def _forward(copy: _Copy, lines: "queue.SimpleQueue[tuple[_Copy, str | None]]") -> None:
    assert copy.process.stdout is not None, "opened as a pipe"
    for line in copy.process.stdout:
        lines.put((copy, line))
    lines.put((copy, None))


def _check_end(copy: _Copy) -> None:
    status = copy.process.wait()
    if status:
        copy.errors.seek(0)
        output = copy.errors.read()[-2000:]
        raise DependencyError(
            f"a generation process ended with status {status}; finished samples are kept, and the same "
            f"command resumes from there. Its output:\n{output}"
        )
