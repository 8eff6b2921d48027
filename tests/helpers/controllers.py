"""One problem's round, or its visit, as a hint controller meets it."""

from seele.records import RoundOutcome, RoundRequest


def next_hint(controller, instance_id, *, round_index, legal_ratios):
    """The hint ratio of a round of one rollout."""
    (ratio,) = next_hints(controller, [RoundRequest(instance_id, round_index, tuple(legal_ratios))])
    return ratio


def next_hints(controller, requests):
    """The hint ratio of each request's round, which has one rollout."""
    return [share.hint_ratio for (share,) in controller.plan_rounds(requests, num_rollouts=1)]


def observe(controller, instance_id, *, hint_ratio, num_correct, num_rollouts):
    controller.observe_rounds([RoundOutcome(instance_id, hint_ratio, num_correct, num_rollouts)])


def end_visit(controller, instance_id):
    controller.end_visits([instance_id])
