"""Rules of published controllers, worked by hand."""

import json

import pytest

from helpers.controllers import end_visit, next_hint, observe
from seele.errors import ConfigError
from seele.hints import build_controller
from seele.records import RoundRequest

LEGAL = (0.0, 0.2, 0.4, 0.6, 0.8)


def build(name, *, rounds=1, training_steps=None, **settings):
    run = {"rounds": rounds, "rollouts_per_round": 8, "training_steps": training_steps}
    return build_controller(name, **run, **settings)


def ratio(controller, round_index=0, *, problem="p"):
    return next_hint(controller, problem, round_index=round_index, legal_ratios=LEGAL)


def see(controller, hint_ratio, right, *, of=8, problem="p"):
    observe(controller, problem, hint_ratio=hint_ratio, num_correct=right, num_rollouts=of)


def drawn(controller, times=200):
    """The different ratios of many visits without outcomes."""
    ratios = []
    for _ in range(times):
        ratios.append(ratio(controller))
        end_visit(controller, "p")
    return sorted(set(ratios))


def test_adaback_halves_its_interval_at_random():
    controller = build("adaback", threshold=0.5)
    assert drawn(controller) == [*LEGAL]
    see(controller, 0.6, 4)  # half is a success: [0, 0.6]
    assert drawn(controller) == [0.0, 0.2, 0.4, 0.6]
    see(controller, 0.2, 3)  # a failure: [0.2, 0.6]
    assert drawn(controller) == [0.2, 0.4, 0.6]
    see(controller, 0.4, 8)  # a success opens the interval downwards again: [0, 0.4]
    assert drawn(controller) == [0.0, 0.2, 0.4]
    see(controller, 0.4, 0)  # the high end never grows: [0.4, 0.4]
    assert drawn(controller) == [0.4]
    see(controller, 0.4, 0)
    assert drawn(controller) == [0.4]


def test_adaback_takes_the_next_longer_hint_where_a_new_solution_has_none_in_the_interval():
    controller = build("adaback")
    see(controller, 0.2, 8)
    see(controller, 0.2, 0)  # [0.2, 0.2]
    for legal, ratio in (((0.0, 0.5, 0.75), 0.5), ((0.0, 0.1), 0.1)):
        assert next_hint(controller, "p", round_index=0, legal_ratios=legal) == ratio


def test_adabacks_new_problems_begin_where_the_others_fail():
    controller = build("adaback")
    controller.begin_step(1)
    see(controller, 0.8, 0)  # low end 0.8
    see(controller, 0.6, 8, problem="q")  # low end 0
    assert controller.remembered("new") == (0.0, 0.9)
    saved = json.loads(json.dumps(controller.state_dict()))
    again = build("adaback")
    again.load_state_dict(saved)
    for each in (controller, again):
        each.begin_step(2)  # 0.2 x the mean of 0.8 and 0
        assert each.remembered("new") == (pytest.approx(0.08), 0.9)
        see(each, 0.8, 0, problem="q")
        each.begin_step(3)  # 0.8 x 0.08 + 0.2 x 0.8
        assert each.remembered("new") == (pytest.approx(0.224), 0.9)
        each.begin_step(4)  # nothing was visited
        assert each.remembered("new") == (pytest.approx(0.224), 0.9)
        ratios = {next_hint(each, "new", round_index=number, legal_ratios=LEGAL) for number in range(50)}
        assert ratios == {0.4, 0.6, 0.8}
        assert each.remembered("p") == (0.8, 0.9)
    assert controller.state_dict() == again.state_dict()


def test_the_ratchet_of_mfc_only_falls():
    controller = build("mfc")
    assert drawn(controller) == [*LEGAL]
    see(controller, 0.6, 3)  # below one half
    assert drawn(controller) == [*LEGAL]
    see(controller, 0.6, 4)
    assert drawn(controller) == [0.0, 0.2, 0.4, 0.6]
    see(controller, 0.2, 8)
    assert drawn(controller) == [0.0, 0.2]
    for _ in range(3):
        see(controller, 0.2, 0)
    assert drawn(controller) == [0.0, 0.2]
    assert controller.metrics()["mean_rate"] == 0.2


def test_adaprefix_moves_every_ten_steps_and_withdraws_late():
    controller = build("adaprefix", training_steps=100, begin=0.4, gain=0.5, smoothing=0.5)
    controller.begin_step(1)
    assert ratio(controller) == 0.4
    see(controller, 0.4, 8)  # s = (0.5 + 1) / 2
    controller.begin_step(9)
    assert ratio(controller) == 0.4
    controller.begin_step(10)  # x = 0.4 + 0.5 (0.5 - 0.75) = 0.275
    assert ratio(controller) == 0.2
    controller.begin_step(20)  # not seen since, so it stays
    assert ratio(controller) == 0.2
    for _ in range(4):
        see(controller, 0.2, 0)  # s = 0.75 / 16
    controller.begin_step(30)  # x = 0.275 + 0.5 (0.5 - 0.047) = 0.5016
    assert ratio(controller) == 0.6
    assert controller.metrics()["mean_rate"] == pytest.approx(0.275 + 0.5 * (0.5 - 0.75 / 16))
    controller.begin_step(90)  # half of the last fifth is over
    assert ratio(controller) == 0.2
    controller.begin_step(100)
    assert ratio(controller) == 0.0


def trapo(*outcomes):
    """Ratios of the rounds of 4, 2, 1 and 1 rollouts, of which so many are right."""
    controller, ratios = build("trapo", rounds=4), []
    for round_index, (of, right) in enumerate(zip((4, 2, 1, 1), outcomes, strict=False)):
        ratios.append(ratio(controller, round_index))
        see(controller, ratios[-1], right, of=of)
    ratios.append(ratio(controller, len(outcomes)))
    return ratios


def test_trapo_reveals_more_where_the_visit_goes_badly():
    # Under 2 of 4 a quarter, under 4 of 6 one half, unless 7 of 7 as much as is legal.
    assert trapo(1, 2, 1) == [0.0, 0.2, 0.4, 0.8]  # 1/4; 3/6; 4/7
    assert trapo(2, 2, 1) == [0.0, 0.0, 0.0, 0.8]  # 2/4; 4/6; 5/7
    assert trapo(4, 2, 1) == [0.0, 0.0, 0.0, 0.0]
    assert trapo(4, 2, 0) == [0.0, 0.0, 0.0, 0.8]


def test_trapo_begins_each_visit_anew():
    controller = build("trapo", rounds=4)
    assert ratio(controller) == 0.0
    see(controller, 0.0, 4, of=4)
    end_visit(controller, "p")
    assert ratio(controller) == 0.0
    see(controller, 0.0, 0, of=4)
    assert ratio(controller, 1) == 0.2
    with pytest.raises(ConfigError, match=r"below: expected as many numbers as shares \(3\), got \[0.5\]"):
        build("trapo", below=[0.5])
    with pytest.raises(ConfigError, match=r"shares: expected numbers in \[0, 1\], got 0.5"):
        build("trapo", shares=0.5)


def test_each_hint_of_scaf_grpo_is_tried_once_after_the_steps_without():
    controller = build("each", rounds=2, warmup_steps=50, training_steps=51)
    with pytest.raises(ConfigError, match=r"50 steps without hints are all of the run's 50; set .* below 50"):
        build("each", rounds=2, warmup_steps=50, training_steps=50)
    legal = tuple(tier / 13 for tier in range(13))

    def plan(round_index, num_rollouts, legal=legal):
        (shares,) = controller.plan_rounds(
            [RoundRequest("p", round_index, legal, num_rollouts)], num_rollouts=num_rollouts
        )
        return [(share.hint_ratio, share.num_rollouts) for share in shares]

    controller.begin_step(50)
    assert plan(1, 12) == [(0.0, 12)]
    controller.begin_step(51)
    assert plan(0, 8) == [(0.0, 8)]
    assert plan(1, 12) == [(tier / 13, 1) for tier in range(1, 13)]
    assert plan(1, 5, (0.0, 1 / 3, 2 / 3)) == [(1 / 3, 3), (2 / 3, 2)]
    assert plan(1, 5, (0.0,)) == [(0.0, 5)]
    # Two visits: one that begins with round 1, as after a resume, and one with round 0.
    assert controller.metrics() == {"problems": 1.0, "visits": 2.0}


def test_the_ladder_of_ghpo_goes_by_the_round():
    controller = build("ladder", rounds=5)
    assert [ratio(controller, number) for number in range(5)] == [0.0, 0.2, 0.4, 0.8, 0.8]


@pytest.mark.parametrize(
    ("settings", "num_steps", "steps"),
    [
        pytest.param({}, 2, [0, 1, 1, 1], id="GHPO, two steps"),
        pytest.param({}, 3, [0, 1, 2, 2], id="SAGE, two tiers"),
        pytest.param({"shares": (0.5, 0.75, 0.875)}, 3, [0, 1, 2, 2], id="three steps"),
        pytest.param({"shares": (0.5, 0.75, 0.875)}, 4, [0, 2, 3, 3], id="four steps"),
        pytest.param({}, 1, [0, 0, 0, 0], id="nothing to reveal"),
        pytest.param({"shares": (0.75, 0.75, 0.25)}, 8, [0, 6, 6, 2], id="shares that do not grow"),
    ],
)
def test_the_ladder_climbs_until_no_longer_hint_is_legal(settings, num_steps, steps):
    controller = build("ladder", rounds=4, **settings)
    legal = [revealed / num_steps for revealed in range(num_steps)]
    planned = [next_hint(controller, "p", round_index=number, legal_ratios=legal) for number in range(4)]
    assert planned == [revealed / num_steps for revealed in steps]


def test_bread_searches_the_shortest_prefix_whose_group_is_mixed():
    controller = build("bread", rounds=5)
    legal = [revealed / 10 for revealed in range(10)]  # ten steps, as many episodes as in the paper

    def search(*corrects):
        """Hints of a visit, in steps, given how many of 8 rollouts are correct in each round."""
        ratios = []
        for number, right in enumerate((*corrects, 0)):
            ratios.append(next_hint(controller, "p", round_index=number, legal_ratios=legal))
            see(controller, ratios[-1], right)
        end_visit(controller, "p")
        return [round(10 * each) for each in ratios]

    assert search(0, 0, 0, 0) == [0, 5, 7, 8, 9]
    assert search(0, 8, 8, 8) == [0, 5, 2, 1, 1]  # nothing is shorter
    assert search(0, 8, 0, 8) == [0, 5, 2, 3, 3]  # nothing is in between
    assert search(0, 0, 8, 8) == [0, 5, 7, 6, 6]
    # A dropped hint says nothing, and a visit is found again after a checkpoint.
    assert ratio(controller, 0) == 0.0
    see(controller, 0.0, 8)
    assert ratio(controller, 1) == 0.4
    see(controller, 0.4, 8)
    other = build("bread", rounds=5)
    other.load_state_dict(json.loads(json.dumps(controller.state_dict())))
    assert ratio(other, 2) == ratio(controller, 2) == 0.2
    assert next_hint(build("bread"), "p", round_index=1, legal_ratios=[0.0]) == 0.0


def test_prefix_rl_has_three_fixed_prefixes_of_a_problem_and_none():
    controller = build("prefix_rl")
    tenths = [revealed / 10 for revealed in range(10)]

    def planned(problem, legal):
        rounds = [(visit, number) for visit in range(100) for number in range(4)]
        drawn = [next_hint(controller, problem, round_index=n, legal_ratios=legal) for _, n in rounds]
        return {each: drawn.count(each) for each in sorted({*drawn})}

    seen = [planned(f"p{number}", tenths) for number in range(20)]
    assert all(2 <= len(each) <= 4 and {*each} <= {0.0, 0.4, 0.5, 0.6, 0.7, 0.8} for each in seen)
    assert len({tuple(each) for each in seen}) > 5
    assert all(70 <= each[0.0] <= 130 for each in seen)  # a quarter of 400
    assert {*planned("p0", tenths)} == {*seen[0]}
    # A solution of two steps has one prefix, one of a single step has none.
    assert {*planned("short", [0.0, 0.5])} == {0.0, 0.5} and {*planned("one", [0.0])} == {0.0}
    with pytest.raises(ConfigError, match=r"settings\.largest"):
        build("prefix_rl", smallest=0.5, largest=0.4)


def test_adhint_reveals_the_more_the_harder_the_first_round_was():
    controller = build("adhint", rounds=3, smallest=0.0, largest=0.8)
    for right, expected in ((0, 0.8), (2, 0.6), (4, 0.4), (8, 0.0)):
        assert ratio(controller) == 0.0
        see(controller, 0.0, right)
        assert ratio(controller, 1) == expected
        see(controller, expected, 8)  # says nothing about the problem without hints
        assert ratio(controller, 2) == expected
        end_visit(controller, "p")
