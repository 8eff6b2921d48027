"""How far two results may lie apart: not much further than half precision itself lies from single precision.

A bound in absolute numbers would have to know the model, the card and the kernels. Instead everything is
computed three times: by what is checked, by plain PyTorch in the same precision, and by plain PyTorch in
single precision.
"""

from dataclasses import dataclass
from typing import Any

FACTOR_MEAN, FACTOR_LARGEST = 3.0, 6.0
"""Of plain PyTorch's own error in the same precision: other kernels round elsewhere, not more."""
FLOOR = 1e-3
"""Always allowed: the order of additions, where the same precision is single precision."""


class CheckFailed(Exception):
    """What the check found wrong, in one line."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Mean and largest absolute difference."""

    mean: float
    largest: float

    def __str__(self) -> str:
        return f"{self.mean:.2g} (largest {self.largest:.2g})"


def distance(first: Any, second: Any) -> Distance:
    """Between two tensors; infinite where one of them holds a NaN.

    Raises:
        CheckFailed: If their shapes differ.
    """
    if first.shape != second.shape:
        raise CheckFailed(f"shapes differ: {tuple(first.shape)} and {tuple(second.shape)}")
    difference = (first.double() - second.double()).abs()
    if difference.isnan().any():
        return Distance(float("inf"), float("inf"))
    return Distance(difference.mean().item(), difference.max().item())


def compare(what: str, checked: Any, plain: Any, single: Any, *, relative: bool = False) -> str:
    """What was measured, in words, where ``checked`` is off by no more than rounding.

    Args:
        what: What is compared.
        checked: Tensor from what is checked.
        plain: The same from plain PyTorch, in the precision of ``checked``.
        single: The same from plain PyTorch, in single precision.
        relative: Whether distances are in units of the root mean square of ``single``: for gradients, whose
            size means nothing.

    Raises:
        CheckFailed: If ``checked`` is further from ``single`` than rounding explains.
    """
    unit = single.double().square().mean().sqrt() if relative else 1.0
    measured, own = (distance(tensor.double() / unit, single.double() / unit) for tensor in (checked, plain))
    allowed = Distance(FACTOR_MEAN * own.mean + FLOOR, FACTOR_LARGEST * own.largest + FLOOR)
    if not (measured.mean <= allowed.mean and measured.largest <= allowed.largest):
        raise CheckFailed(f"{what}: {measured} from single precision, but rounding explains only {allowed}")
    return f"{what} {measured} from single precision, where PyTorch itself is {own}"
