"""The first lines of a comparison: whether the arms differ by more than seeds explain. Pure."""

from collections.abc import Mapping

from seele.report.comparison.curves import COSTS
from seele.report.comparison.results import MIN_SEEDS, Comparison, Result


def verdicts(comparison: Comparison) -> list[str]:
    """Sentences on the arms' differences from the reference: one per arm and split if seeds suffice.

    A single arm gets a sentence that there is no other.
    """
    reference, arms = comparison.reference, comparison.arms
    others = [arm for arm in arms if arm != reference]
    if not others:
        return [f"One arm only, {reference}: there is nothing to compare it with."]
    if all(len(by_seed) == 1 for by_seed in arms.values()):
        return ["1 seed per arm: no difference can be claimed."]
    told = []
    for arm in others:
        common = len(arms[arm].keys() & arms[reference].keys())
        if common < MIN_SEEDS:
            seeds = "1 common seed" if common == 1 else f"{common} common seeds"
            told.append(
                f"{arm} minus {reference}: {seeds}, and an interval needs {MIN_SEEDS}: no difference can be "
                "claimed."
            )
        else:
            told += [
                f"{arm} minus {reference} on {split}: the 95 % interval by Student's t, in points, "
                f"{_about_zero(arm, by_cost)}."
                for split, by_cost in comparison.results.items()
            ]
    return told


def _about_zero(arm: str, by_cost: Mapping[str, Result]) -> str:
    """By which costs the interval of the arm's difference excludes zero, by which it includes zero, and by
    which there is none.
    """
    excludes, includes = "excludes zero", "includes zero"
    equal = "does not exist, because all seeds differ by the same amount,"
    costs: dict[str, list[str]] = {excludes: [], includes: [], equal: []}
    for cost, result in by_cost.items():
        difference = result.arms[arm].difference
        assert difference is not None, "there are enough seeds"
        # Two decimals: with one, an end just above zero would read +0.0.
        if difference.t_interval_95 is None:
            costs[equal].append(f"{COSTS[cost].title} ({100.0 * difference.mean:+.2f})")
            continue
        low, high = difference.t_interval_95
        costs[excludes if low > 0.0 or high < 0.0 else includes].append(
            f"{COSTS[cost].title} ({100.0 * low:+.2f} to {100.0 * high:+.2f})"
        )
    return "; ".join(f"{what} at equal {', '.join(each)}" for what, each in costs.items() if each)
