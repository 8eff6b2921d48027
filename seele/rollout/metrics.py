"""The metrics and the rollout dump of one step, computed from its visits.

Names follow the step's phases; docs/metrics.md defines each. A round that is divided over several hints
counts as several here, one for each hint, without probes and rollouts that the policy did not write.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from seele.maths.efficiency import reward_variance, unbiased_reward_variance
from seele.maths.irt import Array
from seele.records import UNGRADED, Grade, Origin, Rollout, Visit
from seele.rollout.unanswered import Graded, Unanswered, find_unanswered


def rounds_of(visit: Visit) -> Array:
    """(M, 4) round index, hint ratio, accuracy and number of rollouts of each of the visit's rounds. Probes
    count only in a visit of nothing else.
    """
    corrects: dict[tuple[int, float], list[bool]] = defaultdict(list)
    for rollout in [each for each in visit.generated if not each.share.is_probe] or visit.generated:
        corrects[rollout.round_index, rollout.share.hint_ratio].append(rollout.grade.correct)
    return np.array([(*place, np.mean(values), len(values)) for place, values in corrects.items()])


def step_metrics(visits: Sequence[Visit], *, continues_hints: bool = True) -> dict[str, float]:
    """Accuracy, hints and grading of one step.

    Args:
        visits: The step's visits, at least one, each with at least one rollout.
        continues_hints: False if hints stand in the user's turn, so that every rollout is a whole solution.

    Returns:
        Metric name -> value. Means over rounds weigh all rounds equally.
    """
    by_visit = [rounds_of(visit) for visit in visits]
    round_M, ratio_M, accuracy_M, size_M = np.concatenate(by_visit).T
    several_M = size_M > 1
    p10, p50, p90 = np.quantile(ratio_M, [0.1, 0.5, 0.9])
    metrics = {
        "accuracy/mean": float(accuracy_M.mean()),
        "rounds/mean_distance": float(np.abs(accuracy_M - 0.5).mean()),
        "hint_ratio/mean": float(ratio_M.mean()),
        "hint_ratio/p10": float(p10),
        "hint_ratio/p50": float(p50),
        "hint_ratio/p90": float(p90),
    }
    if several_M.any():
        accuracy_S, size_S = accuracy_M[several_M], size_M[several_M]
        metrics["rounds/all_same_share"] = float(np.isin(accuracy_S, (0.0, 1.0)).mean())
        metrics["rounds/mean_a_1_minus_a"] = float(unbiased_reward_variance(accuracy_S, size_S).mean())
    for round_index in sorted(set(round_M.astype(int).tolist())):
        in_round_M = round_M == round_index
        metrics[f"accuracy/round_{round_index}"] = float(accuracy_M[in_round_M].mean())
        metrics[f"hint_ratio/round_{round_index}"] = float(ratio_M[in_round_M].mean())
    rollouts = [rollout for visit in visits for rollout in visit.rollouts]
    probes = [rollout.grade.correct for rollout in rollouts if rollout.share.is_probe]
    if probes:
        metrics["accuracy/probes"] = float(np.mean(probes))
    given = [rollout.grade.correct for rollout in rollouts if rollout.origin is not Origin.POLICY]
    if given:
        metrics["accuracy/off_policy"] = float(np.mean(given))
    metrics["group/off_policy"] = len(given) / len(visits)
    metrics["group/hinted"] = sum(
        rollout.hint_steps > 0 for visit in visits for rollout in visit.generated
    ) / len(visits)
    metrics["group/on_policy"] = (len(rollouts) - len(given)) / len(visits)
    practised = _practised(visits) if continues_hints else {}
    return metrics | _pooled(visits, by_visit) | practised | _thrown_away(visits) | _rollout_shares(visits)


def _pooled(visits: Sequence[Visit], by_visit: Sequence[Array]) -> dict[str, float]:
    """Metrics of each problem's rollouts pooled over the rounds of its visit."""
    mixed = [len({rollout.grade.correct for rollout in visit.generated}) > 1 for visit in visits]
    between, total = 0.0, 0.0
    for rounds_M in by_visit:
        _, _, accuracy_M, size_M = rounds_M[rounds_M[:, 3] > 1].T
        if not size_M.size:
            continue
        within = float(np.average(unbiased_reward_variance(accuracy_M, size_M), weights=size_M))
        pooled = np.average(accuracy_M, weights=size_M)
        # Each hint has a fixed number of rollouts, so the pooled accuracy varies as they do within hints.
        whole = float(reward_variance(pooled)) + within / float(size_M.sum())
        between, total = between + whole - within, total + whole
    return {
        "prompts/nonzero_variance_share": float(np.mean(mixed)),
        "prompts/variance_between_hints": between / total if total else 0.0,
    }


def _thrown_away(visits: Sequence[Visit]) -> dict[str, float]:
    """Share of the rollouts in rounds that were rolled out again; empty if there were none."""
    kept = [len(visit.generated) for visit in visits]
    rounds = [min(rollout.round_index for rollout in visit.generated) for visit in visits]
    thrown = int(np.dot(rounds, kept))
    return {"rollout/thrown_away_share": thrown / (thrown + sum(kept))} if thrown else {}


def _practised(visits: Sequence[Visit]) -> dict[str, float]:
    """Where rollouts began, and how much of each third of the solutions the policy had to write itself; empty
    without hints.
    """
    ratios_R = np.array([rollout.hint_ratio for visit in visits for rollout in visit.generated])
    if not ratios_R.any():
        return {}
    starts_R = np.where(ratios_R > 0.0, np.floor(3 * ratios_R + 1e-9), -1)
    metrics = {"starts/question": float(np.mean(starts_R == -1))}
    for part, name in enumerate(("first_third", "middle_third", "last_third")):
        metrics[f"starts/{name}"] = float(np.mean(starts_R == part))
        metrics[f"practised/{name}"] = float(np.clip(part + 1 - 3 * ratios_R, 0.0, 1.0).mean())
    return metrics


def unanswered_of(visits: Iterable[Visit]) -> Unanswered:
    """The rollouts that the policy wrote in this step and that lack an answer or an end."""
    return find_unanswered(
        Graded(rollout.completion.text, rollout.grade.reason, rollout.completion.finish)
        for visit in visits
        for rollout in visit.generated
    )


def _rollout_shares(visits: Sequence[Visit]) -> dict[str, float]:
    unanswered = unanswered_of(visits)
    rollouts = [rollout for visit in visits for rollout in visit.generated]
    reasons = [rollout.grade.reason for rollout in rollouts]
    wrong_but_rewarded = [rollout.reward > 0.0 and not rollout.grade.correct for rollout in rollouts]
    return _own_numbers(rollouts) | {
        "reward/ungraded_share": float(np.mean([reason in UNGRADED for reason in reasons])),
        "reward/no_answer_share": unanswered.no_answer_share,
        "reward/malformed_share": float(np.mean([reason == "malformed" for reason in reasons])),
        "reward/format_share": float(np.mean(wrong_but_rewarded)),
        "reward/mean": float(np.mean([rollout.reward for rollout in rollouts])),
        "rollout/truncated_share": unanswered.truncated_share,
        "rollout/mean_response_tokens": float(np.mean([len(r.completion.token_ids) for r in rollouts])),
    }


def _own_numbers(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """Mean of each further number from a reward function, over the rollouts that have it."""
    values: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        for name, value in rollout.grade.extra.items():
            if not isinstance(value, str):
                values[name].append(value)
    return {f"reward/{name}": float(np.mean(numbers)) for name, numbers in sorted(values.items())}


def teacher_forced_tokens(visits: Iterable[Visit], *, learns_hints: bool, once_a_round: bool = False) -> int:
    """Number of tokens in the visits' rows that the update learns from but this step did not generate.

    Args:
        visits: Visits that were trained on.
        learns_hints: Whether hint tokens count: they are imitated, or part of the response.
        once_a_round: Whether only the first of a round's rollouts with the same hint learns it.
    """
    tokens = 0
    for visit in visits:
        learnt: set[tuple[int, int]] = set()
        for rollout in visit.rollouts:
            hint = (rollout.round_index, rollout.hint_steps)
            if rollout.origin is not Origin.POLICY:
                tokens += len(rollout.completion.token_ids)
            elif learns_hints and not (once_a_round and hint in learnt):
                learnt.add(hint)
                tokens += visit.hint_tokens(rollout)
    return tokens


def tokens_by_round(visits: Iterable[Visit]) -> Counter[int]:
    """Round -> tokens of the visits' rows: prompts, hints and responses, including given ones."""
    tokens: Counter[int] = Counter()
    for visit in visits:
        for rollout in visit.rollouts:
            length = visit.prompt_tokens + visit.hint_tokens(rollout) + len(rollout.completion.token_ids)
            tokens[rollout.round_index] += length
    return tokens


def packed_tokens(rows: Iterable[tuple[str, int, int]]) -> int:
    """Number of tokens in rows, counting the common prefix of a group's rows once.

    Args:
        rows: For each row, its group, tokens of the prompt with its hint, and tokens of the response. A
            group's prompts are prefixes of its longest one.
    """
    longest: dict[str, int] = {}
    responses = 0
    for group, prompt_tokens, response_tokens in rows:
        longest[group] = max(prompt_tokens, longest.get(group, 0))
        responses += response_tokens
    return responses + sum(longest.values())


def rollout_rows(
    visit: Visit,
    advantages: Mapping[int, float],
    token_columns: Mapping[int, Mapping[str, Sequence[Any]]] | None = None,
) -> Iterator[dict[str, Any]]:
    """The visit's lines of ``rollouts/step_N.jsonl``, one per rollout.

    Args:
        visit: One problem's visit.
        advantages: Rollout index -> advantage that the update used; rollouts not trained on have none.
        token_columns: Rollout index -> further values of the line for each token, by name.
    """
    instance = visit.instance
    for rollout in visit.rollouts:
        yield {
            "step": visit.step,
            "instance_id": instance.instance_id,
            "data_source": instance.data_source,
            "level": instance.level,
            "question": instance.question,
            "answer": instance.answer,
            "hint_ratio": rollout.hint_ratio,
            "hint_steps": rollout.hint_steps,
            "num_steps": instance.num_hint_units,
            "hint": instance.hint(rollout.hint_steps),
            "predicted_accuracy": rollout.share.predicted_accuracy,
            "round": rollout.round_index,
            "rollout": rollout.rollout_index,
            "text": rollout.completion.text,
            "reward": rollout.reward,
            "reason": rollout.grade.reason.value,
            **({"reward_extra": dict(rollout.grade.extra)} if rollout.grade.extra else {}),
            "finish": rollout.completion.finish.value,
            "prompt_tokens": visit.prompt_tokens,
            "hint_tokens": visit.hint_tokens(rollout),
            "is_probe": rollout.share.is_probe,
            "origin": rollout.origin.value,
            "generated_tokens": len(rollout.completion.token_ids) * (rollout.origin is Origin.POLICY),
            "advantage": advantages.get(rollout.rollout_index),
            **_walked(rollout.grade),
            # A prefix that stands in the response is the line's hint.
            **{
                name: values[len(values) - len(rollout.completion.token_ids) :]
                for name, values in (token_columns or {}).get(rollout.rollout_index, {}).items()
            },
        }


def _walked(grade: Grade) -> dict[str, Any]:
    """The walk's segments, each as first token, token after the last, milestone, and whether it passed."""
    if grade.walk is None:
        return {}
    segments = [[each.start, each.end, each.milestone_index, each.passed] for each in grade.walk.segments]
    return {"segments": segments, "is_flagged": grade.is_flagged}
