"""A process that the fork server makes behaves as one that Python starts: its input, its output, its end."""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("omegaconf", reason="needs the bindings' libraries")

import psutil

from seele_verl.cpu.fork_client import HEADER
from seele_verl.cpu.fork_server import _Server, receive_request

LAUNCHER = """
import sys, colorsys
from seele_verl.cpu.fork_server import fork_server
with fork_server() as executable:
    print(executable, flush=True)
    sys.stdin.read()
"""
SLEEP = "import os, time; print(os.getpid(), flush=True)\nwhile True: time.sleep(0.1)"
"""Short sleeps, because Python sleeps on when an interrupt comes just before the sleep begins."""


@contextmanager
def started() -> Iterator[tuple[subprocess.Popen, str]]:
    """A process with a fork server, and the path that it gave out."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", LAUNCHER], **pipes) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def driver():
    """One of the test's own, to end."""
    with started() as process_and_path:
        yield process_and_path


@pytest.fixture(scope="module")
def python():
    with started() as (_, path):
        yield path


def is_gone(pid: int, timeout_s: float = 30) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def sleeper(python: str) -> tuple[subprocess.Popen, int]:
    """A process that sleeps, as its parent sees it, and its own number."""
    process = subprocess.Popen([python, "-c", SLEEP], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


def test_arguments_environment_folder_and_pipes_arrive(python, tmp_path):
    code = "import os, sys; print(sys.argv, os.environ['A'], os.getcwd(), sys.stdin.read()); sys.exit(3)"
    command = [python, "-u", "-X", "utf8", "-c", code, "x", "y z"]
    result = subprocess.run(
        command, input="in", capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"A": "b"}
    )
    assert result.stdout == f"['-c', 'x', 'y z'] b {tmp_path} in\n"
    assert result.returncode == 3


def test_what_the_driver_has_imported_is_there_and_no_import_is_repeated(python):
    command = [python, "-c", "import sys; print('colorsys' in sys.modules, 'turtle' in sys.modules)"]
    assert subprocess.check_output(command, text=True) == "True False\n"


def test_scripts_and_modules_run_as_main(python, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(__name__, sys.argv)")
    assert subprocess.check_output([python, script, "a"], text=True) == f"__main__ ['{script}', 'a']\n"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    output = subprocess.check_output([python, "-m", "script", "a"], text=True, env=environment)
    assert output == f"__main__ ['{script}', 'a']\n"


def test_errors_and_parting_words_are_those_of_python(python):
    for code in ("1 / 0", "import sys; sys.exit('no')", "import os; os._exit(7)", "raise SystemExit(None)"):
        ours, theirs = (
            subprocess.run([executable, "-c", code], capture_output=True, text=True)
            for executable in (python, sys.executable)
        )
        assert ours.returncode == theirs.returncode, code
        assert ours.stderr.splitlines()[-1:] == theirs.stderr.splitlines()[-1:], code


def test_handlers_at_exit_and_threads_are_waited_for(python):
    code = """
import atexit, threading, time
atexit.register(print, "bye")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
"""
    assert subprocess.check_output([python, "-c", code], text=True) == "thread\nbye\n"


def test_descriptors_keep_their_numbers(python):
    read, write = os.pipe()
    code = f"import os; os.write({write}, b'through'); os.close({write})"
    subprocess.run([python, "-c", code], pass_fds=(write,), check=True)
    os.close(write)
    assert os.read(read, 100) == b"through" and os.read(read, 100) == b""
    os.close(read)


def test_signals_go_through_and_tell_how_it_ended(python):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        process, pid = sleeper(python)
        process.send_signal(number)
        assert process.wait(10) == -number
        assert is_gone(pid)


def test_a_stand_in_that_is_killed_takes_its_process_along(python):
    process, pid = sleeper(python)
    process.kill()
    assert is_gone(pid)


def test_a_process_that_is_killed_takes_its_stand_in_along(python):
    process, pid = sleeper(python)
    os.kill(pid, signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_nothing_outlives_the_driver(driver, how):
    parent, python = driver
    process, pid = sleeper(python)
    if how == "killed":
        parent.kill()
    else:
        parent.stdin.close()
    assert is_gone(pid)
    assert process.wait(10) != 0
    deadline = time.monotonic() + 10
    while Path(python).parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_without_a_server_it_is_python(driver):
    parent, python = driver
    (server,) = psutil.Process(parent.pid).children()
    server.kill()
    assert is_gone(server.pid)
    command = [python, "-c", "import sys; print('colorsys' in sys.modules, sys.argv)", "a"]
    assert subprocess.check_output(command, text=True) == "False ['-c', 'a']\n"


def test_a_client_that_dies_before_its_request_ends_no_other_process(python):
    process, pid = sleeper(python)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(Path(python).parent / "socket"))
    assert (
        subprocess.check_output([python, "-c", "import sys; print('colorsys' in sys.modules)"]) == b"True\n"
    )
    assert process.poll() is None and psutil.pid_exists(pid)
    process.kill()


@pytest.mark.parametrize("said", [b"\0", HEADER.pack(9) + b"{}", HEADER.pack(2) + b"no"])
def test_descriptors_of_an_unfinished_request_are_closed(said):
    server, client = socket.socketpair()
    with server, client:
        socket.send_fds(client, [said], [client.fileno(), client.fileno()])
        client.shutdown(socket.SHUT_WR)
        before = os.listdir("/proc/self/fd")
        with pytest.raises((OSError, ValueError)):
            receive_request(server)
        assert os.listdir("/proc/self/fd") == before


def test_multiprocessing_spawns_through_it():
    code = """
import multiprocessing
from seele_verl.cpu.fork_server import fork_server
with fork_server():
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=print, args=("printed",))
    process.start(); process.join()
    print(process.exitcode)
    process = context.Process(target=__import__("time").sleep, args=(100,))
    process.start(); process.terminate(); process.join()
    print(process.exitcode)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("printed\n0\n-15\n", "")


def test_an_event_of_a_closed_descriptor_never_reaches_the_one_that_took_its_number(tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()
    lifeline, driver = os.pipe()
    quiet, _ = os.pipe2(os.O_NONBLOCK)
    server = _Server(listener, lifeline)
    pipes = [os.pipe(), os.pipe()]
    handled = []

    def replace_the_other(descriptor: int) -> None:
        """Close the other pipe's end, whose event waits in the same batch, and reuse its number."""
        handled.append(os.read(descriptor, 1))
        (other,) = {read for read, _ in pipes} - {descriptor}
        server.selector.unregister(other)
        os.dup2(quiet, other)
        server.selector.register(other, selectors.EVENT_READ, handled.append)
        os.close(driver)  # the lifeline's event ends the loop

    server.end = lambda _: sys.exit()
    server.selector.modify(lifeline, selectors.EVENT_READ, server.end)
    for read, write in pipes:
        os.write(write, b"x")
        server.selector.register(read, selectors.EVENT_READ, replace_the_other)
    with pytest.raises(SystemExit):
        server.serve()
    assert handled == [b"x"]
