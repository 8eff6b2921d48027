"""Controllers that ignore outcomes: uniform draws, PrefixRL's, and the schedules of UFT and Prefix-RFT.

They only choose the hint; losses and advantages of those methods are elsewhere. ``seele.hints.scheduled``
explains what a draw depends on.
"""

import math
from collections.abc import Sequence
from random import Random

from seele.errors import ConfigError
from seele.hints.contract import check_count, check_number, nearest_legal
from seele.hints.scheduled import ScheduledController
from seele.records import HintShare, RoundRequest

TRAINING_STEPS = 500
"""Steps of the runs in both papers."""

UFT_MODES = ("uft", "stage", "r3")


class UniformController(ScheduledController):
    """Draw one of the legal ratios, all equally likely, in every round of every visit."""

    name = "uniform"

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        visit = self._beginning(instance_id, round_index).visit
        draw = self._random(instance_id, visit, round_index=round_index).random()
        return legal_ratios[int(draw * len(legal_ratios))]


class PrefixRlController(ScheduledController):
    """PrefixRL (arXiv:2601.18795): every round has one of a problem's ``prefixes`` prefixes or none, all
    equally likely.

    The prefixes of a problem stay the same: shares of its solution that are drawn once, uniformly from
    ``smallest`` to ``largest``. A prefix ends at the legal ratio nearest to its share, but not at 0.

    Args:
        seed: Seeds the draws.
        prefixes: Number of prefixes of a problem.
        smallest: Smallest share of a solution.
        largest: Largest share of a solution.
    """

    name = "prefix_rl"

    def __init__(
        self, *, seed: int = 0, prefixes: int = 3, smallest: float = 0.4, largest: float = 0.8
    ) -> None:
        super().__init__(seed=seed)
        self._prefixes = check_count("prefixes", prefixes)
        self._smallest = check_number("smallest", smallest, at_most=1.0)
        self._largest = check_number("largest", largest, at_least=self._smallest, at_most=1.0)

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        visit = self._beginning(instance_id, round_index).visit
        prefix = self._random(instance_id, visit, round_index=round_index).randint(0, self._prefixes)
        hints = [ratio for ratio in legal_ratios if ratio]
        if not prefix or not hints:
            return min(legal_ratios)
        # Visits are counted from 1, so these draws depend on the problem alone.
        share = self._random(instance_id, 0, round_index=prefix).uniform(self._smallest, self._largest)
        return nearest_legal(share, hints)


class UftController(ScheduledController):
    """UFT (arXiv:2505.16984): reveal a number of up to five chunks, in the three modes of the authors' code.

        uft    l ~ Binomial(L, p(t)),  L = min(max_chunks, number of solution steps),  hint ratio l / L
        stage  l = L - floor(t / floor(T / (L + 1))), at least 0: a staircase from L down
        r3     l uniform on 0..L in every step of the run (R3, arXiv:2402.05808)

    p(t) falls along a cosine from ``p_high`` to ``p_low`` at step T, ``hint_training_steps``; in ``uft`` and
    ``stage`` later steps have no hint. T is by default 60 % of the run, like 300 of 500 steps in the authors'
    code. t is the training step counted from 1, as there; their paper has t + 1. All rounds of a visit share
    one draw. l = L would be the whole solution, which is never legal here: it reveals all but the last step.

    Args:
        seed: Seeds the draws.
        mode: ``uft``, ``stage`` or ``r3``.
        p_high: Probability of a chunk at step 0.
        p_low: Probability of a chunk at the last step with hints.
        hint_training_steps: T_hint, the last training step with hints; None for 60 % of ``training_steps``.
        max_chunks: Largest number of chunks of a solution.
        training_steps: Steps of the run; None if unknown, which counts as 500.
    """

    name = "uft"

    def __init__(
        self,
        *,
        seed: int = 0,
        mode: str = "uft",
        p_high: float = 0.95,
        p_low: float = 0.05,
        hint_training_steps: int | None = None,
        max_chunks: int = 5,
        training_steps: int | None = None,
    ) -> None:
        super().__init__(seed=seed)
        if mode not in UFT_MODES:
            raise ConfigError(
                f"seele.hints.settings.mode: unknown mode {mode!r}; allowed are {list(UFT_MODES)}"
            )
        self._mode = mode
        self._p_high, self._p_low = _check_range(p_high, p_low)
        if hint_training_steps is None:
            hint_training_steps = max(round(0.6 * (training_steps or TRAINING_STEPS)), 1)
        self._hint_training_steps = check_count("hint_training_steps", hint_training_steps)
        self._max_chunks = check_count("max_chunks", max_chunks)

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        begun = self._beginning(instance_id, round_index)
        num_chunks = min(self._max_chunks, _num_steps(legal_ratios))
        revealed = self._num_revealed(num_chunks, begun.step, self._random(instance_id, begun.visit))
        return nearest_legal(revealed / num_chunks, legal_ratios)

    def _num_revealed(self, num_chunks: int, step: int, random: Random) -> int:
        """The number of chunks to reveal: l of L."""
        if self._mode == "r3":
            return random.randrange(num_chunks + 1)
        if self._mode == "stage":
            if step > self._hint_training_steps:
                return 0
            steps_per_stage = max(self._hint_training_steps // (num_chunks + 1), 1)
            return max(num_chunks - step // steps_per_stage, 0)
        probability = self.chunk_probability(step)
        return sum(random.random() < probability for _ in range(num_chunks))

    def chunk_probability(self, step: int) -> float:
        """p(t) in mode ``uft``, and 0 after hints have ended."""
        if step > self._hint_training_steps:
            return 0.0
        return cosine_decay(step, high=self._p_high, low=self._p_low, decay_steps=self._hint_training_steps)

    def metrics(self) -> dict[str, float]:
        """See ``Controller``: in mode ``uft`` also the schedule's current value."""
        if self._mode != "uft":
            return super().metrics()
        return {**super().metrics(), "chunk_probability": self.chunk_probability(self._step)}


class PrefixRftController(ScheduledController):
    """Prefix-RFT (arXiv:2507.01679): one rollout of eight continues a prefix of the solution.

    The share of the solution in the prefix is drawn once a visit from U[low(t), p_high] and cut down to a
    legal ratio, but to no less than one step; low(t) falls along a cosine from ``p_high`` to ``p_low`` at
    step ``decay_training_steps`` and stays there. The other rollouts have no hint.

    A round has at least one rollout with the prefix, so rounds of fewer than eight exceed the paper's share.

    Args:
        seed: Seeds the draws.
        p_high: Largest share of the solution.
        p_low: Smallest share of the solution at the end of the schedule.
        decay_training_steps: Training steps until then; None for all of ``training_steps``.
        prefixed_share: Share of a round's rollouts that continue the prefix, rounded to whole rollouts.
        training_steps: Steps of the run; None if unknown, which counts as 500.
    """

    name = "prefix_rft"

    def __init__(
        self,
        *,
        seed: int = 0,
        p_high: float = 0.95,
        p_low: float = 0.05,
        decay_training_steps: int | None = None,
        prefixed_share: float = 1 / 8,
        training_steps: int | None = None,
    ) -> None:
        super().__init__(seed=seed)
        self._p_high, self._p_low = _check_range(p_high, p_low)
        if decay_training_steps is None:
            decay_training_steps = training_steps or TRAINING_STEPS
        self._decay_training_steps = check_count("decay_training_steps", decay_training_steps)
        self._prefixed_share = check_number("prefixed_share", prefixed_share, at_most=1.0)
        if not self._prefixed_share:
            raise ConfigError(
                "seele.hints.settings.prefixed_share: expected more than 0, because every round has at least "
                "one rollout with the prefix; for none, choose method=grpo"
            )

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """The ratio of the rollouts with the prefix."""
        begun = self._beginning(instance_id, round_index)
        low = self.smallest_prefix(begun.step)
        share = self._p_high - (self._p_high - low) * self._random(instance_id, begun.visit).random()
        prefixes = [ratio for ratio in legal_ratios if ratio > 0.0]
        if not prefixes:
            return min(legal_ratios)
        return max((ratio for ratio in prefixes if ratio <= share), default=min(prefixes))

    def plan_rounds(
        self, requests: Sequence[RoundRequest], *, num_rollouts: int
    ) -> list[tuple[HintShare, ...]]:
        """See ``Controller``: first the rollouts with the prefix, then those without."""
        prefixed = max(round(self._prefixed_share * num_rollouts), 1)
        plans: list[tuple[HintShare, ...]] = []
        one_hint = super().plan_rounds(requests, num_rollouts=num_rollouts)
        for request, (share,) in zip(requests, one_hint, strict=True):
            smallest = min(request.legal_ratios)
            if share.hint_ratio == smallest or prefixed == num_rollouts:
                plans.append((share,))
            else:
                others = HintShare(smallest, num_rollouts - prefixed)
                plans.append((HintShare(share.hint_ratio, prefixed), others))
        return plans

    def smallest_prefix(self, step: int) -> float:
        """low(t), a share of the solution."""
        return cosine_decay(step, high=self._p_high, low=self._p_low, decay_steps=self._decay_training_steps)

    def metrics(self) -> dict[str, float]:
        """See ``Controller``: also the schedule's current value."""
        return {**super().metrics(), "smallest_prefix": self.smallest_prefix(self._step)}


def _num_steps(legal_ratios: Sequence[float]) -> int:
    """The number of steps of a solution. If all steps have the same length, as in training, the longest hints
    may be forbidden, and the shortest gives the number; if not, every step has its ratio.
    """
    if len(legal_ratios) < 2:
        return 1
    num_steps = round(1 / legal_ratios[1])
    is_even = all(ratio == revealed / num_steps for revealed, ratio in enumerate(legal_ratios))
    return num_steps if is_even else len(legal_ratios)


def _check_range(p_high: float, p_low: float) -> tuple[float, float]:
    high, low = check_number("p_high", p_high, at_most=1.0), check_number("p_low", p_low, at_most=1.0)
    if low > high:
        raise ConfigError(f"seele.hints.settings.p_low: expected at most p_high ({high:g}), got {low:g}")
    return high, low


def cosine_decay(step: int, *, high: float, low: float, decay_steps: int) -> float:
    """The value at ``step`` of half a cosine from ``high`` at step 0 to ``low`` from ``decay_steps`` on.

        p(t) = high - (high - low) / 2 * (1 - cos(pi t / T)),  t <= T

    Args:
        step: Training step t, 0 or more.
        high: Value at step 0.
        low: Value from step T on.
        decay_steps: T, at least 1.
    """
    progress = min(step, decay_steps) / decay_steps
    return high - 0.5 * (high - low) * (1.0 - math.cos(math.pi * progress))
