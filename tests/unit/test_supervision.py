"""Starting a run again after a fault, and telling it to stop."""

import getpass
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

import pytest

pytest.importorskip("omegaconf", reason="the training stack is not installed")

import psutil
from omegaconf import OmegaConf

from seele.report.run_folder import TRACKER
from seele_verl.runs import stopping, supervision
from seele_verl.runs.card import RUN_CARD, write_run_card
from seele_verl.runs.log import RunLog
from seele_verl.runs.scratch import scratch_folder
from seele_verl.runs.stopping import (
    STOPPED,
    has_stopped,
    is_asked_to_stop,
    note_stop,
    sigterm_stops,
)
from seele_verl.runs.supervision import (
    FAULT,
    RESTARTS,
    Progress,
    goes_on_arguments,
    gone_on,
    is_fault,
    reason_to_give_up,
    supervise,
)
from seele_verl.runs.watchdog import LIFE, Watchdog, show_life


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, False),
        (FAULT, True),
        (2, False),  # settings, or a user's own part
        (STOPPED, False),
        (-signal.SIGKILL, True),
        (-signal.SIGSEGV, True),
        (-signal.SIGINT, False),
        (-signal.SIGTERM, False),
        (130, False),
    ],
)
def test_what_a_run_is_started_again_after(status, expected):
    assert is_fault(status) is expected


def test_a_run_is_given_up_where_it_stops_twice_or_has_no_restart_left():
    at_7, at_9 = Progress("", 7), Progress("", 9)
    assert reason_to_give_up(at_7, None, restarts=0, allowed=1) is None
    assert reason_to_give_up(at_9, at_7, restarts=1, allowed=2) is None
    assert "twice after step 7" in reason_to_give_up(at_7, at_7, restarts=1, allowed=9)
    assert "trainer.max_restarts=1" in reason_to_give_up(at_9, at_7, restarts=1, allowed=1)
    assert reason_to_give_up(at_7, Progress("sft", 7), restarts=1, allowed=2) is None


class Drivers:
    """Stands in for drivers: each comes to a step, saves one, and ends with a status. The driver with index
    ``tells`` sends a signal to its parent first.
    """

    def __init__(self, run: Path, *ends: tuple[int | None, int | None, int]) -> None:
        self.run, self.ends, self.calls = run, list(ends), []
        self.tells: dict[int, int] = {}

    def __call__(self, command, environment, run, orders, *, watchdog_minutes):
        if sent := self.tells.get(len(self.calls)):
            with suppress(KeyboardInterrupt):  # there is no driver that could be interrupted
                signal.raise_signal(sent)
        step, saved, status = self.ends[len(self.calls)]
        self.calls.append((command[3:], environment[RESTARTS]))
        if step is not None:
            card = {"status": "failed", "error": "training stopped: node lost; see logs/train.log"}
            write_run_card(self.run, card if status == FAULT else {"status": "running"})
            RunLog(self.run).append(step, {})
        if saved is not None:
            (self.run / f"global_step_{saved}").mkdir(exist_ok=True)
            (self.run / TRACKER).write_text(str(saved))
        return status


@pytest.fixture
def drivers(tmp_path, monkeypatch):
    def stand_in(*ends: tuple[int | None, int | None, int]) -> Drivers:
        tmp_path.joinpath("run").mkdir()
        these = Drivers(tmp_path / "run", *ends)
        monkeypatch.setattr(supervision, "_run_driver", these)
        return these

    return stand_in


def supervised(run: Path, *, max_restarts: int) -> int:
    trainer = {"default_local_dir": str(run), "max_restarts": max_restarts, "watchdog_minutes": None}
    config = OmegaConf.create({"trainer": trainer | {"resume_mode": "disable"}})
    return supervise(config, ["trainer.resume_mode=disable"])


LOST, KILLED = "The last fault: training stopped: node lost\n", "The last fault: signal SIGKILL\n"
GOES_ON = ["trainer.resume_mode=auto", "trainer.resume_from_path=null"]


def test_a_run_that_stops_goes_on_from_its_own_checkpoint(drivers, capsys):
    these = drivers((3, None, -signal.SIGKILL), (5, 4, FAULT), (9, 8, 0))
    assert supervised(these.run, max_restarts=3) == 0
    first = ["trainer.resume_mode=disable"]
    assert these.calls == [(first, "0"), (first, "1"), (first + GOES_ON, "2")]
    assert capsys.readouterr().err.splitlines() == [
        "the driver ended with signal SIGKILL after step 3; restart 1 of 3",
        "the driver ended with status 1 after step 5; restart 1 of 3",
    ]


def test_a_restart_that_ends_before_it_begins_is_not_a_fault_at_the_same_step(drivers):
    these = drivers((3, 2, FAULT), (None, None, FAULT), (9, 8, 0))
    assert supervised(these.run, max_restarts=3) == 0 and len(these.calls) == 3


def test_each_new_checkpoint_allows_the_restarts_anew(drivers, capsys):
    faults = [(step, saved, FAULT) for step, saved in [(3, 2), (4, 2), (7, 6), (8, 6), (9, 6)]]
    assert supervised(drivers(*faults).run, max_restarts=2) == FAULT
    said = capsys.readouterr().err.splitlines()
    assert [line.rpartition("; ")[2] for line in said[:4]] == [f"restart {n} of 2" for n in (1, 2, 1, 2)]
    assert "trainer.max_restarts=2 allows no more restarts from one checkpoint" in said[4]


def test_a_clock_that_was_set_back_between_the_stages_changes_nothing(drivers, capsys):
    these = drivers((3, 2, FAULT), (4, 2, FAULT), (9, 8, 0))
    first_card = these.run / "sft" / RUN_CARD
    write_run_card(first_card.parent, {"status": "finished"})
    RunLog(first_card.parent).append(30, {})
    later_ns = first_card.stat().st_mtime_ns + 3_600 * 10**9
    os.utime(first_card, ns=(later_ns, later_ns))
    assert supervised(these.run, max_restarts=3) == 0
    assert "after step 4; restart 2 of 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ends", "allowed", "status", "says"),
    [
        (
            [(3, 2, FAULT), (3, 2, FAULT)],
            9,
            FAULT,
            "twice after step 3, so it would stop there again. " + LOST,
        ),
        (
            [(3, 2, FAULT), (4, 2, -signal.SIGKILL)],
            1,
            137,
            "=1 allows no more restarts from one checkpoint. " + KILLED,
        ),
        ([(3, 2, FAULT), (4, 4, STOPPED)], 1, STOPPED, "restart 1 of 1"),
        ([(None, None, FAULT)], 3, FAULT, ""),  # before the run began
        ([(None, None, 2)], 3, 2, ""),
    ],
)
def test_a_run_that_is_not_started_again_says_why(drivers, capsys, ends, allowed, status, says):
    these = drivers(*ends)
    assert supervised(these.run, max_restarts=allowed) == status
    assert len(these.calls) == len(ends)
    said = capsys.readouterr().err
    assert says in said if says else said == ""


@pytest.mark.parametrize(
    ("sent", "ends", "status"),
    [
        (signal.SIGTERM, [(3, 2, FAULT), (5, 4, -signal.SIGKILL)], STOPPED),
        (signal.SIGTERM, [(None, None, FAULT)], STOPPED),  # before the run began
        (signal.SIGTERM, [(3, 2, 0)], 0),
        (signal.SIGTERM, [(3, 2, -signal.SIGTERM)], STOPPED),  # before it could hear
        (signal.SIGTERM, [(3, 2, 143)], 143),  # told again
        (signal.SIGINT, [(3, 2, FAULT)], 130),
        (signal.SIGHUP, [(3, 2, FAULT)], STOPPED),  # its terminal is gone
    ],
)
def test_a_run_that_was_told_to_stop_is_not_started_again(drivers, sent, ends, status):
    these = drivers(*ends, (9, 8, 0))
    these.tells = {len(ends) - 1: sent}
    ours = signal.default_int_handler
    before = signal.signal(sent, ours)  # pytest may have been started with interrupts ignored
    try:
        assert supervised(these.run, max_restarts=9) == status
        assert len(these.calls) == len(ends)
        assert signal.getsignal(sent) is ours
    finally:
        signal.signal(sent, before)


def test_a_run_that_its_terminal_may_not_end_is_not_told(drivers):
    these = drivers((3, 2, FAULT), (9, 8, 0))
    these.tells = {0: signal.SIGHUP}
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert supervised(these.run, max_restarts=9) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_folder_that_is_out_of_reach_for_a_while_ends_no_run(drivers, monkeypatch):
    pauses, failures = [], cycle([True, False])
    monkeypatch.setattr(time, "sleep", pauses.append)

    def out_of_reach_at_first(read):
        def attempt(folder):
            if next(failures):
                raise OSError(116, "Stale file handle")
            return read(folder)

        return attempt

    for name in ("last_step", "last_complete_step", "read_run_card"):
        monkeypatch.setattr(supervision, name, out_of_reach_at_first(getattr(supervision, name)))
    these = drivers((3, 2, FAULT), (3, 2, FAULT), (4, 2, FAULT))
    assert supervised(these.run, max_restarts=9) == FAULT
    assert len(these.calls) == 2 and these.calls[1][0][1:] == GOES_ON
    assert set(pauses) == {supervision.READ_PAUSE_S}

    def out_of_reach(folder):
        raise OSError(116, "Stale file handle")

    pauses.clear()
    monkeypatch.setattr(supervision, "last_step", out_of_reach)
    with pytest.raises(OSError, match="Stale"):
        supervised(these.run, max_restarts=9)
    assert sum(pauses) == pytest.approx(60, abs=10), "about a minute"


@pytest.mark.parametrize(
    ("job", "restarts", "says_so", "goes_on"),
    [
        ("41", "1", None, True),
        ("41", "0", None, False),
        ("41", None, None, False),
        ("7", "1", None, False),  # an earlier job's run, which this one was told to replace
        (None, None, "1", True),
        (None, None, "0", False),
    ],
)
def test_a_command_that_a_launcher_gives_again_goes_on_from_its_own_checkpoint(
    tmp_path, monkeypatch, job, restarts, says_so, goes_on
):
    variables = {"SLURM_JOB_ID": "41", "SLURM_RESTART_COUNT": restarts, "SEELE_GOES_ON": says_so}
    for name, value in variables.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    typed = ["trainer.resume_mode=resume_path", "trainer.resume_from_path=RUN/global_step_2"]
    trainer = {"resume_mode": "resume_path", "resume_from_path": "RUN/global_step_2"}
    config = OmegaConf.create({"trainer": trainer | {"default_local_dir": str(tmp_path)}})
    write_run_card(tmp_path, {"job": job})
    assert gone_on(config, typed) == (config, typed), "nothing is saved yet"
    (tmp_path / "global_step_4").mkdir()
    (tmp_path / TRACKER).write_text("4")
    changed, arguments = gone_on(config, typed)
    assert arguments == (typed + GOES_ON if goes_on else typed)
    mode = ("auto", None) if goes_on else ("resume_path", "RUN/global_step_2")
    assert (changed.trainer.resume_mode, changed.trainer.resume_from_path) == mode


def test_a_named_checkpoint_is_needed_until_the_second_stage_has_one(tmp_path):
    for mode, goes_on in (("disable", GOES_ON), ("resume_path", [])):
        (tmp_path / "sft" / "global_step_3").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sft" / TRACKER).write_text("3")
        config = OmegaConf.create({"trainer": {"resume_mode": mode}})
        assert goes_on_arguments(config, tmp_path) == goes_on
    (tmp_path / "global_step_4").mkdir()
    (tmp_path / TRACKER).write_text("4")
    assert goes_on_arguments(config, tmp_path) == GOES_ON


def test_an_old_run_in_the_folder_is_not_taken_for_one_that_began(drivers):
    these = drivers((None, None, FAULT))
    write_run_card(these.run, {"status": "finished"})
    assert supervised(these.run, max_restarts=3) == FAULT
    assert len(these.calls) == 1


PARENT = """
import os, sys
from pathlib import Path
from seele_verl.runs import stopping, supervision
supervision.POLL_S = supervision.GRACE_S = 0.5
_, run, minutes, driver = sys.argv
found = supervision._descendants
def say_what_is_found(pid):
    family = found(pid)
    print("family", len(family), file=sys.stderr, flush=True)
    return family
supervision._descendants = say_what_is_found
# A loaded machine may take longer to start the driver than the watchdog waits.
silent_minutes = supervision.Watchdog.silent_minutes
supervision.Watchdog.silent_minutes = lambda self: silent_minutes(self) * Path(run, "ready").exists()
command = [sys.executable, "-c", driver]
with supervision.heard_orders() as orders:
    minutes = float(minutes)
    status = supervision._run_driver(command, dict(os.environ), Path(run), orders, watchdog_minutes=minutes)
print("status", status, "told", orders.told)
"""
DRIVER = """
import os, signal, subprocess, sys, time
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen(["VLLM::Worker_TP0", "-c", deaf], executable=sys.executable, start_new_session=True)
print(os.getpid(), child.pid, flush=True)
def stand_still():
    time.sleep(600)
stand_still()
"""


def hear_interrupts() -> None:
    """A background job, as which tests may run, ignores interrupts or hangups, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def parent_of(driver: str, run: Path, *, watchdog_minutes: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PARENT, str(run), str(watchdog_minutes), driver]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, process_group=0, preexec_fn=hear_interrupts
    ) as parent:
        try:
            yield parent
        finally:
            parent.kill()


def wait_for_the_end_of(pid: int) -> None:
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)


def test_the_driver_hears_sigterm_and_what_outlives_it_is_killed(tmp_path):
    with parent_of(DRIVER, tmp_path, watchdog_minutes=60) as parent:
        _, child = map(int, parent.stdout.readline().split())
        while parent.stderr.readline() != "family 1\n":
            pass
        parent.terminate()
        assert parent.stdout.read().strip() == f"status -{signal.SIGTERM.value} told {signal.SIGTERM.value}"
        wait_for_the_end_of(child)


GROUP = """
import os, signal, subprocess, sys, time
from pathlib import Path
from seele_verl.runs import stopping
wait = "import time; time.sleep(600)"
ray = subprocess.Popen([sys.executable, "-c", wait])
with stopping.sigterm_stops(Path(".")):
    print(os.getpid(), ray.pid, flush=True)
    while not stopping.is_asked_to_stop(Path(".")):
        time.sleep(0.05)
    time.sleep(1)
    status = 3 if ray.poll() is None and not sys.stdin.read() else 4
ray.kill()
sys.exit(status)
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_parents_group_is_one_request_and_leaves_ray_alone(tmp_path, monkeypatch, sent):
    monkeypatch.chdir(tmp_path)
    with parent_of(GROUP, tmp_path, watchdog_minutes=60) as parent:
        parent.stdout.readline()
        # As `timeout` does: first its child, then the group. A shell whose terminal is gone does so too.
        os.kill(parent.pid, sent)
        time.sleep(0.3)
        os.killpg(parent.pid, sent)
        assert parent.stdout.read().strip() == f"status 3 told {signal.SIGTERM.value}"


def test_an_interrupt_reaches_the_drivers_whole_group(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with parent_of(GROUP, tmp_path, watchdog_minutes=60) as parent:
        _, ray = map(int, parent.stdout.readline().split())
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stdout.read().strip() == f"status -{signal.SIGINT.value} told {signal.SIGINT.value}"
        wait_for_the_end_of(ray)


def test_the_driver_pauses_with_its_parent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def wait_until_stopped(pid: int, expected: bool) -> None:
        while (psutil.Process(pid).status() == psutil.STATUS_STOPPED) is not expected:
            time.sleep(0.05)

    with parent_of(GROUP, tmp_path, watchdog_minutes=60) as parent:
        pids = [parent.pid, *map(int, parent.stdout.readline().split())]
        os.killpg(parent.pid, signal.SIGTSTP)
        for pid in pids:
            wait_until_stopped(pid, True)
        os.killpg(parent.pid, signal.SIGCONT)
        for pid in pids:
            wait_until_stopped(pid, False)
        parent.terminate()
        assert parent.stdout.read().startswith("status 3")


def test_the_driver_ends_with_its_parent(tmp_path):
    with parent_of(DRIVER, tmp_path, watchdog_minutes=60) as parent:
        pid, child = map(int, parent.stdout.readline().split())
        parent.kill()
        wait_for_the_end_of(pid)
    os.kill(child, signal.SIGKILL)  # the fork server of a run looks after such


def test_a_driver_that_stands_still_is_ended_and_where_it_stood_is_written(tmp_path):
    with parent_of(DRIVER, tmp_path, watchdog_minutes=0.02) as parent:
        pids = parent.stdout.readline().split()
        (tmp_path / "ready").touch()
        assert parent.stdout.read().strip() == f"status -{signal.SIGKILL.value} told None"
        assert "no sign of life for" in parent.stderr.read()
    stacks = (tmp_path / "logs" / "stacks.txt").read_text()
    assert re.search(rf"--- process {pids[0]}, idle for [0-9.]+ minutes: ", stacks)
    assert re.search(rf"--- process {pids[1]}, idle for [0-9.]+ minutes: VLLM::Worker_TP0 ", stacks)
    assert "stand_still" in stacks or "permission" in stacks.lower()


def test_a_driver_that_stands_still_is_ended_where_its_stacks_cannot_be_written(tmp_path):
    (tmp_path / "logs").touch()
    with parent_of(DRIVER, tmp_path, watchdog_minutes=0.02) as parent:
        assert parent.stdout.readline()
        (tmp_path / "ready").touch()
        assert parent.stdout.read().strip() == f"status -{signal.SIGKILL.value} told None"
        assert "no sign of life for 0 minutes; its stacks are not written: [Errno " in parent.stderr.read()


def test_life_is_a_file_that_changes_whatever_the_clocks_say(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    (tmp_path / "logs").mkdir()
    watchdog = Watchdog(tmp_path)
    now = 120.0
    assert watchdog.silent_minutes() == 0
    now = 240.0
    assert watchdog.silent_minutes() == 2
    show_life(tmp_path)
    os.utime(tmp_path / LIFE, (1, 1))  # written by a machine whose clock is far behind
    assert watchdog.silent_minutes() == 0
    now = 300.0
    assert watchdog.silent_minutes() == 1
    (tmp_path / "sft").mkdir()
    RunLog(tmp_path / "sft").append(1, {})
    assert watchdog.silent_minutes() == 0


def test_files_that_cannot_be_looked_at_count_as_unchanged(tmp_path, monkeypatch):
    now, stat = 0.0, Path.stat
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def out_of_reach(path, **_):
        raise OSError(116, "Stale file handle")

    (tmp_path / "logs").mkdir()
    show_life(tmp_path)
    watchdog = Watchdog(tmp_path)
    assert watchdog.silent_minutes() == 0
    now = 120.0
    monkeypatch.setattr(Path, "stat", out_of_reach)
    assert watchdog.silent_minutes() == 2
    now = 180.0
    monkeypatch.setattr(Path, "stat", stat)
    assert watchdog.silent_minutes() == 3


def test_a_process_that_does_not_compute_is_idle(tmp_path, monkeypatch):
    now, spent = 0.0, {"one": 5.0, "other": 7.0}
    monkeypatch.setattr(time, "monotonic", lambda: now)

    class Process:
        def __init__(self, name):
            self.name = name

        def cpu_times(self):
            if spent[self.name] is None:
                raise psutil.NoSuchProcess(1)
            return (spent[self.name], 1.0, 0.0)

    one, other = Process("one"), Process("other")
    watchdog = Watchdog(tmp_path)
    assert watchdog.idle_minutes(one) is None
    watchdog.watch([one, other])
    assert watchdog.silent_minutes() == 0
    now, spent["one"] = 60.0, 6.0
    watchdog.watch([one, other])
    now = 180.0
    assert (watchdog.idle_minutes(one), watchdog.idle_minutes(other)) == (2, 3)
    watchdog.watch([one, other])  # nobody looked for two minutes: all of this was suspended
    assert (watchdog.idle_minutes(one), watchdog.idle_minutes(other)) == (0, 1)
    assert watchdog.silent_minutes() == 1
    now, spent["other"] = 240.0, None  # it has ended
    watchdog.watch([one, other])
    assert (watchdog.idle_minutes(one), watchdog.idle_minutes(other)) == (1, None)
    assert watchdog.silent_minutes() == 2


def test_sigterm_leaves_a_note_and_a_later_one_ends_the_process(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    with sigterm_stops(tmp_path):
        assert not is_asked_to_stop(tmp_path)
        os.kill(os.getpid(), signal.SIGTERM)
        assert is_asked_to_stop(tmp_path) and not has_stopped(tmp_path)
        os.kill(os.getpid(), signal.SIGTERM)  # a moment later: the same request
        assert not has_stopped(tmp_path)
        note_stop(tmp_path)
        monkeypatch.setattr(stopping, "AGAIN_S", 0.0)
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    with sigterm_stops(tmp_path):  # the next start
        assert not is_asked_to_stop(tmp_path) and not has_stopped(tmp_path)


def test_temporary_files_of_a_run_go_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/tmp")
    kept = ("RAY_TMPDIR", "TORCHINDUCTOR_CACHE_DIR")
    for name in kept:
        monkeypatch.delenv(name, raising=False)
    ask = f"import os, tempfile; print(tempfile.mkdtemp(), *map(os.environ.get, {kept}))"
    # The driver's parent has one, and the driver uses it.
    with scratch_folder() as outer, scratch_folder() as inner:
        said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
        left, ray, kernels = said.split()
        assert Path(left).parent == Path(inner) == Path(outer)
        assert Path(outer).parent == Path(ray) == Path(kernels).parent == Path("/tmp")
    assert not Path(outer).exists()
    assert tempfile.gettempdir() == "/tmp" and not os.environ.keys() & {*kept}


@pytest.fixture
def short_folder():
    """A folder that may be TMPDIR, where no other start looks for what to remove."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


def test_the_folder_of_a_killed_run_is_removed_by_the_next_and_no_other(short_folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", short_folder)
    program = "from seele_verl.runs.scratch import scratch_folder\nwith scratch_folder() as folder:\n"
    program += "    print(folder, flush=True)\n    input()"
    ask = [sys.executable, "-c", program]
    lives, dies = (
        subprocess.Popen(ask, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)
    )
    kept, left = (Path(process.stdout.readline().strip()) for process in (lives, dies))
    dies.kill()
    dies.wait()
    with tempfile.TemporaryDirectory(prefix="seele-", dir=short_folder) as foreign:
        assert left.is_dir()
        with scratch_folder():
            assert not left.exists() and kept.is_dir() and Path(foreign).is_dir()
    lives.communicate("\n")
    assert not kept.exists()


def test_sockets_have_room_in_a_run_of_a_long_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert len(str(tmp_path)) > 40
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    with scratch_folder() as folder:
        assert Path(folder).parent == Path("/tmp") == Path(os.environ["RAY_TMPDIR"])


def test_a_user_without_a_name_has_a_folder_of_compiled_kernels(monkeypatch):
    def getuser():
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", getuser)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with scratch_folder():
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith(f"/torchinductor_uid_{os.getuid()}")


def test_the_harness_of_faults_finds_what_differs_or_stays(tmp_path):
    run = runpy.run_path(str(Path(__file__).parents[1] / "faults" / "run.py"))
    assert run["is_same"](["run_0", "yes", "20 of 20", "7 of 7"])
    assert not run["is_same"](["run_0", "no", "20 of 20", "7 of 7"])
    assert not run["is_same"](["run_0", "yes", "20 of 20", "6 of 7"])
    assert not run["is_same"](["run_0", "yes", "20 of 20", "0 of 0"])
    before = run["processes"](tmp_path)
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)", "-m", "seele.reward.worker", "x"]
    with subprocess.Popen(sleeps) as left:
        found = run["processes"](tmp_path) - before
        left.kill()
    assert psutil.Process(os.getpid()) not in found
    assert left.pid in {each.pid for each in found}
