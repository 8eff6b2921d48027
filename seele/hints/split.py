"""Whether a round tells more under two hints than under one: a look one round ahead."""

import math

import numpy as np

from seele.maths import curve_grid
from seele.maths.curve_grid import Array32
from seele.maths.irt import Array
from seele.records import HintShare

MARGIN = 1e-5
"""Two hints must promise more than one by this."""

_TINY = np.finfo(np.float32).tiny


def best_plan(
    belief_G: Array32, worth_GT: Array32, *, allowed: Array, best: int, num_rollouts: int
) -> tuple[HintShare, ...]:
    """The best of: all rollouts under the best hint, or half of them under one of its two neighbours.

    For this round alone one hint is best. Two can tell more about the curve, which pays in the next round:
    judged is the expected worth of a rollout in this round, plus in the next one under the hint that is best
    then.

    Args:
        belief_G: (G,) belief about the problem's curve.
        worth_GT: (G, T) worth of a rollout (``curve_grid.utility_table``).
        allowed: Hint ratios to choose from, in ascending order.
        best: Position of the best one for this round.
        num_rollouts: At least 2.
    """
    half = num_rollouts // 2
    neighbours = [position for position in (best - 1, best + 1) if 0 <= position < len(allowed)]
    plans = [(HintShare(float(allowed[best]), num_rollouts),)] + [
        (HintShare(float(allowed[best]), num_rollouts - half), HintShare(float(allowed[other]), half))
        for other in neighbours
    ]
    worths = [_worth_of_two_rounds(belief_G, worth_GT, plan, allowed) for plan in plans]
    winner = int(np.argmax(worths))
    return plans[winner] if worths[winner] > worths[0] + MARGIN else plans[0]


def _worth_of_two_rounds(
    belief_G: Array32, worth_GT: Array32, plan: tuple[HintShare, ...], allowed: Array
) -> float:
    total = sum(share.num_rollouts for share in plan)
    # O: outcomes of the plan so far, by the number of correct rollouts under each hint.
    belief_OG, chance_O, now = belief_G[None], np.ones(1), 0.0
    for share in plan:
        (column,) = curve_grid.nearest_columns([share.hint_ratio])
        now += share.num_rollouts / total * float(belief_G @ worth_GT[:, column])
        likelihood_KG = _likelihood_of_counts(share)
        joint_OKG = belief_OG[:, None, :] * likelihood_KG
        evidence_OK = joint_OKG.sum(axis=2, keepdims=True)
        # An outcome may be so improbable that nothing of it is left in float32.
        belief_OG = (joint_OKG / np.maximum(evidence_OK, _TINY)).reshape(-1, curve_grid.NUM_CURVES)
        chance_O = (chance_O[:, None] * evidence_OK[..., 0]).ravel()
    worth_OJ = belief_OG @ worth_GT[:, curve_grid.nearest_columns(allowed)]
    return now + float(chance_O @ worth_OJ.max(axis=1))


def _likelihood_of_counts(share: HintShare) -> Array32:
    """(K, G) probability of 0 .. num_rollouts correct rollouts under each curve."""
    correct_K1 = np.arange(share.num_rollouts + 1, dtype=np.float64)[:, None]
    choose_K1 = np.array(
        [[math.log(math.comb(share.num_rollouts, int(correct)))] for (correct,) in correct_K1]
    )
    likelihood_KG: Array32 = np.exp(
        choose_K1
        + curve_grid.log_likelihood(
            np.full_like(correct_K1, share.hint_ratio), correct_K1, share.num_rollouts - correct_K1
        )
    ).astype(np.float32)
    return likelihood_KG
