"""One step's visits -> the metrics and the dump that a run leaves.

Axes: V visits, R rounds, G rollouts of a round. Names follow the step's phases; docs/metrics.md defines each.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from seele.records import UNGRADED, Finish, Rollout, Visit


def rounds_of(visit: Visit) -> dict[int, list[Rollout]]:
    """The visit's rollouts by round index, in order."""
    rounds: dict[int, list[Rollout]] = defaultdict(list)
    for rollout in visit.rollouts:
        rounds[rollout.round_index].append(rollout)
    return dict(sorted(rounds.items()))


def step_metrics(visits: Sequence[Visit]) -> dict[str, float]:
    """Accuracy, hints, grading and tokens of one step.

    Args:
        visits: (V,) the step's visits, at least one, every round with at least one rollout.

    Returns:
        Metric name -> value. Means over rounds weigh every (problem, round) pair alike.
    """
    accuracies: dict[int, list[float]] = defaultdict(list)
    hint_ratios: dict[int, list[float]] = defaultdict(list)
    for visit in visits:
        for round_index, rollouts in rounds_of(visit).items():
            accuracies[round_index].append(float(np.mean([rollout.reward for rollout in rollouts])))
            hint_ratios[round_index].append(rollouts[0].hint_ratio)
    accuracy_all = np.concatenate([accuracies[round_index] for round_index in sorted(accuracies)])
    ratio_all = np.concatenate([hint_ratios[round_index] for round_index in sorted(hint_ratios)])
    p10, p50, p90 = np.quantile(ratio_all, [0.1, 0.5, 0.9])
    metrics = {
        "accuracy/mean": float(accuracy_all.mean()),
        "rounds/all_same_share": float(np.isin(accuracy_all, (0.0, 1.0)).mean()),
        "rounds/mean_a_1_minus_a": float((accuracy_all * (1.0 - accuracy_all)).mean()),
        "hint_ratio/mean": float(ratio_all.mean()),
        "hint_ratio/p10": float(p10),
        "hint_ratio/p50": float(p50),
        "hint_ratio/p90": float(p90),
        "prompts/pooled_all_same_share": float(
            np.mean([len({rollout.reward for rollout in visit.rollouts}) == 1 for visit in visits])
        ),
    }
    for round_index in sorted(accuracies):
        metrics[f"accuracy/round_{round_index}"] = float(np.mean(accuracies[round_index]))
        metrics[f"hint_ratio/round_{round_index}"] = float(np.mean(hint_ratios[round_index]))
    return metrics | _rollout_shares(visits) | _token_counts(visits)


def _rollout_shares(visits: Sequence[Visit]) -> dict[str, float]:
    rollouts = [rollout for visit in visits for rollout in visit.rollouts]
    reasons = [rollout.grade.reason for rollout in rollouts]
    return {
        "reward/ungraded_share": float(np.mean([reason in UNGRADED for reason in reasons])),
        "reward/no_answer_share": float(np.mean([reason == "no_answer" for reason in reasons])),
        "rollout/truncated_share": float(np.mean([r.completion.finish is Finish.LENGTH for r in rollouts])),
        "rollout/mean_response_tokens": float(np.mean([len(r.completion.token_ids) for r in rollouts])),
    }


def _token_counts(visits: Sequence[Visit]) -> dict[str, float]:
    prompt = generated = cached = 0
    for visit in visits:
        for rollout in visit.rollouts:
            prompt += visit.prompt_tokens + visit.hint_tokens[rollout.round_index]
            generated += len(rollout.completion.token_ids)
            cached += rollout.completion.cached_prompt_tokens
    return {
        "tokens/prompt": float(prompt),
        "tokens/prefilled": float(prompt - cached),
        "tokens/generated": float(generated),
    }


def rollout_rows(visit: Visit, advantages: Mapping[int, float]) -> Iterator[dict[str, Any]]:
    """The visit's lines of ``rollouts/step_N.jsonl``, one a rollout.

    Args:
        visit: One problem's visit.
        advantages: Rollout index -> advantage that the update used; a rollout that was not trained has none.
    """
    instance = visit.instance
    for rollout in visit.rollouts:
        yield {
            "step": visit.step,
            "instance_id": instance.instance_id,
            "data_source": instance.data_source,
            "question": instance.question,
            "answer": instance.answer,
            "hint_ratio": rollout.hint_ratio,
            "hint_steps": rollout.hint_steps,
            "num_steps": len(instance.steps),
            "hint": "".join(instance.steps[: rollout.hint_steps]),
            "round": rollout.round_index,
            "rollout": rollout.rollout_index,
            "text": rollout.completion.text,
            "reward": rollout.reward,
            "reason": rollout.grade.reason.value,
            "finish": rollout.completion.finish.value,
            "prompt_tokens": visit.prompt_tokens,
            "hint_tokens": visit.hint_tokens[rollout.round_index],
            "generated_tokens": len(rollout.completion.token_ids),
            "advantage": advantages.get(rollout.rollout_index),
        }
