"""Forks every process of a CPU run from one that has already imported torch and vLLM.

A run has about ten processes. Importing verl takes each of them 20 s of a core, which is most of the startup
on two cores; all but 3 s of that are libraries that verl needs. Here the driver imports those and forks a
server. Ray (through its ``py_executable``) and multiprocessing (``set_executable``; vLLM's engine) call
``fork_client.py`` in place of Python. The client passes arguments, environment, folder and descriptors to the
server, which forks a process that runs them. The client stays as a proxy of that process: signals go through
it, each ends with the other, and all end with the driver.

Each process imports Ray, and with it verl, itself: when loaded, Ray reads what the raylet sets for this
worker and seeds the random numbers of its identifiers. This is not for CUDA, which a forked process cannot
use once its parent has requested a device.
"""

import atexit
import fcntl
import gc
import importlib
import json
import logging
import multiprocessing.spawn
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from seele_verl.cpu import fork_client
from seele_verl.cpu.fork_client import HEADER, REPLY

PRELOADED = (
    *("torch", "torch._dynamo", "torch.utils.tensorboard", "transformers", "tensordict", "datasets", "peft"),
    *("scipy.stats", "vllm.v1.core.sched.scheduler", "vllm.entrypoints.openai.api_server"),
    "vllm.v1.worker.cpu_worker",
)
"""Modules that verl's processes spend most import time on; none of them imports Ray."""
MAX_DESCRIPTORS = 250
"""Most descriptors in a message; the kernel passes at most 253."""


@contextmanager
def forked_workers(config: DictConfig) -> Iterator[str]:
    """While open, Ray's workers in a CPU run of this configuration are forked from this process. Yields the
    executable that starts the run's processes in place of Python.
    """
    runtime_env = config.ray_kwargs.ray_init.runtime_env
    is_here = config.trainer.device == "cpu" and config.trainer.nnodes == 1
    if not is_here or runtime_env.py_executable or "ray" in sys.modules:
        yield sys.executable
        return
    preload()
    threads = sys.modules["torch"].get_num_threads()
    assert threads == int(os.environ["OMP_NUM_THREADS"]), "torch was imported before its variables were set"
    with fork_server() as executable:
        yield executable


def preload() -> None:
    """Import the modules that forked processes need."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert "ray" not in sys.modules, "a library that is imported before the fork imports Ray"


@contextmanager
def fork_server() -> Iterator[str]:
    """Yield the path of an executable that replaces Python while open; the processes that it runs start with
    the modules that this process has imported.
    """
    folder = Path(tempfile.mkdtemp(prefix="seele-fork-"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket"))
    listener.listen(128)
    lifeline, ours = os.pipe()
    executable = folder / "python"
    client = [sys.executable, "-I", "-S", fork_client.__file__, str(folder / "socket"), sys.executable]
    executable.write_text(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n')
    executable.chmod(0o700)
    before = multiprocessing.spawn.get_executable()
    multiprocessing.set_executable(str(executable))
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # a collection would copy every page that the processes share
    server = os.fork()
    if server == 0:
        try:
            os.setsid()  # Ctrl-C is for the driver
            close_all_but({0, 1, 2, listener.fileno(), lifeline})
            _Server(listener, lifeline).serve()
        finally:
            os._exit(1)
    listener.close()
    os.close(lifeline)
    try:
        yield str(executable)
    finally:
        gc.unfreeze()
        multiprocessing.set_executable(before)
        os.close(ours)
        os.waitpid(server, 0)


def close_all_but(kept: set[int]) -> None:
    """Close this process's descriptors except those in ``kept``."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


class _Server:
    def __init__(self, listener: socket.socket, lifeline: int) -> None:
        self.listener = listener
        self.folder = Path(listener.getsockname()).parent
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ, self.accept)
        # The driver's end of the pipe closes with the driver, however the driver ends.
        self.selector.register(lifeline, selectors.EVENT_READ, self.end)
        self.children: dict[int, tuple[int, socket.socket]] = {}
        """Descriptor of the process -> its process id and its client."""

    def serve(self) -> None:
        while True:
            for key, _ in self.selector.select():
                # An earlier event may have closed the descriptor, and another may have its number.
                if self.selector.get_map().get(key.fd) is key:
                    key.data(key.fd)

    def accept(self, _: int) -> None:
        connection, _ = self.listener.accept()
        try:
            request, descriptors = receive_request(connection)
        except (OSError, ValueError):
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)  # when a worker ends, Ray signals its whole group
            become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        process = os.pidfd_open(pid)
        self.children[process] = pid, connection
        self.selector.register(process, selectors.EVENT_READ, self.reap)
        self.selector.register(connection, selectors.EVENT_READ, lambda _: self.abandon(process))
        reply(connection, pid)

    def abandon(self, process: int) -> None:
        """Kill the process whose client is gone."""
        pid, connection = self.children[process]
        self.selector.unregister(connection)
        os.kill(pid, signal.SIGKILL)

    def reap(self, process: int) -> None:
        pid, connection = self.children.pop(process)
        _, status = os.waitpid(pid, 0)
        self.selector.unregister(process)
        os.close(process)
        if connection.fileno() in self.selector.get_map():
            self.selector.unregister(connection)
        reply(connection, status)
        connection.close()

    def end(self, _: int) -> NoReturn:
        for pid, _connection in self.children.values():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)


def reply(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # the client is gone; its closed connection is handled elsewhere
        connection.sendall(REPLY.pack(number))


def receive_request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a client's request, and its descriptors in the order in which the request names them.

    Raises:
        OSError, ValueError: The client died, or sent something else; none of its descriptors stay open.
    """
    connection.settimeout(10)
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, MAX_DESCRIPTORS)
    try:
        if len(header) < HEADER.size:
            raise OSError("the client went away")
        (size,) = HEADER.unpack(header)
        data = bytearray()
        while len(data) < size:
            part = connection.recv(size - len(data))
            if not part:
                raise OSError("the client went away")
            data += part
        connection.settimeout(None)
        return json.loads(data), descriptors
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def become(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Become the requested process; never return into the driver's frames."""
    status = 1
    try:
        take_over(request, descriptors)
        run_python(request["arguments"])
        status = 0
    except SystemExit as end:
        status = exit_status(end)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        try:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def take_over(request: dict[str, Any], descriptors: list[int]) -> None:
    """Set descriptors, signals, folder and environment as in a process started by the client."""
    if any("multiprocessing.spawn" in argument for argument in request["arguments"]):
        # vLLM's engine names itself through setproctitle, which finds where `ps` reads a title by the
        # environment that the kernel gave to the driver, replaced below. Ray's workers name themselves in
        # another way, which this would break.
        with suppress(ImportError):
            importlib.import_module("setproctitle").getproctitle()
    wanted = request["descriptors"]
    spare = [fcntl.fcntl(each, fcntl.F_DUPFD, max(wanted) + 1) for each in descriptors]
    for descriptor, number in zip(spare, wanted, strict=True):
        os.dup2(descriptor, number)
    close_all_but(set(wanted))
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Each has its own buffer, flushed line by line because the process may be killed.
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    python_path = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:0] = [each for each in python_path if each not in sys.path]
    logging.getLogger().handlers.clear()  # Hydra's
    GlobalHydra.instance().clear()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # as after an import: different numbers in every process


def run_python(arguments: list[str]) -> None:
    """Do what ``python ARGUMENTS...`` does; interpreter flags are the driver's."""
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-c", "-m"):
        rest = rest[2 if rest[0] in ("-X", "-W") else 1 :]
    if rest[0] == "-c":
        sys.argv = ["-c", *rest[2:]]
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        exec(compile(rest[1], "<string>", "exec"), module.__dict__)
    elif rest[0] == "-m":
        sys.argv = rest[1:]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = rest
        runpy.run_path(rest[0], run_name="__main__")


def exit_status(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    sys.stderr.write(f"{end.code}\n")
    return 1
