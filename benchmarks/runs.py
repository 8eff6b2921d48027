"""Run one variant of a job to its end and read its measurements."""

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from seele.data.storage.files import read_json_lines

ROOT = Path(__file__).resolve().parents[1]

OURS = ("-m", "seele_verl.train")
PLAIN = ("benchmarks/plain_verl.py",)

JOB = (
    "hardware=cpu",
    "job=tiny",
    "model=tiny",
    "data=chains",
    "trainer.save_freq=-1",
    "trainer.test_freq=-1",
    "trainer.val_before_train=false",
)

Line = Mapping[str, float]
"""The metrics of one step."""


def train(program: Sequence[str], overrides: Sequence[str], folder: Path, *, steps: int) -> list[Line]:
    """Train a warm-up step and ``steps`` more; return the metrics of each, the warm-up step's first.

    ``memory/peak_gib`` is the whole run's: the largest sum, over its processes, of each one's private memory
    and its part of shared memory.

    Raises:
        CalledProcessError: If the run fails; its output is in ``folder/stdout``.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "verl.jsonl"
    command = [
        *(sys.executable, *program, *JOB, *overrides),
        f"trainer.total_training_steps={steps + 1}",
        f"trainer.default_local_dir={folder}",
    ]
    environment = os.environ | {"VERL_FILE_LOGGER_PATH": str(log), "PYTHONPATH": str(ROOT)}
    with (folder / "stdout").open("w") as out, _peak_memory() as peak:
        subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, check=True)
    if log.exists():
        lines = [line["data"] for _, line in read_json_lines(log)]
    else:
        lines = [line for _, line in read_json_lines(folder / "metrics.jsonl")]
    peak_gib = max(peak) / 2**30
    return [line | {"memory/peak_gib": peak_gib} for line in lines if "timing_s/step" in line]


@contextmanager
def _peak_memory(every_s: float = 3.0) -> Iterator[list[int]]:
    """Sample the bytes of all processes of benchmarks on this machine while the block runs."""
    samples, stop = [0], threading.Event()

    def sample() -> None:
        while not stop.wait(every_s):
            total = 0
            for process in psutil.process_iter():
                try:
                    ours = process.environ().get("VERL_FILE_LOGGER_PATH") is not None
                    total += process.memory_full_info().pss if ours else 0
                except psutil.Error:
                    continue
            samples.append(total)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()
        time.sleep(5.0)  # Ray's processes end after their driver; the next run must not meet them


def median(lines: Sequence[Line], key: str) -> float:
    """Median over steps."""
    return statistics.median(line[key] for line in lines)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """``median (smallest to largest)``."""
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
