"""Pass rates over problems, which follow a policy that changes."""

KEPT_BY_OUTCOME = 0.98
"""What an outcome leaves of the weight of those before it."""


def moved_rate(rate: float, *, passed: float, outcomes: float) -> float:
    """A pass rate after more outcomes, which come at once, so that their order leaves no trace.

    Args:
        rate: Before them, in [0, 1].
        passed: Sum of the outcomes, each in [0, 1].
        outcomes: Their number, positive.
    """
    kept: float = KEPT_BY_OUTCOME**outcomes
    return kept * rate + (1.0 - kept) * passed / outcomes
