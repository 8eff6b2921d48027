"""From an annotator's reply to steps, or to the reason why it is not kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.data.annotation.reply import Rejection, judge
from seele.endpoint import Reply
from seele.records import Finish, Grade, GradeReason, Instance

TWO = "Step 1: Add 3 and 4 to get 7.\n\nStep 2: So the answer is \\boxed{7}."


class LiteralGrader:
    """Right is what stands in the last box letter by letter; ``?`` cannot be graded."""

    def grade_problem(self, text, instance):
        _, box, answer = text.rpartition("\\boxed{")
        if not box:
            return Grade(False, GradeReason.NO_ANSWER)
        if answer.startswith("?"):
            return Grade(False, GradeReason.TIMEOUT)
        is_right = answer.split("}")[0] == instance.answer
        return Grade(is_right, GradeReason.CORRECT if is_right else GradeReason.WRONG)


def reply(text, finish=Finish.STOP):
    return Reply(text=text, finish=finish, tokens_in=1, tokens_out=1, model="m")


def verdict(text, finish=Finish.STOP, *, answer="7", min_steps=2, max_steps=3):
    about = Instance(instance_id="i", data_source="sums", question="3 + 4?", steps=(), answer=answer)
    return judge(reply(text, finish), about, LiteralGrader(), min_steps=min_steps, max_steps=max_steps)


def test_the_steps_together_are_the_reply():
    steps, rejection = verdict(f"\n {TWO}\n")
    assert rejection is None
    assert steps == ("Step 1: Add 3 and 4 to get 7.\n\n", "Step 2: So the answer is \\boxed{7}.")


@pytest.mark.parametrize(
    "marker",
    ["Step {}:", "**Step {}:**", "**Step {}**:", "### Step {}: S", "Step {}.", "  Step {}:", "__Step {}:__"],
)
def test_markers_may_be_dressed_up(marker):
    text = f"{marker.format(1)} 3 + 4 = 7.\n{marker.format(2)} \\boxed{{7}}"
    steps, rejection = verdict(text)
    assert rejection is None
    assert "".join(steps) == text.strip() and len(steps) == 2


def test_the_thoughts_of_a_reasoning_model_are_left_out():
    steps, rejection = verdict(f"<think>Step 1: hm, \\boxed{{8}}?</think>\n{TWO}")
    assert rejection is None
    assert "".join(steps) == TWO


def test_a_mention_of_a_step_is_no_marker():
    text = "Step 1: We need two steps.\nIn Step 2: nothing.\nSo it goes.\nStep 2: By Step 1: \\boxed{7}"
    assert len(verdict(text)[0]) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Rejection.REFUSED),
        ("<think>for ever</think>", Rejection.REFUSED),
        ("I cannot help with that.", Rejection.FORMAT),
        (f"Here is the solution.\n{TWO}", Rejection.FORMAT),
        ("Step 1: a\nStep 3: \\boxed{7}", Rejection.FORMAT),
        ("Step 2: a\nStep 3: \\boxed{7}", Rejection.FORMAT),
        ("Step 1: a\nStep 1: \\boxed{7}", Rejection.FORMAT),
        ("Step 1: half a sign \ud83d\nStep 2: \\boxed{7}", Rejection.FORMAT),
        ("Step 1: a\nStep 2:\n\nStep 3: \\boxed{7}", Rejection.BLANK_STEP),
        ("Step 1:\r\n\r\nStep 2: \\boxed{7}", Rejection.BLANK_STEP),
        ("Step 1: a\n**Step 2:**\n---\nStep 3: \\boxed{7}", Rejection.BLANK_STEP),
        ("Step 1: \\boxed{7}", Rejection.TOO_FEW_STEPS),
        ("Step 1: a\nStep 2: b\nStep 3: c\nStep 4: \\boxed{7}", Rejection.TOO_MANY_STEPS),
        ("Step 1: \\boxed{7}\nStep 2: As said.", Rejection.NO_ANSWER),
        ("Step 1: \\boxed{7}\nStep 2: \\boxed{8}", Rejection.WRONG_ANSWER),
        ("Step 1: a\nStep 2: \\boxed{?}", Rejection.UNGRADED),
    ],
)
def test_what_is_not_kept_has_a_reason(text, reason):
    assert verdict(text)[1] is reason


def test_a_reply_that_was_cut_off_or_filtered_is_not_read():
    assert verdict(TWO, Finish.LENGTH) == ((), Rejection.TRUNCATED)
    assert verdict(TWO, Finish.ERROR) == ((), Rejection.REFUSED)


def test_a_single_step_is_kept_where_that_is_wanted():
    assert verdict("Step 1: \\boxed{7}", min_steps=1)[1] is None


BODIES = st.text(alphabet=" aStep1:2\n\\boxed{}$.", max_size=20)


@given(st.lists(BODIES, min_size=0, max_size=5), st.sampled_from(["\n", "\n\n", " ", ""]))
def test_whatever_is_said_pieces_make_the_whole_and_what_is_kept_is_in_order(bodies, separator):
    text = separator.join(f"Step {number}:{body}" for number, body in enumerate(bodies, start=1))
    steps, rejection = verdict(text)
    if steps:
        assert "".join(steps) == text.strip()
    if rejection is None:
        assert 2 <= len(steps) <= 3
        assert all(step.startswith(f"Step {n}") and step.strip() for n, step in enumerate(steps, start=1))
        assert "\\boxed{7}" in steps[-1]
