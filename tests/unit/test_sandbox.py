"""What a grading process can do no more. Each attempt is made in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seele.reward import sandbox

PROBE = """
import ctypes, os, resource, shutil, socket, subprocess, sys
from seele.reward import sandbox

sandbox.enter_nowhere()
sandbox.give_up(1024)
{attempt}
os._exit(42)
"""
SURVIVED = 42


def outcome(attempt: str, folder: Path) -> int:
    """Exit status of a process that attempts this once it is in the sandbox."""
    probe = PROBE.format(attempt=attempt)
    return subprocess.run(
        [sys.executable, "-c", probe], cwd=folder, capture_output=True, timeout=60
    ).returncode


@pytest.mark.parametrize(
    "attempt",
    ["pass", "import colorsys", "open('/proc/self/status').read()", "sum(range(10**6))", "eval('1+1')"],
)
def test_what_grading_needs_is_left(tmp_path, attempt):
    assert outcome(attempt, tmp_path) == SURVIVED


@pytest.mark.parametrize(
    "attempt",
    [
        "open('canary', 'w')",
        "open('{folder}/canary', 'w')",
        "os.open('{folder}/canary', os.O_CREAT)",
        "os.mkdir('{folder}/canary')",
        "os.symlink('/', '{folder}/canary')",
        "os.rename('{folder}/kept', '{folder}/canary')",
        "os.remove('{folder}/kept')",
        "os.chmod('{folder}/kept', 0)",
        "os.truncate('{folder}/kept', 0)",
        "os.system('touch {folder}/canary')",
        "subprocess.run(['touch', '{folder}/canary'])",
        "os.execv('/bin/sh', ['sh', '-c', 'touch {folder}/canary'])",
        "os.fork()",
        "os.kill(os.getppid(), 0)",
        "socket.socket()",
        "socket.getaddrinfo('localhost', 80)",
        "ctypes.CDLL(None)",
        "ctypes.string_at(0)",
        "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    ],
)
def test_everything_else_ends_the_process_and_leaves_no_trace(tmp_path, attempt):
    (tmp_path / "kept").write_text("kept")
    assert outcome(attempt.format(folder=tmp_path), tmp_path) == os.EX_NOPERM
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"kept": "kept"}


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        ("bytearray(2**31)", MemoryError),
        ("files = [open('/proc/self/status') for _ in range(99)]", OSError),
        ("os.mkfifo('canary')", AttributeError),
        ("os.getcwd()", FileNotFoundError),
        ("os.environ['PATH']", KeyError),
    ],
)
def test_memory_open_files_folder_and_environment_are_taken_away(tmp_path, attempt, error):
    attempt = f"try: {attempt}\nexcept {error.__name__}: os._exit(7)"
    assert outcome(attempt, tmp_path) == 7


def test_limits_that_are_tighter_already_are_kept(tmp_path):
    attempt = "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (9, 9)"
    probe = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))" + PROBE.format(
        attempt=attempt
    )
    assert subprocess.run([sys.executable, "-c", probe], cwd=tmp_path).returncode == SURVIVED


def test_there_is_no_network_where_the_kernel_lets_users_make_namespaces():
    tried = subprocess.run([*sandbox.NO_NETWORK, "cat", "/proc/net/dev"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this machine lets nobody leave the network: {tried.stderr.strip()}")
    assert [line.split(":")[0].strip() for line in tried.stdout.splitlines()[2:]] in ([], ["lo"])
    assert os.path.exists("/proc/net/dev")
