"""Pass rates over problems that follow a changing policy."""

KEPT_BY_OUTCOME = 0.98
"""Share of the weight of earlier outcomes that remains after an outcome."""


def moved_rate(rate: float, *, passed: float, outcomes: float) -> float:
    """The pass rate after more outcomes, which count all at once, so that their order does not matter.

    Args:
        rate: The pass rate before them, in [0, 1].
        passed: Sum of the outcomes, each in [0, 1].
        outcomes: Number of outcomes, positive.
    """
    kept: float = KEPT_BY_OUTCOME**outcomes
    # In this order: a rate of 1 whose outcomes all passed stays 1.
    return kept * rate + (1.0 - kept) * (passed / outcomes)
