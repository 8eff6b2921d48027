"""The page of disagreements."""

from seele.records import Grade, GradeReason
from seele.reward.cross_check import TwiceGraded, disagreements_page

CORRECT, WRONG, TIMEOUT = (
    Grade(reason is GradeReason.CORRECT, reason)
    for reason in (GradeReason.CORRECT, GradeReason.WRONG, GradeReason.TIMEOUT)
)


def answer(name: str, first: Grade, second: Grade, text: str = "1/2") -> TwiceGraded:
    return TwiceGraded(name=name, answer=text, gold=r"\frac{1}{2}", first=first, second=second)


def page(*answers: TwiceGraded) -> str:
    return disagreements_page(answers, graders=("one", "other"))


def test_counts_and_both_directions():
    text = page(
        answer("both", CORRECT, CORRECT),
        answer("neither", WRONG, TIMEOUT),
        answer("first only", CORRECT, TIMEOUT),
        answer("second only", WRONG, CORRECT),
        answer("second again", WRONG, CORRECT),
    )
    assert text.startswith("# one and other: 3 of 5 disagree\n")
    assert "| one accepts | 1 | 1 |" in text
    assert "| one rejects | 2 | 1 |" in text
    assert "0 by one, 2 by other" in text
    first, second = text.split("## one accepts, other does not")[1].split("## other accepts, one does not")
    assert "### first only: timeout" in first and "second" not in first
    assert second.index("### second only: wrong") < second.index("### second again: wrong")
    assert "both" not in text and "neither" not in text


def test_no_text_leaves_its_block_and_long_ones_are_shown_by_their_end():
    text = page(answer("x", CORRECT, WRONG, "# not a heading\n```\n\u2028\0 " + "y" * 1000 + " end"))
    block = text.split("### x: wrong\n")[1].split("\n## ")[0]
    assert all(line.startswith("    ") or not line for line in block.splitlines())
    assert "answer ... yyy" in block and block.rstrip().endswith(" end") and len(block) < 800
    short = page(answer("x", CORRECT, WRONG, "# not a heading\n\0\u202e"))
    assert "    answer # not a heading\n           \\x00\\u202e" in short


def test_a_page_without_disagreement_says_so():
    assert page(answer("both", CORRECT, CORRECT)).startswith("# one and other: 0 of 1 disagree\n")
    assert page().startswith("# one and other: 0 of 0 disagree\n")
