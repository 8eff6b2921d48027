"""When hints end: a cap on the hint ratio that falls to 0 by a stated step, or at once when probes say so."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seele.errors import ConfigError
from seele.hints.contract import check_count
from seele.saved_state import read_count, read_ratio

PROBE_MEMORY = 256
"""Visits over which the probes' accuracy is averaged, with weights that fall off exponentially."""


class Withdrawal:
    """The cap: the largest hint ratio that is still allowed.

    Args:
        begin: Step at which the cap begins to fall from 1, linearly.
        end: First step at which the cap is 0; None for never.
        accuracy: Mean un-hinted accuracy of probed visits at which the cap becomes 0 for good, once the mean
            is based on ``PROBE_MEMORY`` visits; None for never.

    Raises:
        ConfigError: If the steps are not in order or the accuracy is not in (0, 1].
    """

    def __init__(self, *, begin: int = 0, end: int | None = None, accuracy: float | None = None) -> None:
        check_count("withdraw_from", begin, at_least=0)
        if end is not None:
            check_count("withdraw_by", end, at_least=0)
        if end is None and begin:
            raise ConfigError(
                f"seele.hints.settings.withdraw_from: got {begin} without withdraw_by, the first step with "
                "no hints; add withdraw_by, or remove withdraw_from"
            )
        if end is not None and end <= begin:
            raise ConfigError(
                f"seele.hints.settings.withdraw_by: expected a step after withdraw_from ({begin}), got {end}"
            )
        if accuracy is not None and (
            isinstance(accuracy, bool) or not isinstance(accuracy, int | float) or not 0.0 < accuracy <= 1.0
        ):
            raise ConfigError(
                f"seele.hints.settings.withdraw_at: expected an accuracy in (0, 1], got {accuracy!r}"
            )
        self._begin, self._end, self._accuracy = begin, end, accuracy
        self._step = 0
        self._mean, self._num_probed = 0.0, 0
        self._is_over = False

    def begin_step(self, step: int) -> None:
        """Set the clock."""
        self._step = int(step)

    @property
    def cap(self) -> float:
        """The largest hint ratio that is allowed, in [0, 1]."""
        if self._is_over:
            return 0.0
        if self._end is None:
            return 1.0
        return min(max((self._end - self._step) / (self._end - self._begin), 0.0), 1.0)

    def allowed(self, legal_ratios: Sequence[float]) -> NDArray[np.float64]:
        """The legal ratios up to the cap in ascending order, at least the smallest."""
        legal = np.sort(np.asarray(legal_ratios, dtype=np.float64))
        return legal[: max(int(np.searchsorted(legal, self.cap, side="right")), 1)]

    def count_probes(self, accuracy: float) -> None:
        """Add the mean accuracy of a visit's un-hinted rollouts."""
        self._num_probed += 1
        self._mean += (accuracy - self._mean) / min(self._num_probed, PROBE_MEMORY)
        if self._accuracy is not None and self._num_probed >= PROBE_MEMORY and self._mean >= self._accuracy:
            self._is_over = True

    def state(self) -> dict[str, Any]:
        """The state, without the settings."""
        return {
            "step": self._step,
            "mean": self._mean,
            "num_probed": self._num_probed,
            "is_over": self._is_over,
        }

    def restored(self, state: Any) -> "Withdrawal":
        """Return a withdrawal with these settings, restored from ``state``.

        Raises:
            KeyError, TypeError, ValueError: If ``state`` did not come from ``Withdrawal.state``.
        """
        fresh = Withdrawal(begin=self._begin, end=self._end, accuracy=self._accuracy)
        fresh._step, fresh._num_probed = read_count(state["step"]), read_count(state["num_probed"])
        fresh._mean, fresh._is_over = read_ratio(state["mean"]), bool(state["is_over"])
        return fresh

    def metrics(self) -> dict[str, float]:
        """The cap, and the probes' mean accuracy if there is one."""
        probes = {"probe_accuracy": self._mean} if self._num_probed else {}
        return {"hint_cap": self.cap, **probes}
