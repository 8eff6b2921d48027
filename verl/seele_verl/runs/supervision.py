"""A parent of the driver that restarts a run after a fault. It holds no state of the run.

    seele train ... trainer.max_restarts=3

A fault means that a signal ended the driver, or that the driver reports that a started run failed. Bad
settings, a user's own part that raises, and a run that was asked to stop are not faults. The driver ends with
its parent.

The driver has a process group of its own, so that a signal to the parent's group (``timeout``, ``kill %1``,
Ctrl-C) reaches it once and does not end Ray, whose processes are in the driver's group.
"""

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TypeVar

import psutil
from omegaconf import DictConfig

from seele.child import Handler, handling
from seele.report.run_folder import FIRST_STAGE
from seele_verl.changes import with_changes
from seele_verl.runs.card import RUN_CARD, read_run_card
from seele_verl.runs.checkpoints import last_complete_step
from seele_verl.runs.log import last_step
from seele_verl.runs.scratch import scratch_folder
from seele_verl.runs.stopping import STOPPED
from seele_verl.runs.watchdog import Watchdog, write_stacks

RESTARTS = "SEELE_RESTARTS"
"""Variable of a driver that has a parent: how often the run was restarted."""
GOES_ON = "SEELE_GOES_ON"
"""Variable that a launcher sets to 1 when it repeats the command of a run that had begun."""
FROM_LAST_CHECKPOINT = ("trainer.resume_mode=auto", "trainer.resume_from_path=null")
"""Overrides under which a command resumes from its run's last checkpoint."""
FAULT = 1
"""Exit status of a driver whose run had started and failed."""
POLL_S = 1.0
GRACE_S = 10.0
"""Time that processes have to end by themselves, after their driver."""
READS, READ_PAUSE_S = 12, 5.0
"""How often the run folder is read, and the time between: its file system may be out of reach for a while."""
ON_PARENTS_DEATH = 1
"""PR_SET_PDEATHSIG of ``prctl``."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    stage: str
    """The stage's folder in the run folder, "" for the run itself."""
    step: int
    """The last step with a line in ``metrics.jsonl``, 0 for none."""


class Orders:
    """Signals to this process; it remembers those that end the run, and passes them on to its driver."""

    def __init__(self) -> None:
        self.told: int | None = None
        """The last SIGTERM or SIGINT; SIGTERM after a SIGHUP."""
        self._driver: subprocess.Popen[bytes] | None = None

    def follow(self, driver: "subprocess.Popen[bytes]") -> None:
        """Pass on to ``driver`` what comes from now on, and a SIGTERM that came before."""
        self._driver = driver
        if self.told is not None:
            driver.terminate()

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """Send the driver alone SIGTERM; it saves with the help of its other processes."""
        self.told = signal.SIGTERM
        if self._driver is not None:
            self._driver.terminate()

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the driver's group, as Ctrl-C would if it were in the terminal's foreground."""
        self.told = number
        if not self._signal_group(number):
            raise KeyboardInterrupt

    def pause(self, number: int, frame: FrameType | None) -> None:
        """Stop the driver's group and this process until this process is continued."""
        self._signal_group(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._signal_group(signal.SIGCONT)

    def _signal_group(self, number: int) -> bool:
        """Return False if there is no driver."""
        if self._driver is None or self._driver.poll() is not None:
            return False
        with suppress(ProcessLookupError):
            os.killpg(self._driver.pid, number)
        return True


@contextmanager
def heard_orders() -> Iterator[Orders]:
    """While open, signals to this process are orders; for its main thread. Ignored ones stay ignored."""
    orders = Orders()
    handlers: dict[int, Handler] = {
        signal.SIGTERM: orders.terminate,
        signal.SIGHUP: orders.terminate,
        signal.SIGINT: orders.interrupt,
        signal.SIGTSTP: orders.pause,
    }
    with handling(handlers):
        yield orders


def has_parent() -> bool:
    """True if this driver has a parent."""
    return RESTARTS in os.environ


def num_restarts() -> int:
    """Return how often this driver's run was restarted."""
    return int(os.environ.get(RESTARTS, 0))


def is_fault(status: int) -> bool:
    """True if a driver that ended with ``status``, as given by ``subprocess``, is restarted."""
    return status == FAULT or (status < 0 and -status not in (signal.SIGINT, signal.SIGTERM))


def reason_to_give_up(now: Progress, before: Progress | None, *, restarts: int, allowed: int) -> str | None:
    """Return why a run that stopped is not restarted; None if it is.

    Args:
        now: Where it stopped.
        before: Where it stopped the last time.
        restarts: How often it was restarted since its last checkpoint.
        allowed: ``trainer.max_restarts``.
    """
    if now == before:
        return f"it stopped twice after step {now.step}, so it would stop there again"
    if restarts >= allowed:
        return f"trainer.max_restarts={allowed} allows no more restarts from one checkpoint"
    return None


def supervise(config: DictConfig, arguments: Sequence[str]) -> int:
    """Run the driver, and restart it after a fault while ``trainer.max_restarts`` allows.

    Args:
        config: The run's configuration.
        arguments: The driver's arguments.

    Returns:
        The exit status of the last driver; ``STOPPED`` if a fault or SIGTERM ended it after SIGTERM.
    """
    with heard_orders() as orders:
        return _supervise(config, arguments, orders)


def _supervise(config: DictConfig, arguments: Sequence[str], orders: Orders) -> int:
    run, stage, used = Path(config.trainer.default_local_dir).resolve(), "", 0
    before, saved_before = None, None
    allowed, minutes = config.trainer.max_restarts, config.trainer.watchdog_minutes or math.inf
    cards = _cards(run)
    for restarts in count():
        goes_on = _patiently(partial(goes_on_arguments, config), run) if restarts else []
        command = [sys.executable, "-m", "seele_verl.train", *arguments, *goes_on]
        with scratch_folder():
            environment = os.environ | {RESTARTS: str(restarts)}
            status = _run_driver(command, environment, run, orders, watchdog_minutes=minutes)
        as_a_shell_has_it = 128 - status if status < 0 else status
        # SIGTERM ends a driver that does not listen yet, or is between two stages.
        is_stopped = orders.told == signal.SIGTERM == -status
        cards_now = _patiently(_cards, run)
        written = [each for each, when in cards_now.items() if cards.get(each) != when]
        never_began = cards_now == cards and not restarts and orders.told is None
        if not is_stopped and (not is_fault(status) or never_began):
            return as_a_shell_has_it
        # In one driver's life, the first stage comes first.
        stage = next(iter(written), stage)
        now = Progress(stage, _patiently(last_step, run / stage))
        saved = (stage, _patiently(last_complete_step, run / stage))
        said = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        stopped = f"the driver ended with {said} after step {now.step}"
        if orders.told is not None:
            sys.stderr.write(f"{stopped}; the run is not restarted: it was told to stop\n")
            return STOPPED if orders.told == signal.SIGTERM else 128 + orders.told
        used = used if saved == saved_before else 0
        # A driver that ended before it wrote a card did not get to where the last one stopped.
        earlier: Progress | None = before if written else None
        if why := reason_to_give_up(now, earlier, restarts=used, allowed=allowed):
            card = _patiently(read_run_card, run / stage) if written else {}
            error = card.get("error", said).partition("; see ")[0]
            sys.stderr.write(f"{stopped}; the run is not restarted: {why}. The last fault: {error}\n")
            return as_a_shell_has_it
        used += 1
        sys.stderr.write(f"{stopped}; restart {used} of {allowed}\n")
        before, saved_before, cards = now, saved, cards_now
    raise AssertionError("the loop ends by returning")


def has_saved(run: Path) -> bool:
    """True if the run, or its first stage, has a checkpoint."""
    return any(last_complete_step(folder) is not None for folder in (run, run / FIRST_STAGE))


def goes_on_arguments(config: DictConfig, run: Path) -> list[str]:
    """Return extra driver arguments, to resume from a checkpoint that the run has made itself."""
    # Such a path is of the second stage's checkpoint, which it needs until it has one of its own.
    needs_path = config.trainer.resume_mode == "resume_path" and last_complete_step(run) is None
    return [*FROM_LAST_CHECKPOINT] if has_saved(run) and not needs_path else []


def is_given_again(run: Path) -> bool:
    """True if a launcher repeats the command of a run that had begun: it says so, or is a Slurm job that was
    queued again, which keeps its number. What an earlier job left in the folder is another run's.
    """
    is_requeued = int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0
    jobs = (read_run_card(folder).get("job") for folder in (run, run / FIRST_STAGE))
    return os.environ.get(GOES_ON) == "1" or (is_requeued and os.environ.get("SLURM_JOB_ID") in jobs)


def gone_on(config: DictConfig, arguments: Sequence[str]) -> tuple[DictConfig, list[str]]:
    """Return the driver's configuration and arguments with ``goes_on_arguments`` if its command is given
    again.
    """
    run = Path(config.trainer.default_local_dir).resolve()
    if not is_given_again(run) or not (goes_on := goes_on_arguments(config, run)):
        return config, [*arguments]
    changes = {"trainer.resume_mode": "auto", "trainer.resume_from_path": None}
    return with_changes(config, changes), [*arguments, *goes_on]


def _patiently(read: Callable[[Path], T], folder: Path) -> T:
    """Return what ``read`` finds in a folder, which may be out of reach for up to a minute."""
    for _ in range(READS - 1):
        with suppress(OSError):
            return read(folder)
        time.sleep(READ_PAUSE_S)
    return read(folder)


def _cards(run: Path) -> dict[str, int]:
    """Return, by stage, when its card was last written, the last stage first. Each writes one when it begins.
    A time says only whether the card was written again: the clock may have been set back.
    """
    cards = {stage: run / stage / RUN_CARD for stage in ("", FIRST_STAGE)}
    return {stage: card.stat().st_mtime_ns for stage, card in cards.items() if card.exists()}


def _run_driver(
    command: Sequence[str], environment: dict[str, str], run: Path, orders: Orders, *, watchdog_minutes: float
) -> int:
    """Start the driver, wait for its end and that of all its processes, and return its status.

    It is killed if the run shows no life for ``watchdog_minutes``.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        preexec_fn=_end_with_parent(os.getpid()),
        process_group=0,
        stdin=subprocess.DEVNULL,  # reading from a terminal would stop a group that is in its background
    )
    orders.follow(process)
    watchdog, family = Watchdog(run), {psutil.Process(process.pid)}
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(POLL_S)
            # This keeps processes whose parent has died, and which the system has adopted.
            family = {each for each in family if each.is_running()} | _descendants(process.pid)
            watchdog.watch(family)
            if (minutes := watchdog.silent_minutes()) >= watchdog_minutes:
                try:
                    said = f"{write_stacks(run, family, watchdog)} has the stack of each process"
                except OSError as error:
                    said = f"its stacks are not written: {error}"
                sys.stderr.write(f"no sign of life for {minutes:.0f} minutes; {said}\n")
                process.kill()
                return process.wait()
    finally:
        # They end with the driver, unless they hang.
        _, left = psutil.wait_procs(family, timeout=GRACE_S)
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def _descendants(pid: int) -> set[psutil.Process]:
    try:
        return {*psutil.Process(pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def _end_with_parent(parent: int) -> Callable[[], None]:
    """Return what a child calls before it becomes the driver: the kernel kills it when its parent ends."""
    prctl = ctypes.CDLL(None).prctl

    def arrange() -> None:
        prctl(ON_PARENTS_DEATH, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(FAULT)

    return arrange
