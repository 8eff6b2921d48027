"""Choose the rollouts that the page shows. Pure."""

from collections.abc import Sequence

from seele.report.run_folder import RolloutLine


def choose_examples(rollouts: Sequence[RolloutLine], *, count: int) -> list[RolloutLine]:
    """Choose ``count`` rollouts of different problems: correct and wrong in turn, from short to long hints.

    Deterministic: the same rollouts give the same examples.
    """
    chosen: list[RolloutLine] = []
    shown: set[str] = set()
    by_verdict = {
        is_correct: sorted(
            (rollout for rollout in rollouts if rollout.is_correct is is_correct),
            key=lambda rollout: (rollout.hint_ratio, rollout.instance_id, rollout.round),
        )
        for is_correct in (True, False)
    }
    for index in range(count):
        # Alternate, and take the other kind where one is used up.
        for is_correct in (index % 2 == 0, index % 2 == 1):
            pool = [rollout for rollout in by_verdict[is_correct] if rollout.instance_id not in shown]
            if pool:
                rollout = pool[round(index / max(1, count - 1) * (len(pool) - 1))]
                chosen.append(rollout)
                shown.add(rollout.instance_id)
                break
    return chosen
