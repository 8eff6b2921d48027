"""Countdown, Zebra puzzles and ARC-1D at SEC's levels of difficulty (arXiv:2505.14970, section 3.1).

A level is a size: 3 to 6 numbers, 3 to 6 houses with as many attributes, rows of 10 to 40 digits. Levels 1 to
3 are used for training and held-out problems; level 4 is reserved for problems harder than any in training.
This module has the settings and the splits; ``seele.data.tasks.reasoning_tasks`` makes a problem.
"""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, ClassVar

from seele.data.tasks.reasoning_tasks import TASKS, Puzzle, Values, check_library
from seele.errors import DataError
from seele.records import Instance

# Drawing from a level whose problems are used up would take forever.
_DRAWS_PER_PROBLEM = 50

# Problems that a process draws at a time: enough to justify a message, few enough to finish together.
_CHUNK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningConfig:
    """Settings of one task: which levels, and how many problems of each. The defaults are SEC's."""

    seed: int = 0
    """Seed of everything that is drawn."""

    num_train: int = 10_000
    """Problems of each training level in the split ``train``."""

    num_heldout: int = 200
    """Problems of each training level in the split ``heldout``."""

    num_harder: int = 200
    """Problems of each harder level in the split ``harder``."""

    train_levels: tuple[int, ...] = (1, 2, 3)
    harder_levels: tuple[int, ...] = (4,)
    """Levels of the split ``harder``; none of them is a training level."""

    first_size: int = 3
    """Size of a problem of level 1."""

    growth: int = 1
    """Increase in size per level."""

    compact: bool = False
    """True for questions and steps without words, for byte-level models."""

    sizes: ClassVar[range] = range(2, 8)
    """Sizes that the library can draw."""

    def __post_init__(self) -> None:
        for name in ("num_train", "num_heldout", "num_harder", "growth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("train_levels", "harder_levels"):
            levels = getattr(self, name)
            if not levels or len(set(levels)) != len(levels) or min(levels) < 1:
                raise ValueError(f"{name} must be distinct numbers from 1, got {levels}")
            if wrong := [level for level in levels if self.size_of(level) not in self.sizes]:
                raise ValueError(
                    f"{name}: level {wrong[0]} has size {self.size_of(wrong[0])} (first_size + growth * "
                    f"(level - 1)); sizes from {self.sizes[0]} to {self.sizes[-1]} can be drawn"
                )
        if shared := sorted(set(self.train_levels) & set(self.harder_levels)):
            raise ValueError(f"harder_levels must not be training levels, but {shared} are both")

    def size_of(self, level: int) -> int:
        """Return the number of numbers, houses or digits in a problem of ``level``."""
        return self.first_size + self.growth * (level - 1)

    @property
    def num_problems(self) -> int:
        """Number of problems in all splits together."""
        of_level = self.num_train + self.num_heldout
        return len(self.train_levels) * of_level + len(self.harder_levels) * self.num_harder

    @property
    def values(self) -> Values:
        """Range of the numbers, if the task has numbers."""
        return Values()


@dataclass(frozen=True, slots=True, kw_only=True)
class CountdownConfig(ReasoningConfig):
    """Countdown: a level's size is the count of numbers. Their range is the library's; SEC states none."""

    min_value: int = 1
    max_value: int = 100
    min_target: int = 100
    max_target: int = 999

    sizes: ClassVar[range] = range(2, 10)

    def __post_init__(self) -> None:
        # Without arguments, super() does not find the class that slots=True makes.
        ReasoningConfig.__post_init__(self)
        for least, most in (("min_value", "max_value"), ("min_target", "max_target")):
            if not 1 <= getattr(self, least) <= getattr(self, most):
                raise ValueError(
                    f"{least} must be from 1 to {most}, got {getattr(self, least)} and {getattr(self, most)}"
                )

    @property
    def values(self) -> Values:
        """Range of numbers and targets."""
        return Values(
            min_value=self.min_value,
            max_value=self.max_value,
            min_target=self.min_target,
            max_target=self.max_target,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc1dConfig(ReasoningConfig):
    """ARC-1D: a level's size is the length of a row."""

    first_size: int = 10
    growth: int = 10
    sizes: ClassVar[range] = range(8, 101)


CONFIGS: Mapping[str, type[ReasoningConfig]] = {
    "countdown": CountdownConfig,
    "zebra": ReasoningConfig,  # a level's size: houses, and attributes including the name
    "arc_1d": Arc1dConfig,
}
"""Settings classes by data source."""

_FEW: Mapping[str, Any] = {"compact": True, "num_train": 64, "num_heldout": 16, "num_harder": 16}

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "sec": {task: {} for task in CONFIGS},
    "small": {
        "countdown": {**_FEW, "first_size": 2, "max_value": 9, "min_target": 1, "max_target": 50},
        "zebra": {**_FEW, "first_size": 2},
        "arc_1d": {**_FEW, "first_size": 8, "growth": 4},
    },
}
"""Settings by preset and task: SEC's own, and short problems for a small model on a CPU."""


def generate_splits(
    task: str,
    config: ReasoningConfig,
    *,
    workers: int = 1,
    on_problem: Callable[[], None] = lambda: None,
) -> dict[str, list[Instance]]:
    """Return the problems of ``train``, ``heldout`` (same levels) and ``harder``, alternating between levels.

    No problem occurs twice.

    ``heldout`` and ``harder`` are drawn first and do not depend on the number of training problems.

    Args:
        task: A key of ``CONFIGS``.
        config: Settings of that task.
        workers: Number of processes that draw; the problems do not depend on it.
        on_problem: Called after each problem.

    Raises:
        DependencyError: If reasoning-gym is not installed as ``seele.data.tasks.reasoning_tasks`` needs it.
        DataError: If a level has fewer different problems than requested.
    """
    check_library()
    taken: set[str] = set()
    drawn: dict[str, list[Instance]] = {}
    # A fork of a process with threads may hang.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn")) if workers > 1 else nullcontext()
    with pool as processes:
        for split, levels, count in (
            ("heldout", config.train_levels, config.num_heldout),
            ("harder", config.harder_levels, config.num_harder),
            ("train", config.train_levels, config.num_train),
        ):
            by_level: list[list[Instance]] = []
            for level in levels:
                draw = functools.partial(_draw, task, config, f"{task}/{split}/{level}/{config.seed}", level)
                numbers: Iterable[int] = range(_DRAWS_PER_PROBLEM * count)
                candidates = _map_in_order(processes, draw, numbers)
                by_level.append(_keep_new(candidates, count, taken, task, level, on_problem))
            drawn[split] = [each for of_turn in zip(*by_level, strict=True) for each in of_turn]
    return {split: drawn[split] for split in ("train", "heldout", "harder")}


def _draw(task: str, config: ReasoningConfig, stream: str, level: int, number: int) -> Puzzle | None:
    """Draw candidate ``number`` of a stream that no other split or level shares."""
    seed = int.from_bytes(hashlib.sha256(f"{stream}/{number}".encode()).digest()[:8])
    return TASKS[task](seed, size=config.size_of(level), values=config.values, compact=config.compact)


def _map_in_order(
    processes: ProcessPoolExecutor | None, draw: Callable[[int], Puzzle | None], numbers: Iterable[int]
) -> Iterator[Puzzle | None]:
    """Like ``map``, in this process or in ``processes``, drawing a few messages ahead of the consumer."""
    if processes is None:
        yield from map(draw, numbers)
        return
    waiting = iter(numbers)
    while several := list(itertools.islice(waiting, 32 * _CHUNK)):
        yield from processes.map(draw, several, chunksize=_CHUNK)


def _keep_new(
    candidates: Iterator[Puzzle | None],
    count: int,
    taken: set[str],
    task: str,
    level: int,
    on_problem: Callable[[], None],
) -> list[Instance]:
    kept: list[Instance] = []
    for puzzle in candidates:
        if len(kept) == count:
            break
        if puzzle is not None and puzzle.identity not in taken:
            taken.add(puzzle.identity)
            kept.append(_instance(task, level, puzzle))
            on_problem()
    if len(kept) < count:
        raise DataError(
            f"{task}, level {level}: found {len(kept)} different problems in {_DRAWS_PER_PROBLEM * count} "
            f"draws, but need {count}; ask for fewer, or for larger sizes or a wider range of numbers"
        )
    return kept


def _instance(task: str, level: int, puzzle: Puzzle) -> Instance:
    digest = hashlib.sha256(f"{puzzle.question}\0{puzzle.answer}".encode()).hexdigest()
    return Instance(
        instance_id=f"{task.replace('_', '-')}-{digest[:16]}",
        data_source=task,
        question=puzzle.question,
        steps=puzzle.steps,
        answer=puzzle.answer,
        level=level,
    )
