"""Forward pruning with replay: problems that are solved time and again are not rolled out, but for a sample.

Source: arXiv:2605.17003 and ``prune_replay.py`` of its code (github.com/Stellaris167/LZE, commit 1180f7b).
There nothing is learnt unless its selection is switched on as well, and nothing survives a resumption. Here
pruning stands by itself; ``docs/selection.md`` lists the other differences. Which problems a step begins is
the curriculum's business: it leaves out what is pruned.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from seele.config.settings import SelectionConfig
from seele.records import State
from seele.saved_state import read_count, read_state

# Tells the sample from what others draw from the run's seed and the epoch, such as a curriculum's order.
STREAM = int.from_bytes(b"replay")


class ForwardPruning:
    """Leave a problem out after ``prune_after`` visits in a row with nothing but correct rollouts.

    What an epoch leaves out is decided when it is first asked for, and stays: a curriculum may filter its
    order once. Each epoch rolls out a sample of the pruned problems again (``replay_share``, at least one of
    them), which depends on the seed, the epoch and the pool. A replayed problem that is still solved stays in
    the pool; one that is not leaves it, and has to be solved ``prune_after`` times in a row to return.

    Problems are indices into the data set, as in a curriculum. With ``prune_after`` 0 nothing is ever pruned
    and nothing remembered.
    """

    _HEADER: ClassVar[State] = {"pruning": "forward", "version": 1}

    def __init__(self, config: SelectionConfig, *, seed: int) -> None:
        self._prune_after = config.prune_after
        self._replay_share = config.replay_share
        self._seed = seed
        # Visits in a row with nothing but correct rollouts; problems without any are absent.
        self._streaks: dict[int, int] = {}
        self._epoch: int | None = None
        self._left_out: frozenset[int] = frozenset()
        self._replayed: frozenset[int] = frozenset()

    def pruned(self, *, epoch: int) -> frozenset[int]:
        """Problems that epoch ``epoch`` does not roll out. Epochs come in order, each asked for at will."""
        if not self._prune_after:
            return frozenset()
        if epoch != self._epoch:
            self._begin_epoch(epoch)
        return self._left_out

    def observe(self, accuracy_of_problem: Mapping[int, float]) -> None:
        """Take note of a step's visits: accuracy 1 lengthens a problem's streak, any other ends it.

        Args:
            accuracy_of_problem: Share of correct rollouts by problem. "Solved" has to mean without help:
                where a method gives hints, leave out problems that were solved with them. Those keep the
                streak they have.
        """
        if not self._prune_after:
            return
        for problem, accuracy in accuracy_of_problem.items():
            if accuracy == 1.0:
                self._streaks[problem] = self._streaks.get(problem, 0) + 1
            else:
                self._streaks.pop(problem, None)

    def state_dict(self) -> State:
        """Streaks as [problem, visits], and what the epoch leaves out; equal states give equal JSON."""
        return {
            **self._HEADER,
            "streaks": [[problem, streak] for problem, streak in sorted(self._streaks.items())],
            "epoch": self._epoch,
            "left_out": sorted(self._left_out),
            "replayed": sorted(self._replayed),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict`` as if there had been no interruption; the settings stay as they are.

        Raises:
            CheckpointError: If it is of another part or version, or damaged. Nothing is changed then.
        """
        self._streaks, self._epoch, self._left_out, self._replayed = read_state(
            state, header=self._HEADER, read=_read
        )

    def metrics(self) -> dict[str, float]:
        """How many problems the epoch leaves out, and how many it replays; nothing if pruning is off."""
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
