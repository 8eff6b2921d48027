r"""The last ``\boxed{}`` of a text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.reward.extract import last_boxed, text_after_thinking


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", None),
        ("no box, only {braces}", None),
        (r"\boxed{3}", "3"),
        (r"first \boxed{3}, then \boxed{ 4 }.", "4"),
        (r"\boxed{\frac{1}{2}} and {more}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{3} and then cut off: \boxed{4", None),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed 3 \fbox{4}", None),
    ],
)
def test_the_last_box_counts(text, answer):
    assert last_boxed(text) == answer


def test_long_texts_take_linear_time():
    assert last_boxed("\\boxed{" * 100_000) is None
    assert last_boxed("\\boxed{" + "{}" * 100_000 + "}") == "{}" * 100_000


@settings(deadline=None)  # the first example imports sympy
@given(st.lists(st.sampled_from([r"\boxed{", "{", "}", "3", r"\frac", " ", "\n"])).map("".join))
def test_boxes_are_the_ones_mathruler_finds(text):
    mathruler = pytest.importorskip("mathruler.grader")
    found = last_boxed(text)
    assert mathruler.extract_boxed_content(text) == ("None" if found is None else found)


@pytest.mark.parametrize(
    ("text", "begun", "behind"),
    [
        ("thoughts </think> 4", True, " 4"),
        ("<think>thoughts</think>4", False, "4"),
        ("a </think> b </think> c", True, " c"),
        ("thoughts that are cut off", True, None),
        ("\n<think> thoughts that are cut off", False, None),
        ("no thoughts", False, "no thoughts"),
        ("of <think> tags", False, "of <think> tags"),
        ("thoughts</think>", True, ""),
    ],
)
def test_only_what_stands_behind_the_thoughts_is_left(text, begun, behind):
    assert text_after_thinking(text, begun=begun) == behind
