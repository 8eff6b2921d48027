"""Three-parameter logistic (3PL) response model: accuracy as a function of the hint ratio.

One curve belongs to one instance at one state of the policy. Symbols follow SEELE (arXiv:2509.06923),
Eq. 11-12. ``seele.maths.irt_fit`` fits a curve; the controller decides what to do with it.

N counts hint ratios.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ItemCurve:
    """One instance's accuracy-hint curve.

    Attributes:
        slope: Discrimination k > 0, in logits per unit of hint ratio.
        shift: Shifted capability mu. The accuracy is halfway between the floor and 1 at hint ratio
            ``-shift``, which lies outside [0, 1] if the instance is trivial or hopeless.
        floor: Guessing rate b in [0, 1), the accuracy as the hint ratio -> -inf.
    """

    slope: float
    shift: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 < self.slope < math.inf and math.isfinite(self.shift) and 0.0 <= self.floor < 1.0):
            raise ValueError(f"a curve needs slope > 0, a finite shift and floor in [0, 1), got {self}")


def predict_accuracy(curve: ItemCurve, hint_ratio: ArrayLike) -> Array:
    """Predicted accuracy at each hint ratio.

        f(p) = b + (1 - b) / (1 + exp(-k (p + mu)))                  Eq. 12

    Args:
        curve: The instance's curve.
        hint_ratio: (N,) fractions of the solution revealed.

    Returns:
        (N,) accuracies in [floor, 1], never decreasing in ``hint_ratio``.
    """
    return curve.floor + (1.0 - curve.floor) * _rise(curve, np.asarray(hint_ratio, dtype=np.float64))


def accuracy_gradient(curve: ItemCurve, hint_ratio: ArrayLike) -> Array:
    """Derivative of ``predict_accuracy`` with respect to (slope, shift, floor).

    Returns:
        (N, 3) partial derivatives, columns in the order of the fields of ``ItemCurve``.
    """
    ratio_N = np.asarray(hint_ratio, dtype=np.float64)
    rise_N = _rise(curve, ratio_N)
    by_logit_N = (1.0 - curve.floor) * rise_N * (1.0 - rise_N)
    return np.stack([by_logit_N * (ratio_N + curve.shift), by_logit_N * curve.slope, 1.0 - rise_N], axis=-1)


def invert(curve: ItemCurve, target_accuracy: float) -> float:
    """Hint ratio at which the curve crosses ``target_accuracy``; the inverse of ``predict_accuracy``.

        p* = -mu + ln((a* - b) / (1 - a*)) / k, clamped to [0, 1]; 0 if a* <= b

    A floor above the target means that the instance is easy enough without a hint. A result of 0 or 1 may be
    clamped: the curve then lies above or below the target on all of [0, 1].

    Raises:
        ValueError: If the target is not in (0, 1).
    """
    if not 0.0 < target_accuracy < 1.0:
        raise ValueError(f"target_accuracy must lie in (0, 1), got {target_accuracy:g}")
    if target_accuracy <= curve.floor:
        return 0.0
    odds = (target_accuracy - curve.floor) / (1.0 - target_accuracy)
    return min(max(-curve.shift + math.log(odds) / curve.slope, 0.0), 1.0)


def _rise(curve: ItemCurve, ratio_N: Array) -> Array:
    # tanh form of the sigmoid: exp(-logit) overflows for a steep curve far from its midpoint.
    rise_N: Array = 0.5 * (1.0 + np.tanh(0.5 * curve.slope * (ratio_N + curve.shift)))
    return rise_N
