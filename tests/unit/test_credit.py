"""Credit by milestones: advantages of segments, false alarms, and errors seen while a text is written."""

import dataclasses
import json
import random
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.controllers import end_visit, next_hint, observe
from seele.config import CreditConfig
from seele.errors import CheckpointError, ConfigError, PluginError
from seele.hints.bayes import BayesController
from seele.hints.next_milestone import NextMilestoneController
from seele.maths.pass_rates import KEPT_BY_OUTCOME as DECAY
from seele.maths.pass_rates import moved_rate
from seele.methods.credit import FEWEST_ALARMS, MilestoneCredit
from seele.records import (
    Completion,
    Finish,
    Grade,
    GradeReason,
    HintShare,
    Instance,
    Milestone,
    Origin,
    Rollout,
    RoundRequest,
    Segment,
    Visit,
    Walk,
)
from seele.reward import walks
from seele.reward.milestones import find_milestones, num_shown, walk
from seele.reward.walks import ErrorWatch, find_walk
from seele.rollout.sampling import in_tokens, token_counts

MILESTONES = (Milestone("12", 6), Milestone("24", 12), Milestone("7", 20))
SETTINGS = CreditConfig(name="milestones", stop=True)


def rollout(index, *passed, error=False, reward=None, flagged=None, length=10):
    """One that came to the first milestones, two tokens each; last the answer's segment, or an error's."""
    segments = [Segment(2 * j, 2 * j + 2, j, each) for j, each in enumerate(passed)]
    if not error:
        segments[-1] = segments[-1]._replace(end=length, milestone_index=len(MILESTONES) - 1)
    correct = not error and passed[-1]
    return Rollout(
        round_index=0,
        rollout_index=index,
        share=HintShare(0.0, 1),
        hint_steps=0,
        completion=Completion(text="", token_ids=(1,) * length, log_probs=(), finish=Finish.STOP),
        grade=Grade(
            correct,
            GradeReason.CORRECT if correct else GradeReason.WRONG,
            score=reward,
            walk=Walk(tuple(segments), segments[-1].start + 1 if error else None),
            is_flagged=error if flagged is None else flagged,
        ),
    )


def visit(*rollouts, milestones=MILESTONES):
    instance = Instance(
        instance_id="p", data_source="x", question="q", steps=("s",), answer="7", milestones=milestones
    )
    return Visit(instance=instance, step=1, prompt_tokens=3, step_tokens=(4,), rollouts=rollouts)


GROUP = (
    rollout(0, True, True, True),
    rollout(1, True, True, False),
    rollout(2, True, False, error=True),
    rollout(3, False, error=True),
)
GIVEN = dataclasses.replace(rollout(4, True, True, True), origin=Origin.REPLAY)
"""An earlier success beside the group: it has no credit, and teaches nothing."""


def test_a_segment_is_compared_with_the_other_rollouts_that_came_to_its_milestone():
    credit = MilestoneCredit(SETTINGS)
    spans = credit.take_step({"u": visit(*GROUP, GIVEN)})["u"]
    assert spans.keys() == {0, 1, 2, 3}
    # Milestone 0: 1 1 1 0; milestone 1: 1 1 0; the answer: 1 0. Rates of other problems: 1/2, for 2 rollouts.
    first = 1 - (2 + 1) / (3 + 2)
    assert spans[0] == [
        (0, 2, pytest.approx(first)),
        (2, 4, pytest.approx(1 - (1 + 1) / (2 + 2))),
        (4, 10, pytest.approx(1 - (0 + 1) / (1 + 2))),
    ]
    assert spans[1][2] == (4, 10, pytest.approx(0 - (1 + 1) / (1 + 2)))
    # Nothing stands behind an error.
    assert spans[2] == [(0, 2, pytest.approx(first)), (2, 4, pytest.approx(0 - (2 + 1) / (2 + 2)))]
    assert spans[3] == [(0, 2, pytest.approx(0 - (3 + 1) / (3 + 2)))]


def test_the_answer_counts_as_much_as_its_reward():
    group = (rollout(0, True, True, True, reward=0.8), rollout(1, True, True, False, reward=0.1))
    spans = MilestoneCredit(SETTINGS).take_step({"u": visit(*group)})["u"]
    assert spans[0][2].advantage == pytest.approx(0.8 - (0.1 + 1) / 3)
    assert spans[1][2].advantage == pytest.approx(0.1 - (0.8 + 1) / 3)


def test_a_sure_error_on_the_way_to_the_answer_earns_nothing_stopped_or_not():
    def with_error(index, reward):
        wrong = rollout(index, True, True, False, reward=reward)
        walked = dataclasses.replace(wrong.grade.walk, first_error=5)
        return dataclasses.replace(wrong, grade=dataclasses.replace(wrong.grade, walk=walked))

    # The first is never stopped, and its form earns something.
    spans = MilestoneCredit(SETTINGS).take_step({"u": visit(with_error(0, 0.1), with_error(1, None))})["u"]
    assert spans[0] == spans[1] and spans[0][2].advantage == pytest.approx(0 - (0 + 1) / 3)


def test_without_a_prior_a_rollout_alone_is_compared_with_the_pass_rate():
    credit = MilestoneCredit(CreditConfig(name="milestones", prior_rollouts=0.0))
    spans = credit.take_step({"u": visit(*GROUP)})["u"]
    assert spans[3][0].advantage == pytest.approx(0 - 3 / 3)
    alone = MilestoneCredit(CreditConfig(name="milestones", prior_rollouts=0.0))
    assert alone.take_step({"u": visit(GROUP[0])})["u"][0][0].advantage == pytest.approx(0.5)


def test_pass_rates_go_by_the_milestones_left_and_serve_the_next_step():
    credit = MilestoneCredit(SETTINGS)
    credit.take_step({"u": visit(*GROUP, GIVEN)})
    kept = DECAY**4
    rate = kept * 0.5 + (1 - kept) * 0.75
    assert credit.state_dict()["rates"]["2"] == pytest.approx(rate)
    # A shorter solution: its first milestone lies one before the answer.
    alone = rollout(0, True, True)
    walk = Walk((Segment(0, 2, 0, True), Segment(2, 10, 1, True)), None)
    alone = dataclasses.replace(alone, grade=dataclasses.replace(alone.grade, walk=walk))
    short = visit(alone, milestones=MILESTONES[:2])
    spans = credit.take_step({"u": short})["u"][0]
    one_left = DECAY**3 * 0.5 + (1 - DECAY**3) * 2 / 3
    assert spans[0].advantage == pytest.approx(1 - one_left)


def test_a_pass_rate_of_one_stays_one():
    # 83 outcomes: with the product first, the rate would round to 1 + 2e-16, which no checkpoint may hold.
    assert {moved_rate(1.0, passed=count, outcomes=count) for count in range(1, 2000)} == {1.0}


def test_the_order_of_problems_makes_no_difference():
    visits = {f"u{seed}": visit(*random.Random(seed).sample(GROUP, 3)) for seed in range(9)}
    one, other = MilestoneCredit(SETTINGS), MilestoneCredit(SETTINGS)
    assert one.take_step(visits) == other.take_step(dict(reversed(visits.items())))
    assert one.state_dict() == other.state_dict()


def test_stopping_ends_for_good_where_right_rollouts_would_be_stopped():
    alarm = rollout(0, True, True, True, flagged=True)
    credit = MilestoneCredit(SETTINGS)
    for step in range(FEWEST_ALARMS):
        assert credit.stops, step
        credit.take_step({"u": visit(alarm)})
    assert not credit.stops and credit.false_alarms == 1.0
    for _ in range(500):
        credit.take_step({"u": visit(rollout(0, True, True, True))})
    assert credit.false_alarms < SETTINGS.stop_below and not credit.stops
    resumed, never = MilestoneCredit(SETTINGS), MilestoneCredit(CreditConfig(name="milestones"))
    resumed.load_state_dict(credit.state_dict())
    assert not resumed.stops
    # A run that did not stop has not ended stopping: it may go on with it.
    resumed.load_state_dict(never.state_dict())
    assert not never.stops and resumed.stops


def test_rollouts_that_may_have_been_stopped_say_nothing_about_false_alarms():
    credit = MilestoneCredit(SETTINGS)
    right = [rollout(index, True, True, True) for index in range(3)]
    credit.take_step({"u": visit(*right)})
    assert credit.metrics()["right_and_unstopped"] == 1.0
    unstopped = MilestoneCredit(CreditConfig(name="milestones"))
    unstopped.take_step({"u": visit(*right, GIVEN)})
    assert unstopped.metrics()["right_and_unstopped"] == 3.0


def test_a_saved_state_goes_on_as_if_nothing_had_happened():
    credit, resumed = MilestoneCredit(SETTINGS), MilestoneCredit(SETTINGS)
    credit.take_step({"u": visit(*GROUP, rollout(4, True, True, True, flagged=True))})
    resumed.load_state_dict(json.loads(json.dumps(credit.state_dict())))
    assert resumed.state_dict() == credit.state_dict()
    following = {"u": visit(*GROUP[::-1])}
    assert resumed.take_step(following) == credit.take_step(following)


@pytest.mark.parametrize(
    "change", [{"credit": "other"}, {"rates": {"0": 2.0}}, {"num_right": -1}, {"rates": 1}]
)
def test_a_damaged_state_is_refused(change):
    credit = MilestoneCredit(SETTINGS)
    with pytest.raises(CheckpointError):
        credit.load_state_dict({**credit.state_dict(), **change})
    assert credit.state_dict() == MilestoneCredit(SETTINGS).state_dict()


# --- Where in a response a token stands


def test_a_walk_in_tokens_ends_with_the_end_of_the_text():
    seen = Walk((Segment(0, 5, 0, True), Segment(5, 9, 2, True)), None)
    words = ["ab", "cd", "ef", "gh", "i", ""]  # the last one is the end of the text

    def decode(ids):
        return "".join(words[each] for each in ids)

    assert in_tokens(seen, range(6), decode) == Walk((Segment(0, 3, 0, True), Segment(3, 6, 2, True)), None)
    wrong = Walk((Segment(0, 5, 0, False),), 2)
    assert in_tokens(wrong, range(6), decode) == Walk((Segment(0, 3, 0, False),), 1)


@given(st.text("ab é€😀\n", max_size=90), st.lists(st.integers(0, 100), max_size=4))
def test_tokens_are_counted_as_if_every_prefix_were_decoded(text, chars):
    ids = list(text.encode())  # a byte each, so that a character may end in the middle of a block

    def decode(part):
        return bytes(part).decode(errors="replace")

    expected = [
        bisect_left(range(len(ids)), wanted, key=lambda count: len(decode(ids[:count])))
        for wanted in sorted(chars)
    ]
    assert token_counts(sorted(chars), ids, decode) == expected


# --- Errors that are seen while a text is written

QUESTION = "3 a+2 b+3 c+8"
STEPS = ("3a+2b+3=8\n", "8c+8=6\n", r"\boxed{6}")
CHAIN = find_milestones(QUESTION, STEPS, "6")


@pytest.mark.parametrize(
    ("text", "shown", "read"),
    [
        ("3a+2b+3=8\n8c+8=5\nmore", 0, 17),
        ("3a+2=5\n5b+3=1\n", 0, 14),
        ("8c+8=5\n", 1, 7),
        ("8c+8=6\n\\boxed{6}\n", 1, None),
        ("3a+2b+3=8\n8c+8=5", 0, None),  # its line has not ended
    ],
)
def test_an_error_is_found_with_its_line(text, shown, read):
    watch = ErrorWatch(CHAIN, shown=shown)
    assert watch.finds_error(text) == (read is not None)
    assert read is None or watch.chars_read == read
    assert num_shown(CHAIN, len(STEPS[0])) == 1


@given(
    st.lists(st.sampled_from(["3a+2b+3=8", "8c+8=6", "8c+8=5", "\n", "\n", "7 = 7", "2 + 2 = 5", " so "])),
    st.data(),
)
def test_it_makes_no_difference_in_what_pieces_a_text_comes(parts, data):
    text = "".join(parts)
    whole, piecewise = ErrorWatch(CHAIN, shown=0), ErrorWatch(CHAIN, shown=0)
    found, at = False, 0
    while at < len(text) and not found:
        size = data.draw(st.integers(1, 7))
        found = piecewise.finds_error(text[at : at + size])
        at += size
    assert whole.finds_error(text) == found
    if found:
        assert piecewise.chars_read == whole.chars_read
        assert walk(CHAIN, text, correct=False).first_error is not None


CLIPS = find_milestones("How many clips?", ("48/2 = 24.\n", "24 + 18 = 42.\n", "\\boxed{42}"), "42")
LINES = r"""
Total = 3 * 4 +|5 * 6 = 42|(2 + 3) *|4 + 5 = 45|= 12 +|  30 + 5 = 47|2 + 2 =|2 + 2|= 5|2+2=$|5$|12 = 3 *|
\[|\]|&= 3 * 4 \\|& = 12 + 1 \\|= \quad|\times 4 = 21|\boxed{42}|\boxed{|}|2 + 3 = 6 (|2 + 3 = 6 /|so it is||
So 3 + 4 = 8.|3 + 4 = 7|48/2 = 24|48/2 = 23|half of|the price of|of 30 + 2 = 33|about|one,|- 2 + 2 = 5|twice
""".replace("\n", "").split("|")
LINES_OF_CHAINS = ("3a+2b+3=8", "8c+8=6", "8c+8=5", "8c+", "\\boxed{", "6", "5", "}", "\\boxed{5}", "", "so")


def first_wrong_line(watch, milestones, response, hint):
    """Return how far the watch reads, and the shortest beginning of whole lines in which a walk has an
    error.
    """
    found = watch.chars_read if watch.finds_error(response) else None
    ends = [at for at, char in enumerate(response, start=1) if char == "\n"]
    walks = (walk(milestones, response[:end], correct=None, hint=hint) for end in ends)
    return found, next(
        (end for end, seen in zip(ends, walks, strict=True) if seen.first_error is not None), None
    )


def test_a_line_is_an_error_exactly_where_the_walk_so_far_has_one():
    num_found = 0
    for seed in range(1200):
        rng = random.Random(seed)
        milestones, lines = (CHAIN, LINES_OF_CHAINS) if seed % 6 == 0 else (CLIPS, LINES)
        some = (" ".join(rng.choices(lines, k=rng.choice((1, 1, 1, 2)))) for _ in range(rng.randint(1, 8)))
        text = "\n".join(some) + "\n"
        cut = rng.randint(0, len(text) // 2) if seed % 2 else 0
        watch = ErrorWatch(milestones, shown=0, hint=text[:cut])
        found, expected = first_wrong_line(watch, milestones, text[cut:], text[:cut])
        assert found == expected, (text[:cut], text[cut:])
        num_found += found is not None
    assert 300 < num_found < 900


@pytest.mark.parametrize(
    "text",
    [
        "Total = 3 * 4 +\n5 * 6 = 42\n\\boxed{42}",
        "(2 + 3) *\n4 + 5 = 45\n",
        "= 12 +\n  30 + 5 = 47\n",
        pytest.param("Total = 3 * 4 +\n5 * 6 = 42\n" * 50, id="again and again"),
    ],
)
def test_a_line_that_ends_an_equation_is_not_judged_alone(text):
    assert walk(CLIPS, text, correct=None).first_error is None
    assert not ErrorWatch(CLIPS, shown=0).finds_error(text)


@pytest.mark.parametrize(
    "part",
    [
        "She has 12 apples (and pears).\nSo 3 * 4 +\n5 * 6 = 42\n\n\\[\nx = 5\n\\]\n",
        "= 12 +\n 30 + 5 = 47\n",
        "(\n\n",
    ],
)
def test_a_long_response_is_watched_in_linear_time(monkeypatch, part):
    walked = [0]

    def counted(milestones, text, *, hint, **settings):
        walked[-1] += len(hint) + len(text)
        return walk(milestones, text, hint=hint, **settings)

    monkeypatch.setattr(walks, "find_walk", lambda _: counted)
    assert not ErrorWatch(CLIPS, shown=0).finds_error(part * 100)
    walked.append(0)
    assert not ErrorWatch(CLIPS, shown=0).finds_error(part * 200)
    assert walked[1] < 2.2 * walked[0]


@pytest.mark.parametrize(
    ("hint", "response", "passed", "error"),
    [
        ("Natalia sold 20 + ", "12 + 16 = 48 clips in April.\n", [], None),
        ("Natalia sold 48/", "2 = 24 clips in May.\n", ["2 = 24"], None),
        ("Natalia sold 48/2 =", " 24 clips in May.\n", [" 24"], None),
        ("She sold 4", "8/2 = 23 clips.\n", [], "23"),
        ("She sold 48/2 = 2", "3 clips.\n", [], None),  # the value begins in the hint
        ("She sold 3 + 4 = 8 clips.", " Then 48/2 = 24.\n", [" Then 48/2 = 24"], None),
        ("First,\n3 * 4 +", "\n5 * 6 = 42\n", [], None),
        ("First.\n", "5 * 6 = 42\n", [], "42"),
        ("", "12 + 16 = 48 clips in April.\n", [], "48"),
    ],
)
def test_a_response_continues_its_hint(hint, response, passed, error):
    seen = walk(CLIPS, response, correct=None, hint=hint)
    assert [response[s.start : s.end] for s in seen.segments if s.passed] == passed
    assert (None if seen.first_error is None else response[seen.first_error :][: len(error or "")]) == error
    stored = json.dumps(ErrorWatch(CLIPS, shown=0, hint=hint).to_json())
    watch = ErrorWatch.from_json(json.loads(stored))
    assert watch.finds_error(response) == (error is not None)
    assert watch.chars_read == len(response)


def test_what_the_question_gives_is_no_error():
    milestones = find_milestones("If 5 + 3 = 28 and 9 + 1 = 810, what is 8 + 6?", (), "214")
    watch = ErrorWatch(milestones, shown=0)
    assert not watch.finds_error("We know that 5 + 3 = 28.\nAnd 9 + 1 = 810.\n")
    assert watch.finds_error("Then 8 + 6 = 15.\n")


# --- A walk of the user's own


def own_walk(tmp_path, body, signature="milestones, text, *, correct, shown"):
    file = tmp_path / "mine.py"
    file.write_text(
        f"from seele.records import Segment, Walk\n\n\ndef mine({signature}):\n    return {body}\n"
    )
    return f"{file}:mine"


def test_an_own_walk_takes_the_place_of_ours_for_watches_too(tmp_path):
    spec = own_walk(tmp_path, "Walk((), 0 if 'no' in text else None)")
    assert find_walk(spec)(CHAIN, "no", correct=None) == Walk((), 0)
    assert find_walk("milestones") is walk
    watch = ErrorWatch(CHAIN, shown=0, walk=spec)
    assert not watch.finds_error("8c+8=5\nyes\n")
    assert ErrorWatch.from_json(json.loads(json.dumps(watch.to_json()))).finds_error("no\n")
    (tmp_path / "other").mkdir()
    across_lines = own_walk(tmp_path / "other", "Walk((), 0 if 'yes\\nno' in text else None)")
    watch = ErrorWatch(CHAIN, shown=0, walk=across_lines, hint="yes\n")
    assert not watch.finds_error("no\nyes\n")
    assert watch.finds_error("no\n"), "all lines so far, without the hint"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1 / 0", r"seele.credit.walk: .*mine.py:4: a response of 2 characters: ZeroDivisionError"),
        ("None", "AttributeError"),
        ("Walk((Segment(1, 2, 0, True),), None)", "must follow each other from 0 on"),
        ("Walk((Segment(0, 3, 0, True),), None)", "must end within the 2 characters"),
        ("Walk((Segment(0, 2, 9, True),), None)", "milestone_index must be below 2"),
        (
            "Walk((Segment(0, 1, 0, True), Segment(1, 2, 0, False)), None)",
            "milestone_index must rise from segment to segment",
        ),
        ("Walk((), 2)", "first_error must lie in the text"),
    ],
)
def test_an_own_walk_s_faults_are_named(tmp_path, body, message):
    with pytest.raises(PluginError, match=message):
        find_walk(own_walk(tmp_path, body))(CHAIN, "no", correct=None)


def test_an_own_walk_that_cannot_be_called_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"must be a function of \(milestones, text"):
        find_walk(own_walk(tmp_path, "None", signature="text"))


# --- Hints over all levels


@pytest.mark.parametrize(
    ("rollouts", "expected"),
    [(8, {0.0: 2, 0.25: 2, 0.5: 2, 0.75: 2}), (6, {0.0: 2, 0.25: 1, 0.5: 2, 0.75: 1}), (2, {0.0: 1, 0.5: 1})],
)
def test_rollouts_are_spread_over_all_hints(rollouts, expected):
    controller = BayesController(rounds=1, rollouts_per_round=rollouts, spread=True)
    request = RoundRequest("p", 0, (0.0, 0.25, 0.5, 0.75), rollouts)
    (plan,) = controller.plan_rounds([request], num_rollouts=rollouts)
    assert {share.hint_ratio: share.num_rollouts for share in plan} == expected
    assert all(0 < share.predicted_accuracy < 1 for share in plan)


def test_spread_hints_leave_no_room_for_probes():
    with pytest.raises(ConfigError, match=r"seele.hints.settings.spread: .* got probes=1, settle_below=0"):
        BayesController(rounds=1, rollouts_per_round=8, spread=True, probes=1)


# --- Hints behind which the next milestone is passed half of the time

LEGAL = (0.0, 0.25, 0.5, 0.75)


def hint_after(controller, outcomes, *, name="p", legal=LEGAL):
    """The hint of the round after those of a visit with so many of four rollouts that passed, by hint."""
    next_hint(controller, name, round_index=0, legal_ratios=legal)
    for ratio, passed in outcomes.items():
        observe(controller, name, hint_ratio=ratio, num_correct=passed, num_rollouts=4)
    return next_hint(controller, name, round_index=1, legal_ratios=legal)


@pytest.mark.parametrize(
    ("outcomes", "ratio"),
    [
        ({}, 0.0),
        ({0.0: 2}, 0.0),
        ({0.0: 0}, 0.25),  # never passed, so the next one that is not known
        ({0.0: 4, 0.25: 0}, 0.5),  # also where a shorter hint's step is easy
        ({0.0: 0, 0.25: 4, 0.5: 2, 0.75: 1}, 0.5),
    ],
)
def test_the_hint_is_the_one_whose_next_step_is_least_certain(outcomes, ratio):
    assert hint_after(NextMilestoneController(), outcomes) == ratio


def test_a_problem_begins_with_what_others_taught_about_steps_as_far_from_the_end():
    controller = NextMilestoneController()
    for visit_index in range(9):
        hint_after(controller, {0.0: 0, 0.25: 2}, name=f"other-{visit_index}")
        end_visit(controller, f"other-{visit_index}")
    assert hint_after(controller, {}, name="same step") == 0.0
    controller.begin_step(2)
    # Its first hint leaves three longer ones, as the others' did; the second legal one leaves two.
    assert hint_after(controller, {}, name="next step") == 0.25
    assert hint_after(controller, {}, name="shorter", legal=(0.0, 0.3, 0.6)) == 0.0
    rates = controller.state_dict()["rates"]
    controller.begin_step(3)
    assert controller.state_dict()["rates"] == rates, "a step's outcomes count once"


def test_others_never_make_sure_of_a_problems_step():
    controller = NextMilestoneController()
    for name, outcomes, size in (("other", {0.0: 5000}, 5000), ("p", dict.fromkeys(LEGAL[1:], 0), 100)):
        next_hint(controller, name, round_index=0, legal_ratios=LEGAL)
        for ratio, passed in outcomes.items():
            observe(controller, name, hint_ratio=ratio, num_correct=passed, num_rollouts=size)
        end_visit(controller, name)
        controller.begin_step(2)
    # Its other steps fail for sure; this one may, although the other problem's never did.
    assert next_hint(controller, "p", round_index=0, legal_ratios=LEGAL) == 0.0


def test_an_old_visit_counts_for_less_than_a_new_one():
    controller = NextMilestoneController()
    hint_after(controller, {0.0: 0})
    end_visit(controller, "p")
    assert hint_after(controller, {0.0: 4}) == 0.0, "2.8 failed and 4 passed: about half"
    hint_after(controller, {0.0: 4})
    end_visit(controller, "p")
    (passed, failed) = controller.state_dict()["problems"]["p"]["3"]
    assert (passed, failed) == pytest.approx((4.0, 2.8))
