"""SEC, the self-evolving curriculum (arXiv:2505.14970): a bandit over groups of problems.

An arm is a group of problems that share their values in some columns, such as the difficulty level. An arm's
value Q is a moving average of what the policy learnt from its problems, measured by their mean |advantage|:

    c ~ softmax(Q / tau), a problem of arm c, until the step has enough       Algorithm 1 of the paper
    r(c) = mean over the arm's rollouts of the mean over tokens of |A|
    Q(c) <- alpha r(c) + (1 - alpha) Q(c), from Q(c) = 0

For 0/1 rewards with accuracy p, r is 2 p (1 - p) if A = r - mean, and 2 sqrt(p (1 - p)) if A is divided by
the standard deviation; with verl's unbiased one over n rollouts, that times sqrt((n - 1) / n). Advantages
themselves are computed elsewhere. A counts the arms, P the problems.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seele.curriculum.epoch_queue import EpochQueue, Problems, Supply, shuffled
from seele.curriculum.epochs import Key, rank_problems
from seele.errors import DataError
from seele.records import State
from seele.saved_state import read_count, read_state

MAX_ARMS = 1000
"""A step logs three numbers for each arm."""
VERSION = 1
"""Version of the saved state."""


def softmax(values: NDArray[np.float64], *, temperature: float) -> NDArray[np.float64]:
    """Return probabilities proportional to exp(value / temperature); at least one value, temperature > 0."""
    weights = np.exp((values - values.max()) / temperature)
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


class SecCurriculum:
    """Draws problems from the arms that the policy learns most from.

    Where the paper leaves details open: an arm without a trained problem in a step keeps its value; an arm
    whose problems are all in the draw (or postponed, or pruned) is skipped, and the others share its
    probability; problems of an arm take turns, or are drawn at random if ``with_replacement`` is set.
    """

    name: ClassVar[str] = "sec"

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        columns: Sequence[str],
        learning_rate: float,
        temperature: float,
        with_replacement: bool,
        seed: int,
    ) -> None:
        """Group problems into arms, all of value 0.

        Args:
            rows: One mapping per problem with at least ``columns``.
            columns: Columns whose values tell arms apart.
            learning_rate: Weight alpha of a step's reward in an arm's value, in (0, 1].
            temperature: tau > 0 of the softmax, in units of mean |advantage|.
            with_replacement: Whether an arm may repeat a problem before all its problems have had their turn.
                A draw never contains a problem twice.
            seed: Seed of all draws.

        Raises:
            DataError: If a value is missing, a column mixes texts with numbers, or there are too many arms.
        """
        arms, self._arm_P = rank_problems(rows, columns)
        if len(arms) > MAX_ARMS:
            raise DataError(
                f"seele.curriculum.columns: {list(columns)} give {len(arms)} arms, one for each value; "
                f"allowed are at most {MAX_ARMS}; name columns with fewer values, such as a level"
            )
        self._labels = [_label(columns, arm) for arm in arms]
        self._learning_rate = learning_rate
        self._temperature = temperature
        self._with_replacement = with_replacement
        self._seed = seed
        self._num_draws = 0
        self._values_A = np.zeros(len(arms))
        self._drawn_A = np.zeros(len(arms), dtype=np.int64)
        self._queues = [EpochQueue(partial(self._order_of_epoch, arm)) for arm in range(len(arms))]

    @property
    def epochs(self) -> None:
        """See ``Curriculum``: None, because every arm has its own pace."""
        return None

    def draw(
        self, num_problems: int, *, postponed: Collection[int] = (), pruned: Collection[int] = ()
    ) -> list[int]:
        """See ``Curriculum``. With replacement there are no turns, and pruned problems are simply skipped."""
        supply = Supply(len(self._arm_P), wanted=num_problems, postponed=postponed, pruned=pruned)
        generator = np.random.default_rng((self._seed, self._num_draws))
        drawn = [supply.take(self._draw_one(supply, generator)) for _ in range(num_problems)]
        self._num_draws += 1
        self._drawn_A = np.bincount(self._arm_P[drawn], minlength=len(self._labels))
        return drawn

    def _draw_one(self, supply: Supply, generator: np.random.Generator) -> int:
        arms = np.flatnonzero(np.bincount(self._arm_P[supply.is_eligible_P]))
        arm = int(generator.choice(arms, p=softmax(self._values_A[arms], temperature=self._temperature)))
        if self._with_replacement:
            return int(generator.choice(np.flatnonzero(supply.is_eligible_P & (self._arm_P == arm))))
        return self._queues[arm].next_eligible(supply)

    def _order_of_epoch(self, arm: int, epoch: int) -> Problems:
        # NumPy treats seeds that differ only in trailing zeros as equal: 1 + arm distinguishes these shuffles
        # from the draws, whose seeds are two numbers.
        return shuffled(np.flatnonzero(self._arm_P == arm), seed=(self._seed, epoch, 1 + arm))

    def observe(self, signal_of_problem: Mapping[int, float]) -> None:
        """Move each observed arm's value towards the mean signal of its problems.

        The mean over problems equals the paper's over rollouts, as each problem has the same number of them.

        Raises:
            ValueError: If a signal is negative or not finite; nothing is changed then.
        """
        signals_of_arm: dict[int, list[float]] = defaultdict(list)
        for problem, signal in signal_of_problem.items():
            if not 0.0 <= signal < math.inf:
                raise ValueError(
                    f"the mean |advantage| of problem {problem} must be finite and at least 0, got {signal!r}"
                )
            signals_of_arm[int(self._arm_P[problem])].append(signal)
        alpha = self._learning_rate
        for arm, signals in signals_of_arm.items():
            self._values_A[arm] = alpha * fmean(signals) + (1.0 - alpha) * self._values_A[arm]

    def state_dict(self) -> State:
        """See ``Curriculum``. Lists are in the order of the arms."""
        return {
            **self._header,
            "num_draws": self._num_draws,
            "values": self._values_A.tolist(),
            "drawn": self._drawn_A.tolist(),
            "queues": [queue.state() for queue in self._queues],
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Curriculum``. Arms must be the same; other settings may differ."""
        self._num_draws, self._values_A, self._drawn_A, self._queues = read_state(
            state, header=self._header, read=self._read
        )

    def _read(self, state: State) -> tuple[int, NDArray[np.float64], NDArray[np.int64], list[EpochQueue]]:
        queues = [
            queue.restored(saved, problems=set(np.flatnonzero(self._arm_P == arm).tolist()))
            for arm, (queue, saved) in enumerate(zip(self._queues, state["queues"], strict=True))
        ]
        values = [_read_value(value) for _, value in zip(queues, state["values"], strict=True)]
        drawn = [read_count(count) for _, count in zip(queues, state["drawn"], strict=True)]
        return read_count(state["num_draws"]), np.array(values), np.array(drawn), queues

    def metrics(self) -> dict[str, float]:
        """Return each arm's value, its softmax probability, and its number of problems in the last draw."""
        probability_A = softmax(self._values_A, temperature=self._temperature)
        numbers = {"q": self._values_A, "probability": probability_A, "drawn": self._drawn_A}
        return {
            f"{name}/{label}": float(number)
            for name, number_A in numbers.items()
            for label, number in zip(self._labels, number_A, strict=True)
        }

    @property
    def _header(self) -> State:
        return {
            "curriculum": self.name,
            "version": VERSION,
            "num_problems": len(self._arm_P),
            "arms": list(self._labels),
        }


def _read_value(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
        raise ValueError(f"an arm's value is a finite number, 0 or more, got {value!r}")
    return float(value)


def _label(columns: Sequence[str], arm: Key) -> str:
    return ",".join(f"{column}={value}" for column, value in zip(columns, arm, strict=True))
