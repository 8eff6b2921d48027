"""When hints are given at all: after a failed first round, and not to every rollout."""

import json
from contextlib import nullcontext
from statistics import fmean

import pytest

from helpers.controllers import end_visit, observe
from seele.config import (
    AdvantageConfig,
    CreditConfig,
    HintConfig,
    ImitationConfig,
    InterleaveConfig,
    OffPolicyConfig,
    SeeleConfig,
)
from seele.config.build import from_mapping
from seele.errors import CheckpointError, ConfigError
from seele.hints import build_controller, configured_controller
from seele.hints.conditions import with_conditions
from seele.maths.advantages import pooled_advantages
from seele.methods import check_method
from seele.methods.baselines import build_baseline, group_of
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Rollout, RoundRequest
from seele.simulate.visits import Schedule, simulate
from seele.simulate.worlds import draw_problems

LEGAL = (0.0, 0.25, 0.5, 0.75)


def build(name="fixed", *, rounds=2, **conditions):
    inner = build_controller(name, rounds=rounds, rollouts_per_round=4, seed=0)
    return with_conditions(inner, **conditions)


def plan(controller, round_index, *, left=8, size=4, problem="p"):
    (shares,) = controller.plan_rounds([RoundRequest(problem, round_index, LEGAL, left)], num_rollouts=size)
    return shares


@pytest.mark.parametrize(
    ("num_correct", "failing_accuracy", "second"),
    [
        (0, 0.0, (HintShare(0.5, 4),)),
        (1, 0.0, (HintShare(0.0, 12),)),  # all that are left, for no later round would have a hint
        (1, 0.25, (HintShare(0.5, 4),)),
        (2, 0.25, (HintShare(0.0, 12),)),
    ],
)
def test_hints_follow_a_failed_first_round(num_correct, failing_accuracy, second):
    controller = build(rounds=4, when="after_failure", failing_accuracy=failing_accuracy)
    assert plan(controller, 0, left=16) == (HintShare(0.0, 4),)
    observe(controller, "p", hint_ratio=0.0, num_correct=num_correct, num_rollouts=4)
    assert plan(controller, 1, left=12) == second
    failed = second[0].hint_ratio > 0
    assert controller.metrics()["failed_share"] == failed
    if failed:
        # What hinted rounds bring changes nothing any more.
        observe(controller, "p", hint_ratio=0.5, num_correct=4, num_rollouts=4)
        assert plan(controller, 2, left=8) == (HintShare(0.5, 4),)
    end_visit(controller, "p")
    assert plan(controller, 0, left=16) == (HintShare(0.0, 4),)


def test_the_inner_controller_hears_of_rounds_without_hint():
    controller = build("bayes", when="after_failure")
    for _ in range(3):
        plan(controller, 0)
        observe(controller, "p", hint_ratio=0.0, num_correct=0, num_rollouts=4)
        (share,) = plan(controller, 1, left=4)
        observe(controller, "p", hint_ratio=share.hint_ratio, num_correct=2, num_rollouts=4)
        end_visit(controller, "p")
    assert share.hint_ratio > 0 and len(controller.curves()) == 1


@pytest.mark.parametrize(
    "conditions", [{"when": "after_failure"}, {"dropout": 0.5}, {"dropout": 0.5, "when": "after_failure"}]
)
def test_rollouts_that_lose_their_hint_have_the_accuracy_that_was_predicted_without_it(conditions):
    controller = build("bayes", **conditions)
    for num_correct in (4, 0):
        unhinted = [share for share in plan(controller, 0) if share.hint_ratio == 0.0]
        # Expected of a problem never seen, then of one that is always solved.
        assert [share.predicted_accuracy for share in unhinted] == [
            pytest.approx(float(controller.predicted_accuracy("p", [0.0])[0]))
        ]
        assert (unhinted[0].predicted_accuracy > 0.5) == (num_correct == 0)
        for _ in range(3):
            observe(controller, "p", hint_ratio=0.0, num_correct=num_correct, num_rollouts=4)
        end_visit(controller, "p")


@pytest.mark.parametrize("conditions", [{"when": "after_failure"}, {"dropout": 0.5}])
@pytest.mark.parametrize("name", ["adaback", "adaprefix", "bisect", "mfc", "paper", "robbins_monro"])
def test_controllers_that_learn_from_their_own_hints_do_not_hear_of_others(name, conditions):
    controller, heard = build(name, **conditions), []
    inner = controller._inner
    inner.observe_rounds = lambda outcomes: heard.extend(each.hint_ratio for each in outcomes)
    chosen, expected = [], []
    plan_rounds = inner.plan_rounds

    def noted(requests, *, num_rollouts):
        plans = plan_rounds(requests, num_rollouts=num_rollouts)
        chosen.extend(share.hint_ratio for share in plans[0])
        return plans

    inner.plan_rounds = noted
    for step in range(1, 30):
        controller.begin_step(step)
        for round_index in range(2):
            for share in plan(controller, round_index, left=4):
                expected += [share.hint_ratio] if share.hint_ratio == chosen[-1] else []
                observe(
                    controller,
                    "p",
                    hint_ratio=share.hint_ratio,
                    num_correct=0,
                    num_rollouts=share.num_rollouts,
                )
        end_visit(controller, "p")
    assert heard == expected and any(heard)
    assert controller.state_dict()["imposed"] == {}


def test_which_hints_are_dropped_does_not_depend_on_the_schedules_own_draws():
    schedule, dropping = build("uniform"), build("uniform", dropout=0.5)
    dropping.begin_step(1)
    lost = {True: [], False: []}
    for problem in map(str, range(400)):
        ((drawn,), (kept,)) = (plan(each, 0, size=1, problem=problem) for each in (schedule, dropping))
        if drawn.hint_ratio:
            lost[drawn.hint_ratio < 0.5].append(kept.hint_ratio == 0.0)
    # At least 90 of each: three standard deviations are 16 points.
    assert all(len(each) > 90 and fmean(each) == pytest.approx(0.5, abs=0.16) for each in lost.values())


def test_the_papers_first_hint_of_a_visit_has_the_stored_rate():
    controller, hints = build("paper", when="after_failure"), []
    for _ in range(3):
        for round_index in range(2):
            (share,) = plan(controller, round_index, left=4)
            hints.append(share.hint_ratio)
            num_correct = 4 * (share.hint_ratio > 0)
            observe(controller, "p", hint_ratio=share.hint_ratio, num_correct=num_correct, num_rollouts=4)
        end_visit(controller, "p")
    assert hints == [0.0, 0.75, 0.0, 0.5, 0.0, 0.25]


def test_what_the_paper_stores_does_not_depend_on_which_part_of_a_round_is_graded_first():
    states = []
    for order in (1, -1):
        inner = build_controller("paper", rounds=2, rollouts_per_round=4, seed=0, store_rate="last_used")
        controller = with_conditions(inner, dropout=0.5)
        shares = plan(controller, 0)
        for share in shares[::order]:
            observe(controller, "p", hint_ratio=share.hint_ratio, num_correct=0, num_rollouts=2)
        end_visit(controller, "p")
        states.append(controller.state_dict())
    assert len(shares) == 2 and states[0] == states[1]


def test_luck_without_the_dropped_hint_does_not_end_mfcs_hints():
    controller, dropped = build("mfc", dropout=0.25), 0
    for step in range(1, 50):
        controller.begin_step(step)
        shares = plan(controller, 0)
        dropped += len(shares) == 2
        for share in shares:
            size = share.num_rollouts
            lucky = len(shares) == 2 and share.hint_ratio == 0.0
            observe(controller, "p", hint_ratio=share.hint_ratio, num_correct=size * lucky, num_rollouts=size)
        end_visit(controller, "p")
    assert dropped and controller.state_dict()["inner"]["memory"]["p"] == [1.0]


def test_rollouts_lose_their_hint_with_the_same_probability():
    controller = build(dropout=0.25)
    kept = []
    for step in range(1, 401):
        controller.begin_step(step)
        shares = plan(controller, 0, size=8)
        assert sum(share.num_rollouts for share in shares) == 8
        assert {share.hint_ratio for share in shares} <= {0.0, 0.5}
        kept.append(sum(share.num_rollouts for share in shares if share.hint_ratio))
    # 3,200 draws of probability 3/4: three standard deviations are 2.3 points.
    assert sum(kept) / 3200 == pytest.approx(0.75, abs=0.023)
    assert plan(build("none", dropout=0.25), 0) == (HintShare(0.0, 4),)
    # Problems and rounds of a step lose theirs apart from each other.
    for places in ([(name, 0) for name in "abcdefgh"], [("a", index) for index in range(8)]):
        assert len({plan(controller, index, size=64, problem=name) for name, index in places}) > 4
    probing = build_controller("bayes", rounds=2, rollouts_per_round=8, probes=2)
    probes, *others = plan(with_conditions(probing, dropout=0.5), 0, size=8)
    assert probes.is_probe and probes.num_rollouts == 2 and not any(each.is_probe for each in others)


@pytest.mark.parametrize(
    "conditions", [{"when": "after_failure"}, {"dropout": 0.5}, {"dropout": 0.5, "when": "after_failure"}]
)
@pytest.mark.parametrize("name", ["bayes", "uft", "robbins_monro"])
def test_a_restored_controller_goes_on_as_the_saved_one(name, conditions):
    saved, restored = build(name, rounds=3, **conditions), build(name, rounds=3, **conditions)
    saved.begin_step(7)
    for problem, right in (("p", 0), ("q", 3)):
        for share in plan(saved, 0, left=12, problem=problem):
            observe(
                saved,
                problem,
                hint_ratio=share.hint_ratio,
                num_correct=min(right, share.num_rollouts),
                num_rollouts=share.num_rollouts,
            )
    restored.load_state_dict(json.loads(json.dumps(saved.state_dict())))
    assert restored.state_dict() == saved.state_dict()
    for problem in ("p", "q"):
        assert plan(restored, 1, problem=problem) == plan(saved, 1, problem=problem)
    with pytest.raises(CheckpointError, match="expected"):
        build(name, rounds=3).load_state_dict(saved.state_dict())


def test_settings_that_mean_nothing_are_refused():
    def hints(**settings):
        return from_mapping(HintConfig, settings, "seele.hints")

    for rollouts, expected in ((8, (4, 2, 1, 1)), (16, (8, 4, 2, 2))):
        halved = hints(rounds=4, rollouts_per_prompt=rollouts, round_sizes=[4, 2, 1, 1])
        assert halved.rollouts_of_rounds == expected
    retried = hints(rounds=3, rollouts_per_prompt=8, when="until_success")
    assert retried.rollouts_of_rounds == (8, 8, 8) and retried.retries
    rescued = hints(rounds=2, rollouts_per_prompt=7, when="rescue")
    assert rescued.rollouts_of_rounds == (7,) and rescued.retries
    assert hints(rounds=2, rollouts_per_prompt=8).rollouts_of_rounds == (4, 4)
    for settings, message in (
        ({"rounds": 4, "rollouts_per_prompt": 8, "round_sizes": [4, 4]}, "round_sizes must be 4 numbers"),
        ({"rounds": 2, "rollouts_per_prompt": 8, "round_sizes": [4, 3]}, "add up to 8"),
        ({"rounds": 2, "rollouts_per_prompt": 4, "round_sizes": [4, 0]}, "at least 1"),
        ({"rounds": 1, "rollouts_per_prompt": 8, "when": "after_failure"}, "at least two rounds"),
        ({"rounds": 1, "rollouts_per_prompt": 8, "when": "until_success"}, "at least two rounds"),
        (
            {"rounds": 2, "rollouts_per_prompt": 8, "when": "until_success", "round_sizes": [4, 4]},
            "round_sizes must be null with when=until_success",
        ),
        ({"rounds": 4, "rollouts_per_prompt": 8, "when": "rescue"}, "rounds must be 2 with when=rescue"),
        ({"kind": "own"}, "kind must .*'own'; .* 'seele data own FILE --model M' makes, .* refresh=epoch"),
        ({"kind": "tiers"}, "kind=tiers needs placement=user"),
        ({"kind": "tiers", "placement": "user", "unit": "token"}, "unit=token and revealing=allow without"),
        ({"placement": "user", "unit": "token"}, "unit=token needs placement=assistant"),
        ({"refresh": "always"}, r"refresh must be one of \['never', 'epoch'\], got 'always'"),
        (
            {"kind": "tiers", "placement": "user", "request": "{question} {hint}", "refresh": "epoch"},
            "refresh=epoch needs kind=prefix",
        ),
        ({"kind": "tiers", "placement": "user"}, r"needs another request, such as"),
        ({"placement": "response"}, "hints in the response choose method=prefix_rft or method=trapo"),
        ({"request": "{question} {hint} {hint}"}, "request must contain"),
        ({"rounds": 2, "when": "after_failure", "round_quorum": 0.5}, "round_quorum must be 1"),
        ({"when": "sometimes"}, "when must be one of"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"failing_accuracy": -0.5}, "failing_accuracy must lie in"),
        ({"failing_accuracy": 0.5, "passing_accuracy": 0.5}, r"passing_accuracy must lie in \(0.5, 1\]"),
    ):
        with pytest.raises(ConfigError, match=message):
            hints(**settings)


def test_hints_of_the_users_are_not_imitated():
    def settings(**changes):
        hints = HintConfig(placement="user", rounds=1)
        return SeeleConfig(method="seele", hints=hints, **changes)

    with pytest.raises(ConfigError, match=r"seele.hints.placement: 'user' .* seele.imitation.coefficient=0"):
        check_method(settings())
    check_method(settings(imitation=ImitationConfig(coefficient=0.0)))
    with pytest.raises(ConfigError, match=r"seele.hints.placement: 'user'"):
        check_method(
            SeeleConfig(
                method="prefix_rft",
                hints=HintConfig(placement="user", controller="prefix_rft", rounds=1),
                off_policy=OffPolicyConfig(source="prefix", loss="surrogate"),
                imitation=ImitationConfig(coefficient=0.0),
            )
        )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"interleave": InterleaveConfig(problems=4)}, "seele.interleave.problems=4 uses the worked ones"),
        ({"credit": CreditConfig(name="milestones")}, r"seele.credit \(milestones, .* uses the worked ones"),
        (
            {"hints": {"controller": "next_milestone"}},
            "controller=next_milestone goes by the milestones of the worked ones",
        ),
        (
            {"off_policy": OffPolicyConfig(source="successes", loss="likelihood", statistics="on_policy")},
            "seele.off_policy.source=successes needs the hints that successes had",
        ),
    ],
)
def test_own_solutions_are_refused_where_the_worked_ones_are_used(changes, why):
    hints = HintConfig(placement="user", rounds=1, refresh="epoch", **changes.pop("hints", {}))
    settings = SeeleConfig(method="seele", hints=hints, imitation=ImitationConfig(coefficient=0.0), **changes)
    with pytest.raises(ConfigError, match=rf"seele.hints.refresh: .*{why}; allowed is 'never'"):
        check_method(settings)


def test_rollouts_with_and_without_hint_are_compared_apart():
    rollouts = [
        Rollout(
            round_index=int(ratio > 0),
            rollout_index=index,
            share=HintShare(ratio, 3),
            hint_steps=int(ratio * 4),
            completion=Completion(text="", token_ids=(1,), log_probs=(0.0,), finish=Finish.STOP),
            grade=Grade(correct, GradeReason.CORRECT if correct else GradeReason.WRONG),
        )
        for index, (ratio, correct) in enumerate(
            [(0, False), (0, False), (0, True), (0.5, True), (0.75, True), (0.5, False)]
        )
    ]
    group = group_of("p", rollouts, penalties=[0.0] * 6, target_accuracy=0.5)
    settings = SeeleConfig(method="seele", advantage=AdvantageConfig(baseline="hinted_apart"))
    baseline = build_baseline(settings, leave_one_out=False, divide_by_std=False)
    thirds = [-1 / 3, -1 / 3, 2 / 3, 1 / 3, 1 / 3, -2 / 3]
    assert baseline(group).tolist() == pytest.approx(thirds)
    assert pooled_advantages(group.rewards_G, divide_by_std=False).tolist() == pytest.approx(
        [-0.5, -0.5, 0.5, 0.5, 0.5, -0.5]
    )


def test_a_simulation_has_unequal_rounds_and_conditions():
    problems = draw_problems("gains", num_problems=40, seed=0)
    schedule = Schedule(hints=HintConfig(rounds=3, rollouts_per_prompt=8, round_sizes=(4, 3, 1)))
    controller = build("bayes", rounds=3, when="after_failure")
    trace = simulate(controller, problems, schedule, seed=0)
    hinted = trace.hint_ratio_NVR[:, 0]
    failed = trace.correct_NVR[:, 0, 0] == 0
    assert failed.any() and not failed.all()
    assert not hinted[:, 0].any() and not hinted[~failed].any() and hinted[failed, 1].all()
    assert (trace.num_rounds_NV[~failed, 0] == 2).all() and (trace.num_rounds_NV[failed, 0] == 3).all()
    # The luck of a visit's rollouts is that of equal rounds.
    no_hint = build("none", rounds=2)
    same = Schedule(hints=HintConfig(rounds=2, rollouts_per_prompt=8))
    equal = simulate(no_hint, problems, same, seed=0).correct_NVR.sum(axis=2)
    unequal = simulate(no_hint, problems, schedule, seed=0).correct_NVR.sum(axis=2)
    assert (equal == unequal).all()


@pytest.mark.parametrize("name", ["ladder", "bread", "each", "trapo", "adhint"])
def test_a_controller_without_a_hint_in_the_first_round_needs_a_second(name):
    with pytest.raises(ConfigError, match=f"controller '{name}' has no hint in its first round, got 1"):
        configured_controller(HintConfig(controller=name, rounds=1, rollouts_per_prompt=4))
    configured_controller(HintConfig(controller=name, rounds=2, rollouts_per_prompt=4))


@pytest.mark.parametrize(
    ("name", "failing", "passing", "works"),
    [
        ("bread", 0.0, 0.5, True),
        ("bread", 0.0, 0.3, False),
        ("bread", 0.5, 0.9, False),
        ("ladder", 0.5, 1.0, True),
        ("ladder", 0.0, 0.9, False),
    ],
)
def test_the_next_hint_follows_the_reason_why_a_round_is_discarded(name, failing, passing, works):
    hints = HintConfig(
        controller=name,
        when="until_success",
        rounds=3,
        failing_accuracy=failing,
        passing_accuracy=passing,
    )
    with nullcontext() if works else pytest.raises(ConfigError, match=r"seele.hints.*passing_accuracy: "):
        configured_controller(hints)
