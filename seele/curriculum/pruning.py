"""Forward pruning with replay: problems that are solved repeatedly are not rolled out, except for a sample.

Source: arXiv:2605.17003 and ``prune_replay.py`` of its code (github.com/Stellaris167/LZE, commit 1180f7b).
That code learns nothing unless its selection is enabled as well, and loses its state when a run is resumed.
Here pruning is independent; ``docs/selection.md`` lists the other differences. The curriculum decides which
problems a step begins, and skips those that are pruned.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from seele.config.settings import SelectionConfig
from seele.records import State
from seele.saved_state import read_count, read_state

# Separates the sample from other draws that use the run's seed and the epoch, such as a curriculum's order.
STREAM = int.from_bytes(b"replay")


class ForwardPruning:
    """Skip a problem after ``prune_after`` visits in a row whose rollouts were all correct.

    The problems that an epoch skips are fixed when they are first requested, so a curriculum may filter its
    order once. Each epoch rolls out a sample of the pruned problems again (``replay_share``, at least one of
    them), which depends on the seed, the epoch and the pool. A replayed problem that is still solved stays in
    the pool; one that is not leaves it, and must be solved ``prune_after`` times in a row to return.

    Problems are indices into the data set, as in a curriculum. With ``prune_after`` 0, nothing is pruned or
    recorded.
    """

    _HEADER: ClassVar[State] = {"pruning": "forward", "version": 1}

    def __init__(self, config: SelectionConfig, *, seed: int) -> None:
        self._prune_after = config.prune_after
        self._replay_share = config.replay_share
        self._seed = seed
        # Visits in a row whose rollouts were all correct; problems without any are absent.
        self._streaks: dict[int, int] = {}
        self._epoch: int | None = None
        self._left_out: frozenset[int] = frozenset()
        self._replayed: frozenset[int] = frozenset()

    def pruned(self, *, epoch: int) -> frozenset[int]:
        """Return the problems that epoch ``epoch`` skips. Epochs come in order; each may be repeated."""
        if not self._prune_after:
            return frozenset()
        if epoch != self._epoch:
            self._begin_epoch(epoch)
        return self._left_out

    def observe(self, accuracy_of_problem: Mapping[int, float]) -> None:
        """Update the streaks with a step's visits: accuracy 1 extends a problem's streak, any other ends it.

        Args:
            accuracy_of_problem: Share of correct rollouts by problem. "Solved" must mean solved without help:
                if a method gives hints, leave out problems that were solved with them. Those keep their
                streaks.
        """
        if not self._prune_after:
            return
        for problem, accuracy in accuracy_of_problem.items():
            if accuracy == 1.0:
                self._streaks[problem] = self._streaks.get(problem, 0) + 1
            else:
                self._streaks.pop(problem, None)

    def state_dict(self) -> State:
        """Return streaks as [problem, visits] and what the epoch skips; equal states give equal JSON."""
        return {
            **self._HEADER,
            "streaks": [[problem, streak] for problem, streak in sorted(self._streaks.items())],
            "epoch": self._epoch,
            "left_out": sorted(self._left_out),
            "replayed": sorted(self._replayed),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict`` as if there had been no interruption; the settings are unchanged.

        Raises:
            CheckpointError: If the state is damaged, or of another part or version; nothing is changed then.
        """
        self._streaks, self._epoch, self._left_out, self._replayed = read_state(
            state, header=self._HEADER, read=_read
        )

    def metrics(self) -> dict[str, float]:
        """Return the numbers of problems that the epoch skips and replays; empty if pruning is off."""
        if not self._prune_after:
            return {}
        return {
            "pruned_problems": float(len(self._left_out)),
            "replayed_problems": float(len(self._replayed)),
        }

    def _begin_epoch(self, epoch: int) -> None:
        pool = sorted(problem for problem, streak in self._streaks.items() if streak >= self._prune_after)
        num_replayed = max(1, round(self._replay_share * len(pool)))
        generator = np.random.default_rng([self._seed, epoch, STREAM])
        self._epoch = epoch
        self._replayed = frozenset(generator.permutation(pool)[:num_replayed].tolist())
        self._left_out = frozenset(pool) - self._replayed


def _read(state: Mapping[str, Any]) -> tuple[dict[int, int], int | None, frozenset[int], frozenset[int]]:
    streaks = {read_count(problem): read_count(streak) for problem, streak in state["streaks"]}
    epoch = None if state["epoch"] is None else read_count(state["epoch"])
    left_out, replayed = (frozenset(map(read_count, state[key])) for key in ("left_out", "replayed"))
    return streaks, epoch, left_out, replayed
