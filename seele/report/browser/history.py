"""An index of each problem's rounds in all steps of a run, which grows with the run.

Reading the rollouts of one step takes a fraction of a second, but those of a thousand steps take minutes.
So the index is built once, in the background, with one row per round.
"""

import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from seele.report.browser.rollouts import ShownProblem, group_rollouts
from seele.report.rollout_lines import ShownRollout, read_rollouts
from seele.report.run_folder import rollout_files

INDEX = Path("logs") / "view.sqlite"
"""In the run's folder; it may be deleted at any time."""
_VERSION = 2
"""Version of what the rows mean; an index of another version is built again."""
_TABLES = f"""
begin immediate;
drop table if exists steps;
drop table if exists rounds;
create table steps (step integer primary key, changed integer, bytes integer);
create table rounds (
    problem text, step integer, round integer, hint_ratio real, rollouts integer, correct integer,
    predicted real, is_probe integer
);
create index by_problem on rounds (problem, step);
create index by_step on rounds (step);
pragma user_version = {_VERSION};
commit;
"""


_pages_in_work: list[None] = []


@contextmanager
def page_in_work() -> Iterator[None]:
    """Let the index wait, which would take half of the time in which a page is made."""
    _pages_in_work.append(None)
    try:
        yield
    finally:
        _pages_in_work.pop()


def _after_pages(rollouts: Iterable[ShownRollout]) -> Iterator[ShownRollout]:
    for rollout in rollouts:
        while _pages_in_work:
            time.sleep(0.002)
        yield rollout


@dataclass(frozen=True)
class PastRound:
    """A round of a problem in one step. The fields are the columns of the index."""

    step: int
    number: int
    """From 0."""
    hint_ratio: float
    num_rollouts: int
    num_correct: int
    predicted_accuracy: float | None
    is_probe: int
    """1 if it measures the model without a hint."""

    @property
    def accuracy(self) -> float:
        """Share of its rollouts that are correct."""
        return self.num_correct / self.num_rollouts


class History:
    """The index of a run. Its methods may be called from any thread."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._path = run / INDEX
        try:
            self._connect().close()
        except (OSError, sqlite3.Error):
            self._move()

    def _move(self) -> None:
        """Begin an index elsewhere: the folder is not writable, or another program has damaged the index."""
        self._elsewhere = tempfile.TemporaryDirectory(prefix="seele-view-")
        self._path = Path(self._elsewhere.name) / INDEX.name

    def _connect(self) -> sqlite3.Connection:
        """Open the index, which is built again if it was deleted or has another version."""
        self._path.parent.mkdir(exist_ok=True)
        base = sqlite3.connect(self._path, timeout=30)
        try:
            base.execute("pragma journal_mode=wal")
            base.execute("pragma synchronous=off")
            if base.execute("pragma user_version").fetchone() != (_VERSION,):
                base.executescript(_TABLES)
        except sqlite3.Error:
            base.close()
            raise
        return base

    def update(self) -> None:
        """Read new and rewritten steps, the newest first; remove those whose files are gone.

        Raises:
            OSError: If a file or the folder cannot be read or written.
            sqlite3.Error: If the index cannot. A damaged index is not used again.
        """
        try:
            self._update()
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.OperationalError):
                self._move()
            raise

    def _update(self) -> None:
        with self._lock, closing(self._connect()) as base:
            known = {step: tuple(state) for step, *state in base.execute("select * from steps")}
            files = rollout_files(self._run)
            for step in known.keys() - files.keys():
                _forget(base, step)
            for step in sorted(files, reverse=True):
                try:
                    stat = files[step].stat()
                    if known.get(step) != (stat.st_mtime_ns, stat.st_size):
                        problems = group_rollouts(_after_pages(read_rollouts(files[step], [])))
                        _forget(base, step)
                        _add(base, step, problems)
                        base.execute(
                            "insert into steps values (?, ?, ?)", (step, stat.st_mtime_ns, stat.st_size)
                        )
                except OSError:
                    continue  # A resumed run has removed it since, or it cannot be read now.
                base.commit()
            base.commit()

    def num_steps(self) -> int:
        """Number of steps in the index."""
        with closing(self._connect()) as base:
            return int(base.execute("select count(*) from steps").fetchone()[0])

    def of_problem(self, instance_id: str) -> list[PastRound]:
        """A problem's rounds, in order of steps, rounds and hints."""
        wanted = "select step, round, hint_ratio, rollouts, correct, predicted, is_probe from rounds"
        with closing(self._connect()) as base:
            rows = base.execute(
                f"{wanted} where problem = ? order by step, round, hint_ratio, is_probe", (instance_id,)
            ).fetchall()
        return [PastRound(*row) for row in rows]


def _forget(base: sqlite3.Connection, step: int) -> None:
    for table in ("rounds", "steps"):
        base.execute(f"delete from {table} where step = ?", (step,))


def _add(base: sqlite3.Connection, step: int, problems: list[ShownProblem]) -> None:
    base.executemany(
        "insert into rounds values (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                *(problem.first.instance_id, step, each.number, each.hint_ratio, len(each.rollouts)),
                *(sum(rollout.is_correct for rollout in each.rollouts), each.predicted_accuracy),
                each.is_probe,
            )
            for problem in problems
            for each in problem.rounds
        ),
    )
