"""The reward for plain verl: MathRuler on the last box, as in our runs, within the same limits."""

from functools import cache
from typing import Any

from seele.reward.grader import GraderPool


@cache
def _pool() -> GraderPool:
    return GraderPool()


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> float:
    """1.0 for a correct answer, else 0.0; verl calls this for every rollout."""
    return float(_pool().grade(solution_str, ground_truth).correct)
