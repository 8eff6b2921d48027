"""Faults on purpose: processes of a run are killed, or stopped so that they hang, at random moments, and what
the run then does is compared with the same run in one piece.

    python tests/faults/run.py --out runs/faults    # after scripts/quickstart.sh: with its model and data
    python tests/faults/run.py --out runs/hangs --hang --faults 1
    python tests/faults/run.py --out runs/ranks --hang --ranks 2 --runs 1 --faults 1 --roles "FSDP rank"
    python tests/faults/run.py recipe=smollm2_gsm8k hardware=cpu trainer.save_freq=1 trainer.test_freq=-1 \
        trainer.total_training_steps=28 --out runs/kills --runs 1 --faults 10 --roles driver

Prints a row for each fault, what the run did differently from the one in one piece, and what was left behind;
ends with status 1 if anything was, or if a fault met no process. Other runs on the machine that start in
between count as left behind. A run's overrides come before --roles. The next fault comes once two steps have
been trained after the one before, up to SPREAD seconds later.
"""

import argparse
import filecmp
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil

from seele.data.storage.files import read_json_lines
from seele.maths.tables import markdown_table
from seele_verl.runs.checkpoints import saved_steps, step_folder
from seele_verl.runs.log import last_step, rows_of

JOB = ("method=seele", "hardware=cpu", "job=tiny", "model=tiny", "data=chains", "data.train_batch_size=8")
JOB += ("actor_rollout_ref.actor.ppo_mini_batch_size=4", "seele.hints.rounds=2")
JOB += ("seele.hints.rollouts_per_prompt=8", "trainer.total_training_steps=20", "trainer.save_freq=2")
JOB += ("trainer.test_freq=-1", "trainer.val_before_train=false", "trainer.logger=[console]")
KEEP = ("trainer.max_actor_ckpt_to_keep=null",)
ROLES = {
    "driver": r"-m seele_verl\.train ",
    "task runner": r"^ray::TaskRunner",
    "FSDP rank": r"^ray::WorkerDict",
    "engine": r"^ray::RoundServer",
    "engine core": r"^VLLM::EngineCore",
    "rollout worker": r"^ray::RoundsWorker",
    "hint controller": r"^ray::ControllerActor",
    "grader": r"-m seele\.reward\.worker ",
    "queue": r"^ray::TransferQueueController",
    "storage unit": r"^ray::SimpleStorageUnit",
    "raylet": r"/raylet/raylet ",
    "GCS": r"/gcs/gcs_server ",
}
"""Kind of process -> how its command line reads, as Ray names it."""
OF_A_RUN = "|".join(
    (
        *(*ROLES.values(), r"^ray::|^VLLM::", r"/ray/(?:dashboard|_private)/", r"/seele_verl/cpu/fork_"),
        r"multiprocessing\.(?:resource_tracker|forkserver|spawn)",
    )
)
"""How command lines of a run's processes read, whatever their role."""
COMPARED = {
    "first hints": ["hint"],
    "hints": ["hint"],
    "responses": ["text"],
    "verdicts": ["reason", "reward"],
}
"""What is compared of each rollout -> its columns in the dump."""
WITH_TIMES = {"metrics.json", "files.json"}
"""Parts of a checkpoint that differ from run to run: seconds, and files with the time in them."""
PATIENCE_S = 900.0
SETTLE_S = 30.0
"""After the last run: Python's resource trackers remove semaphores of killed processes."""


def start(
    run: Path, overrides: Sequence[str], *, restarts: int, watchdog_minutes: float
) -> subprocess.Popen[bytes]:
    """The run's command; what it prints is appended to RUN.log."""
    command = [
        sys.executable,
        "-m",
        "seele_verl.train",
        *overrides,
        *KEEP,
        f"trainer.default_local_dir={run}",
    ]
    command += [f"trainer.max_restarts={restarts}", f"trainer.watchdog_minutes={watchdog_minutes}"]
    with run.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def wait_for(
    condition: Callable[[], Any], process: subprocess.Popen[bytes], patience_s: float = PATIENCE_S
) -> Any:
    """The condition's first true value, or None where the run has ended before."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        if process.poll() is not None:
            return None
        time.sleep(0.1)
    raise SystemExit(f"nothing happened in {patience_s:.0f} s")


def find(role: str, process: subprocess.Popen[bytes]) -> psutil.Process | None:
    """A process of this kind below the run's command."""
    for each in psutil.Process(process.pid).children(recursive=True):
        try:
            if re.search(ROLES[role], " ".join(each.cmdline()) + " "):
                return each
        except psutil.Error:
            continue
    return None


def hit(role: str, process: subprocess.Popen[bytes], sent: signal.Signals) -> bool:
    """Send the signal to a process of this kind; return False if there is none now."""
    if (victim := find(role, process)) is None:
        return False
    try:
        victim.send_signal(sent)
    except psutil.NoSuchProcess:  # it ended just now
        return False
    return True


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the run if the block fails: it would go on by itself."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def with_faults(
    run: Path,
    overrides: Sequence[str],
    roles: Sequence[str],
    draw: random.Random,
    options: argparse.Namespace,
) -> list[list[str]]:
    """A run that meets these faults one after the other; a row for each."""
    sent = signal.SIGSTOP if options.hang else signal.SIGKILL
    patience_s = PATIENCE_S + 60 * options.watchdog_minutes
    log = run.with_suffix(".log")
    process = start(run, overrides, restarts=len(roles), watchdog_minutes=options.watchdog_minutes)
    rows, reached = [], 0
    with ended(process):
        for role in roles:
            if not wait_for(lambda reached=reached: last_step(run) > reached, process, patience_s):
                break
            time.sleep(draw.uniform(0, options.spread))
            restarts = log.read_text().count("; restart ")
            if not wait_for(lambda role=role: hit(role, process, sent), process):
                break
            reached, began = last_step(run), time.monotonic()
            # The step under way may end before the loss is noticed.
            goes_on = wait_for(lambda reached=reached: last_step(run) > reached + 1, process, patience_s)
            restarted = log.read_text().count("; restart ") > restarts
            resumed = re.findall(r" (?:starts|resumes after step (\d+)) in ", log.read_text())[-1] or 0
            # The step under way may have ended, and been saved, before the loss was noticed.
            lost = max(0, reached - int(resumed)) if restarted else 0
            took = f"{time.monotonic() - began:.0f}" if goes_on else ""
            went = ["yes" if restarted else "no", "yes" if goes_on else "no"]
            rows.append([run.name, role, str(reached), *went, str(lost), took])
            sys.stdout.write(" | ".join(rows[-1]) + "\n")
            sys.stdout.flush()
        status = process.wait()
    if status:
        sys.stdout.write(f"{run.name} ended with status {status}, see {log}\n")
    return rows


def rollouts(run: Path, step: int) -> dict[tuple[str, int, int], Mapping[str, Any]]:
    """The rollouts of a step by problem, round and number; empty if the run did not reach it.

    Raises:
        SystemExit: A rollout is there twice.
    """
    file = run / "rollouts" / f"step_{step}.jsonl"
    rows = [row for _, row in read_json_lines(file)] if file.exists() else []
    by_place = {(row["instance_id"], row["round"], row["rollout"]): row for row in rows}
    if len(by_place) < len(rows):
        raise SystemExit(f"{file}: {len(rows)} lines of {len(by_place)} rollouts")
    return by_place


def compare(whole: Path, run: Path) -> list[str]:
    """How much of the run in one piece a run with faults has."""
    steps = sorted(row["step"] for row in rows_of(whole))
    same = dict.fromkeys(COMPARED, 0)
    total = dict.fromkeys(same, 0)
    problems = states = 0
    for step in (step for step in steps if step):
        own, theirs = rollouts(whole, step), rollouts(run, step)
        problems += {key[0] for key in own} == {key[0] for key in theirs}
        for key in {*own, *theirs}:
            row, other = own.get(key), theirs.get(key)
            for name, columns in COMPARED.items():
                if name != "first hints" or key[1] == 0:
                    total[name] += 1
                    same[name] += bool(row and other) and all(
                        row[column] == other[column] for column in columns
                    )
    for step in saved_steps(whole):
        ours, others = (step_folder(each, step) / "seele" for each in (whole, run))
        parts = {path.name for path in ours.glob("*.json")} - WITH_TIMES
        equal, *_ = filecmp.cmpfiles(ours, others, parts, shallow=False)
        states += {*equal} == parts != set()
    once = [row["step"] for row in rows_of(run)] == steps
    return [
        *(run.name, "yes" if once else "no", f"{problems} of {sum(map(bool, steps))}"),
        *(f"{same[name]} of {total[name]}" for name in same),
        f"{states} of {len(saved_steps(whole))}",
    ]


def is_same(row: Sequence[str]) -> bool:
    """True if a row of ``compare`` says that the run has all of the run in one piece, which is something."""
    counts = [cell.split(" of ") for cell in row[2:]]
    return row[1] == "yes" and all(same == total != "0" for same, total in counts)


def processes(out: Path) -> set[psutil.Process]:
    """This machine's processes that belong to a run, or name the folder ``out``; without this one."""
    found = set()
    for each in psutil.process_iter():
        try:
            line = " ".join(each.cmdline()) + " "
        except psutil.Error:
            continue
        if each.pid != psutil.Process().pid and (str(out) in line or re.search(OF_A_RUN, line)):
            found.add(each)
    return found


def temporary_files() -> set[Path]:
    """What lies among temporary files and in shared memory; Ray keeps its sessions' logs."""
    folders = {Path("/tmp"), Path("/dev/shm"), Path(tempfile.gettempdir())}
    return {file for folder in folders for file in folder.iterdir()} - {Path("/tmp/ray")}


def empty_folder(text: str) -> Path:
    """A folder that does not exist yet, or is empty: runs in it would count as these."""
    folder = Path(text)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise argparse.ArgumentTypeError(f"{folder} is not an empty folder; name another one, or remove it")
    return folder


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=empty_folder, required=True, help="folder of the runs, a new one")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--faults", type=int, default=5, help="of each run")
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=[*ROLES])
    parser.add_argument("--hang", action="store_true", help="SIGSTOP in the place of SIGKILL")
    parser.add_argument("--ranks", type=int, help="FSDP ranks, of which a fault meets one")
    parser.add_argument("--watchdog-minutes", type=float, default=5.0)
    parser.add_argument("--spread", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=0)
    options, overrides = parser.parse_known_args()
    overrides = [*(overrides or JOB)]
    overrides += [f"trainer.n_gpus_per_node={options.ranks}"] if options.ranks else []
    options.out.mkdir(parents=True, exist_ok=True)
    before, whole = temporary_files(), options.out / "whole"
    others = processes(options.out.resolve())
    if start(whole, overrides, restarts=0, watchdog_minutes=options.watchdog_minutes).wait():
        raise SystemExit(f"the run in one piece failed, see {whole.with_suffix('.log')}")
    by_itself = temporary_files() - before
    draw = random.Random(options.seed)
    roles = cycle(draw.sample(options.roles, len(options.roles)))
    faults, compared = [], []
    for number in range(options.runs):
        run = options.out / f"run_{number}"
        faults += with_faults(run, overrides, [next(roles) for _ in range(options.faults)], draw, options)
        compared.append(compare(whole, run))
    heads = [
        "run",
        "process",
        "after step",
        "started again",
        "went on",
        "steps done again",
        "seconds to two new steps",
    ]
    sys.stdout.write(f"\n{markdown_table(heads, faults)}\n\n")
    heads = ["run", "each step once", "problems", *COMPARED, "states"]
    sys.stdout.write(f"{markdown_table(heads, compared)}\n\n")
    time.sleep(SETTLE_S)
    runs = processes(options.out.resolve()) - others
    left = sorted(map(str, temporary_files() - before - by_itself))
    sys.stdout.write(f"left behind: {len(runs)} processes; {len(left)} temporary files {left[:5]}\n")
    sys.stdout.write(f"left behind by the run in one piece: {sorted(map(str, by_itself))[:5]}\n")
    missed = options.runs * options.faults - len(faults)
    if missed:
        sys.stdout.write(f"{missed} faults met no process: the run had ended, or no process has that name\n")
    if runs or left or missed or not all(map(is_same, compared)):
        sys.exit(1)


if __name__ == "__main__":
    main()
