r"""Steps: cut where a hint may end, never within maths, code, tables or braces, and the text comes back; the
milestones of steps, and how far a response comes along them.
"""

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.real_data import SHARED, needs_shared
from seele.data.steps.cutting import join_steps, split_sentences, split_steps
from seele.data.steps.protected import legal_cuts, protected_spans
from seele.data.tasks.chains import ChainsConfig, generate_splits
from seele.data.tasks.gsm8k import read_gsm8k, split_solution
from seele.maths.equations import equations
from seele.records import Milestone
from seele.reward.milestones import coverage, find_milestones, num_shown, walk

LAYOUTS = [
    pytest.param("Intro.\nStep 1: a.\nStep 2: b.", ["Intro.\n", "Step 1: a.\n", "Step 2: b."], id="step"),
    pytest.param(
        "**Step 1** a\n\nmore\n\n**Step 2** b", ["**Step 1** a\n\nmore\n\n", "**Step 2** b"], id="bold"
    ),
    pytest.param("## Step 1\na\n## Step 2\nb", ["## Step 1\na\n", "## Step 2\nb"], id="headings with steps"),
    pytest.param("### Plan\na\n### Proof\nb", ["### Plan\na\n", "### Proof\nb"], id="headings"),
    pytest.param("1. a\n   1. x\n   2. y\n2. b", ["1. a\n   1. x\n   2. y\n", "2. b"], id="list in a list"),
    pytest.param("(1) a\n(2) b\n(3) c", ["(1) a\n", "(2) b\n", "(3) c"], id="brackets"),
    pytest.param(
        "1. a\n2. b\n\nTherefore \\boxed{3}.",
        ["1. a\n", "2. b\n\n", "Therefore \\boxed{3}."],
        id="conclusion",
    ),
    pytest.param("2*3=6 apples\n6+1=7\n#### 7", ["2*3=6 apples\n", "6+1=7\n", "#### 7"], id="GSM8K lines"),
    pytest.param("First this.\n\n\nThen that.\n", ["First this.\n\n\n", "Then that.\n"], id="paragraphs"),
    pytest.param(
        "We get\n\\[x = 3\\]\nSo be it.", ["We get\n\\[x = 3\\]\n", "So be it."], id="formula stays"
    ),
    pytest.param("We get:\n\nx = 3\n\nEnd.", ["We get:\n\nx = 3\n\n", "End."], id="colon"),
    pytest.param("One. Two! Is it three? Yes.", ["One. ", "Two! ", "Is it three? ", "Yes."], id="prose"),
    pytest.param(
        "Title\n\nA first sentence stands here. A second one stands there. And so on.",
        ["Title\n\n", "A first sentence stands here. ", "A second one stands there. ", "And so on."],
        id="a piece that holds most of the text",
    ),
    pytest.param("1. a: 5.\n2. b: 10.\n\n", ["1. a: 5.\n", "2. b: 10.\n\n"], id="blank end"),
    pytest.param(
        "Step 1: a\n\nStep 2: b\n\n---\n\n**Thus** c",
        ["Step 1: a\n\n", "Step 2: b\n\n---\n\n", "**Thus** c"],
        id="rule",
    ),
    pytest.param("no cut", ["no cut"], id="one step"),
    pytest.param(" \n ", [], id="blank"),
    pytest.param("", [], id="empty"),
]


@pytest.mark.parametrize(("text", "steps"), LAYOUTS)
def test_the_layout_decides_the_steps(text, steps):
    assert split_steps(text) == tuple(steps)


SENTENCES = [
    ("It is 3.5 m. Then 2.5 remain.", 2),
    ("Take e.g. This one, i.e. Mine, cf. Theirs vs. Ours.", 1),
    ("See Fig. 3 and Eq. 4 of Sec. 2. So be it.", 2),
    ("J. R. Smith and Donald E. Knuth agree. He is right.", 2),
    ("Lines meet at point D. The angle is A. Hence B.", 3),
    ("It costs $5. Then $6 are left. Total $11.", 3),
    ("So $x=3.$ Then $y$.", 2),
    ('He said "Stop." Then he left.', 2),
    ("Take no. 5. No. Then yes.", 3),
    ("1. Compute a. 2. Compute b.", 2),
    ("That is 1, 2, ... 10 of them. Good.", 2),
    ("Es sind 5! 3 davon. Gut.", 2),
    ("第一步。第二步。", 2),
]


@pytest.mark.parametrize(("text", "num"), SENTENCES)
def test_prose_is_cut_at_sentences(text, num):
    assert len(split_sentences(text)) == num


WHOLE = [
    "$a. B\n\nc$",
    "$$x. Y\n\n= 3$$",
    r"\(x. Y\)",
    "\\[\nx. Y\n\n= 3\n\\]",
    "\\begin{align}\na &= b. C\\\\[2pt]\n\nd\n\\end{align}",
    "```python\nx = 1. Y\n\n1. a\n2. b\n$ { \\[\n```",
    "```\n   a. B\n\n   c\n   ```",
    "| a | b. C |\n|---|---|\n| 1 | 2 |",
    "a | b. C\n--- | ---\n1 | 2",
    "\\begin{tabular}{c}\na. B \\\\\n\nc\n\\end{tabular}",
    r"\boxed{a. B. C}",
    "\\boxed{\\text{a\n\nb. C} \\\\ D. E}",
    "[asy]\ndraw(A. B);\n\n1. x $\n[/asy]",
    r"$\text{$x$. Y}$",
    "$$\\text{where $x$. Y}\n\nz$$",
]


@pytest.mark.parametrize("whole", WHOLE)
def test_what_belongs_together_is_never_cut(whole):
    text = (
        f"Step 1: It costs $5. Take this\n{whole}\nand that. Then {whole}. It is 1.\n\nStep 2: {whole} End."
    )
    for steps in (
        split_steps(text),
        split_sentences(text),
        join_steps(re.split("(?<= )", text), separator=""),
    ):
        assert "".join(steps) == text and len(steps) > 1
        assert sum(step.count(whole) for step in steps) == 3


ATOMS = ["word", "Sentence one. ", "A 2nd! ", "\n", "\n\n", "$5 ", "1. ", "Step 2: ", ": ", *WHOLE]


@given(parts=st.lists(st.sampled_from(ATOMS), max_size=30), most=st.integers(1, 6))
def test_texts_of_any_parts_come_back_with_their_formulas_whole(parts, most):
    # Blanks around the parts: "`" beside "```" would be another mark.
    text = " ".join(parts)
    for steps in (split_steps(text), split_steps(text, max_steps=most), join_steps(parts, separator=" ")):
        assert "".join(steps) == text or not text.strip()
        assert all(step.strip() for step in steps)
        for whole in WHOLE:
            if "$" not in whole and "|" not in whole:
                assert sum(step.count(whole) for step in steps) == text.count(whole)


NOISE = st.text(alphabet="ab A.1$\\[](){}`|-~#*\n\t!?:;,\x1c", max_size=60)


@given(text=NOISE | st.text())
def test_whatever_comes_the_text_comes_back_and_no_step_is_blank(text):
    for steps in (split_steps(text), split_sentences(text)):
        assert all(step.strip() for step in steps)
        assert "".join(steps) == (text if text.strip() else "")


@given(pieces=st.lists(NOISE, max_size=12), separator=st.sampled_from(["", " ", "\n", "\n\n", "$"]))
def test_joined_steps_give_the_original_and_cut_only_where_the_source_did(pieces, separator):
    text = separator.join(pieces)
    steps = join_steps(pieces, separator=separator)
    assert all(step.strip() for step in steps)
    assert "".join(steps) == (text if text.strip() else "")
    ends = {len(separator.join([*pieces[:n], ""])) for n in range(1, len(pieces))}
    assert {len("".join(steps[:n])) for n in range(1, len(steps))} <= ends


@given(text=NOISE)
def test_what_stands_before_a_cut_is_balanced(text):
    for cut in legal_cuts(range(1, len(text)), protected_spans(text)):
        if "`" not in text[:cut] and "~" not in text[:cut]:
            assert is_balanced(text[:cut]), (text, cut)


def is_balanced(text):
    text = re.sub(r"\\[^()\[\]]", "", text)
    pairs = [("{", "}"), (r"\(", r"\)"), (r"\[", r"\]")]
    return all(text.count(opening) == text.count(closing) for opening, closing in pairs)


def test_explicit_steps_keep_their_separators_and_lose_their_blanks():
    assert join_steps(["a", "", "b", " "], separator="\n") == ("a\n\n", "b\n ")
    assert join_steps(["", "a"], separator="\n") == ("\na",)
    assert join_steps(["Then \\[x", "= 3\\] so", "done"], separator="\n\n") == (
        "Then \\[x\n\n= 3\\] so\n\n",
        "done",
    )
    assert join_steps([], separator="\n") == join_steps(["", " "], separator="\n") == ()


def test_nothing_is_cut_after_a_mark_that_is_never_closed_or_never_opened():
    assert split_steps("Fine.\nThen \\[x.\nA. B.\nC.") == ("Fine.\n", "Then \\[x.\nA. B.\nC.")
    assert split_steps("Fine.\nThen x}.\nA. B.\nC.") == ("Fine.\n", "Then x}.\nA. B.\nC.")


@pytest.mark.parametrize(
    ("text", "num_formulas"),
    [
        ("Pay $5 now. Then $6 more.", 0),
        ("Pay $5 now, and $x$ is free. Then $y$ too.", 2),
        ("$30,60, 90$ triangles for $ 1200 each. So 40$ more", 1),
        ("$x$$y$ and $z$", 2),
        ("It costs \\$5 and $x$", 1),
        ("so $500+$500=$1,000 in all", 0),
        ("$2 million and $3.5k", 0),
    ],
)
def test_money_is_no_formula(text, num_formulas):
    assert len(protected_spans(text)) == num_formulas


def test_fences_of_tildes_begin_a_line():
    assert split_steps("A.\n~~~\nx. Y\n\n1. $\n~~~\nB.") == ("A.\n", "~~~\nx. Y\n\n1. $\n~~~\n", "B.")


def test_neighbours_are_merged_to_similar_lengths():
    text = "".join(f"{number}. {'x' * 20}\n" for number in range(1, 11))
    assert [len(step) // 20 for step in split_steps(text, max_steps=3)] == [3, 4, 3]
    assert len(split_steps(text, max_steps=1)) == 1
    assert split_steps(text, max_steps=10) == split_steps(text)
    # One step holds nearly everything: no group is empty.
    uneven = "A\n" * 3 + "B" * 500 + "\n" + "C\n" * 2
    assert [step[0] for step in split_steps(uneven, max_steps=3)] == ["A", "B", "C"]
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        split_steps(text, max_steps=0)


HOSTILE = [
    "{",
    "$",
    "$$x ",
    "`",
    "```\n",
    "|\n",
    "\n ",
    ".",
    "A. B",
    "\\begin{a}",
    "1. a\n",
    "\\(",
    "[asy]",
    "5! ",
    "# a\n",
]


@pytest.mark.parametrize(
    ("before", "unit"),
    [("", unit) for unit in HOSTILE]
    + [("## A\n\n## B\n\n", "---\n\n"), ("Step 1: a\nStep 2: b\n", "* * *\n\n")],
)
def test_time_grows_with_the_length_and_not_with_its_square(before, unit):
    def seconds(num_chars):
        text = before + unit * (num_chars // len(unit)) + "end"
        start = time.process_time()
        split_steps(text)
        return time.process_time() - start

    # A tenth of a second on an idle core; with the square of the length it would be minutes.
    assert seconds(100_000) < 5.0


def rows_of_traces():
    for line in (SHARED / "traces.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["source"], row["steps"], row["sep"]


def check_steps(steps, text, *, has_money):
    assert "".join(steps) == text
    assert all(step.strip() for step in steps)
    before = ""
    for step in steps[:-1]:
        before += step
        plain = re.sub(r"\\[^()\[\]]", "", before)
        assert is_balanced(before), before[-80:]
        assert before.count("```") % 2 == 0
        assert before.count("\\begin{") == before.count("\\end{")
        assert has_money or plain.count("$") % 2 == 0, before[-80:]


@needs_shared
def test_every_real_trace_is_cut_legally_and_comes_back():
    num = 0
    for source, steps, separator in rows_of_traces():
        text = separator.join(steps)
        # Dollars are money in word problems, and elsewhere before an amount with a blank or a word.
        has_money = "gsm8k" in source or "aqua" in source or re.search(r"\$\d[\d,.]* ?[a-zA-Z(,.]", text)
        check_steps(join_steps(steps, separator=separator), text, has_money=bool(has_money))
        check_steps(split_steps(text, max_steps=None if num % 2 else 5), text, has_money=bool(has_money))
        num += 1
    assert num == 4319


def other_solutions():
    import pyarrow.parquet as pq

    for split in ("train", "test"):
        for instance in read_gsm8k(split, folder=SHARED / "gsm8k"):
            yield instance.steps
    for name in ("countdown_test", "kk_logic_test"):
        yield from pq.read_table(SHARED / "uft" / f"{name}.parquet", columns=["hint"])["hint"].to_pylist()
    for name in ("dev", "test"):
        for line in (SHARED / "aqua" / f"{name}.json").read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["rationale"].splitlines(keepends=True)


@needs_shared
def test_every_solution_of_gsm8k_uft_and_aqua_is_cut_legally_and_comes_back():
    num = 0
    for steps in other_solutions():
        check_steps(join_steps(steps, separator=""), "".join(steps), has_money=True)
        num += 1
    assert num == 7473 + 1319 + 1024 + 500 + 508


# --- Milestones of the steps, and the walk of a response along them

CLIPS = "Natalia sold clips to 48 friends in April, and half as many in May. How many altogether?"
CLIPS_STEPS, CLIPS_ANSWER = split_solution(
    "In May she sold 48/2 = <<48/2=24>>24 clips.\nTogether 48+24 = <<48+24=72>>72 clips.\n#### 72"
)
CLIPS_MILESTONES = find_milestones(CLIPS, CLIPS_STEPS, CLIPS_ANSWER)


def test_a_milestone_is_a_new_value_of_a_step_and_the_answer_is_the_last():
    first, last = CLIPS_MILESTONES
    assert first == Milestone("24", CLIPS_STEPS[0].index("24") + 2, ("48/2=24",))
    assert (last.value, last.end) == ("72", len("".join(CLIPS_STEPS)))
    assert [num_shown(CLIPS_MILESTONES, chars) for chars in (0, len(CLIPS_STEPS[0]), 10**6)] == [0, 1, 2]
    # 48 stands in the question.
    assert len(find_milestones(CLIPS, ("40 + 8 = 48.\n", *CLIPS_STEPS), "72")) == 2
    assert find_milestones("What?", (), "yes") == (Milestone("yes", 0),)


@pytest.mark.parametrize(
    ("text", "correct", "shown", "segments", "error"),
    [
        pytest.param(
            "48/2=24, 48+24=72", True, 0, [("48/2=24", 0, True), (", 48+24=72", 1, True)], None, id="right"
        ),
        pytest.param(
            "48/2=24. \\boxed{72}",
            None,
            0,
            [("48/2=24", 0, True), (". \\boxed{72}", 1, True)],
            None,
            id="box",
        ),
        pytest.param("48/2=24. \\boxed{70}", None, 0, [("48/2=24", 0, True)], None, id="nobody knows"),
        pytest.param(
            "48/2=24. \\boxed{70}",
            False,
            0,
            [("48/2=24", 0, True), (". \\boxed{70}", 1, False)],
            None,
            id="wrong",
        ),
        pytest.param("48/2=23. So 9.", None, 0, [("48/2=23", 0, False)], "23", id="false equation"),
        pytest.param(
            "48/2=24. Then 24+48=70.",
            False,
            0,
            [("48/2=24", 0, True), (". Then 24+48=70", 1, False)],
            "70",
            id="later",
        ),
        pytest.param("48/2=23. 72", True, 0, [("48/2=23. 72", 1, True)], None, id="an error in a right one"),
        pytest.param("48*1.5=72", True, 0, [("48*1.5=72", 1, True)], None, id="another way skips"),
        pytest.param("48/2=24", False, 1, [("48/2=24", 1, False)], None, id="the hint has shown it"),
    ],
)
def test_segments_of_a_walk(text, correct, shown, segments, error):
    walked = walk(CLIPS_MILESTONES, text, correct=correct, shown=shown)
    assert [(text[s.start : s.end], s.milestone_index, s.passed) for s in walked.segments] == segments
    assert (walked.first_error is None) == (error is None)
    assert error is None or text.startswith(error, walked.first_error)


FALSE = [
    "3 + 4 = 8",
    "He has 5 apples + 3 apples = 9 apples",
    "so 48 / 2 = 23.",
    "25% * 16 pandas = 44 pandas",
    "$7.50 + $5 + $6 = $16.",
    "\\[ 50 + 70 \\times 2 = 180 \\]",
    "2 x 3 = 5",
    "(1 + 2) * 3 = 10",
    "7 x 8 = 56, 6 * 9 = 55",
    "1/2 * 12 = 4 boxes",
    "12 ÷ 4 = 4",
    "1,200 + 300 = 1,600",
    "2 + 2 =\n5\n",
    "10 / 3 = 3.5",
    "\\frac{6}{2} + 1 = 5",
    "91+17=109|5 109",
    "He has 5 left.\nThat is a total of 3 + 4 = 8 apples",
    "30 - 60 = 10 students",
    "0.80 * 2300 = 1900 books",
    "1{,}000 + 1 = 1{,}002",
    "5 \\text{ apples} + 3 \\text{ apples} = 9 \\text{ apples}",
    "12 apples + 5 apples = 18 apples",
    "20 * 3 = 50 dollars",
    "$20 + $10 = $40",
    "= 3 * 4 + 5 = 18",
    "So 10 + 5 * 2 = 21",
    "5.20 + 3.10 = 8.40",
    "9 \u2212 2 = 5",
    "[4 + {3}] * 2 = 15",
    "He has 5 + 3 = 9\nThen he buys two more.\n",
    "Total = 5 + 3 = 9\nHalf of that is left.",
    "**Total**: 5 + 3 = 9",
    "1. **Cost of pens**: 5 * 3 = 16",
    "He has:\n5 + 3 = 9",
    "He pays 5 + 3 = 9",
    "Area = l * w = 5 * 3 = 16",
    "\\[ 5 + 3 = 9 \\]",
    "&= 12 + 7 \\\\\n&= 20",
    "12 * 7 = <<12*7=94>>94",
    "12 \\* 7 = 94.",
    "\\implies 12 \\cdot 7 = 94",
    "12 * 7 = 94 \u2192 94 boxes",
    "| 12 * 7 = 94 |",
    "12 + 7 = 20. No other boxes are left.",
    "3 + 5 = 8\n4 + 3 = 8",
    "The cost is (12 + 7) * 2 = 40",
    "12 - 8/2 = 7",
    "100 + 100 = 1000",
    "5 + 3 = 9. Let's go on.",
]
TRUE_OR_UNSURE = [
    "10/3 = 3.33",
    "10/3=3",
    "10/3 = 4 boxes",
    "3.33 * 3 = 10",
    "2 x 3 = 6",
    "50% of 20 = 10",
    "0.2*50=10",
    "3/8 = 37.5%",
    "2 dozen = 24",
    "2 dozen * 3 = 72",
    "2 dozens * 3 = 72",
    "60 - 1/3 = 40",
    "120 + (1/2) = 180 marbles",
    "22 + 6 = 4 in the morning",
    "1010 + 110 = 10000",
    "0x10 + 1 = 17",
    "5 + 3 = 9, no wait, 8",
    "5 + 3 = 9. But wait, it's 8.",
    "5 + 3 = 9, I mean 8",
    "5 + 3 = 9 apples. Wait, that's 8.",
    "5 + 3 = 9. Let's double-check.",
    "5 + 3 = 9. Let me recheck: 5 + 3 = 8",
    "1 hour = 60 minutes",
    "30 minutes * 4 = 2 hours",
    "3 feet * 4 = 144 inches",
    "100 - 20% = 80",
    "5 + 3 = 8 * 2 = 16",
    "5 + 3 * 2 = 16",
    "6/2*3 = 1",
    "1,000 * 3 = 3,000",
    "1{,}000 + 1 = 1001",
    "12 = 3 *\n4",
    "48 +\n2 = 50",
    "\\frac{1}{2} + \\frac14 = 1",
    "2x + 3 = 7",
    "x + 5 + 3 = 10",
    "2(3) = 6",
    "5! * 2 = 240",
    "half of 30 + 2 = 17",
    "5 more than 3 * 4 = 17",
    "the price of 3 shirts + 5 = 50",
    "17 + 5 = 10 (mod 12)",
    "9 - 5 = 8 hours, from 9 am to 5 pm",
    "Weeks 3-4 = 2",
    "f(2 + 3) = 7",
    "gcd(12, 9 + 3) = 6",
    "3,5 * 2 = 7",
    "12:30 + 2 = 14:30",
    "5 + 3 ≈ 9",
    "about 7 * 7 = 50",
    "3 - 5 = 2",
    "2 + 2 = 5?",
    "2 + 2 = 4x",
    "7/12 / 1/12 = 7",
    "0900-0130 = 0730",
    "8+6/120+8 = 14/128",
    "50 cents * 4 = $2",
    "5 * 3 = 15,000",
    "3/4 = 75",
    "Day 2 - 5 * 3 = 15",
    "2^{100} + 1 = 7",
    "1/0 = 3",
    "7a+5=3",
    "3 1/2 * 2 = 7",
    "10 - 4 = 1.5x",
    "12/13 = (1 - 7/k)",
    "3/5 = 12/x",
    "3 bags / 15 minutes = 8 bags / Y",
    "f(1/4) = 5",
    "66(1/3) = 22",
    "2(6) + 3 = 2(7) + 1",
    "500 / 2/5 = 200",
    "5 + 3 = 9. Wait, that's 8.",
    "12 * 15 = 170... no, 180",
    "12 * 15 = 170 (let me recompute)",
    "14, 400 / 80 = 180",
    "1, 200 + 300 = 1, 500",
    "3/5 = 12 people",
    "3/5 of the students = 12",
    "3/5 of 20 + 1 = 15",
    "Compute modulo 7:\n\n3 * 5 = 1\n\n1 * 5 = 5\n\n5 * 5 = 4",
    "ab\\left(3 + 4\\right) = 14",
    "\\text{rev}(12 + 3) = 51",
    "Subtracting: (2) - (1) = 5",
    "7 + 5 = 2, carry the 1",
    "3 * 4 = 3 groups of 4 = 12",
    "8 * 4 = 2 to the power of 5",
    "\\[ \\sqrt{9} + 4 = 1 \\]\n\\[ 3 + 4 = 1 \\]",
    "3 + 4 = 1, so x = 1 is extraneous",
    "4 pounds - 6 ounces = 58",
    "1/4*16 = 8 tablespoons",
    ".8 + . 84 + .82 = 2.46",
    "16,0000/10 = 16000",
    "which give $15=15$ and $-20=-20$",
    "0.33 * 300 = 100",
    "48 +\n2 + 5 = 55",
    "45 + 30 = 1 hour 15 minutes.",
    "7 + 7 + 3 = 2 weeks and 3 days",
    "2 ft + 6 in = 30 in",
    "He has $5 - 50 cents = $4.50 left.",
    "5 dollars + 25 cents = 525 cents",
    "$1.5 million + $500,000 = $2 million.",
    "2 thousand + 300 = 2300.",
    "2 hundred + 35 = 235.",
    "3 apples + 2 oranges = $7.",
    "3 \\text{ apples} + 2 \\text{ oranges} = \\$7.",
    "2 adults + 3 children = $54",
    "3 units + 12 = 60",
    "3 tens + 4 ones = 34",
    "3 wins + 2 draws = 11 points",
    "5 cows + 3 chickens = 26 legs",
    "$3\\,AB + 2 = 20$",
    "Total = 3 shirts at $20 each + $10 shipping = $70.",
    "Total cost = 3 shirts ($20 each) + $10 = $70",
    "Total = 3 nights at $120 + $45 = $405",
    "Total hours = 2 and 1/2 + 3 = 5.5",
    "The total is three shirts at $20 + $10 shipping = $70.",
    "The total is three shirts costing $20 + $10 = $70.",
    "Then 2 * 3 + 4 = 12, which is false.",
    "2 * 3 + 4 = 12 is false",
    "This gives 4 + 5 = 10, a contradiction.",
    "If x = 2 then 2 + 3 = 6 is impossible.",
    "In base 5, 3 + 4 = 12.",
    "Working modulo 7, we have 3 * 5 = 1.",
    "Modulo 7, 3 * 5 = 1.",
    "On a 12-hour clock, 9 + 5 = 2.",
    "Rounding to the nearest hundred, 2987 + 4012 = 7000.",
    "47 * 3 = 140 to the nearest ten.",
    "123 * 456 = 56000 to 2 significant figures",
    "We estimate: 98 * 52 = 5000.",
    "Case 1 - 4 * 3 = 12",
    "Part 1 - 20 * 3 = 60",
    "Store 1 \u2013 5 * 10 = 50",
    "1 - 3 * 5 = 15",
    "(1) - 3 * 5 = 15",
    "Is 2 + 3 = 6 true",
    "Check whether 2 + 3 = 6",
    "2 + 3 = 6 (no)",
    "2 + 3 = 6 fails",
    "$3 + 4 = 2$ in $\\mathbb{Z}_5$",
    "10 + 5 * 2 - 6 = 24",
    "12 - 4 / 2 * 6 = 24",
    "67% * 300 = 200",
    "17% * 600 = 100",
    "x &= 3 \\cdot 4 + \\\\\n5 \\cdot 6 = 42\n",
    "x &= 3 \\cdot 4 + \\\\[2pt]\n5 \\cdot 6 = 42\n",
    "3 units + 2 units = 60",
    "6 + 8 = 1 hour, 15 minutes",
    "1.05 * 1.05 = 1.10\n1000 * 1.10 = 1102.50",
    "4/3 = 1.33\n(1.33 - 1) * 100 = 33.33",
    "1/3 = 33%\n33% * 300 = 100",
    "100% - 40 = 60%",
    "50% + 30 = 80%",
    "In base 7:\n3 + 5 = 11",
    "Working modulo 7, we have\n\\[ 5 \\cdot 3 = 1 \\]",
    "On a 12-hour clock:\n9 + 5 = 2",
    "3 decades * 2 = 60",
    "3 dimes * 4 = $1.20",
    "6 nickels * 2 = $0.60",
    "$5 - 75 = 425 cents",
    "Weeks 1 + 2 = 30 pages",
    "$1.000 + $500 = $1.500",
    "(10 + 5 * 2) = 30",
    "c = sqrt (9 + 16) = 5",
    "sqrt 16 + 2 = 6",
    "abs (3 - 8) + 2 = 7",
    "lg 100 + 3 = 5",
    "In Z_10, 7 + 5 = 2",
    "In Z_{10}, 7 + 5 = 2",
    "In GF(7), 4 + 5 = 2",
    "In F_7, 4 + 5 = 2",
    "In Z/7, 4 + 5 = 2",
    "The units digit: 7 * 7 = 9",
    "7 * 8 = 6 (last digit)",
    "Groups 1 + 2 = 30",
    "Boxes 1 + 2 = 30",
    "Games 1-5 = 50 points",
    "In games 1-5 = 50",
    "Since $a * b = a^2 + b$, we get $3 * 4 = 13$",
    "33 + 33 + 33 = 100",
    "Row 3 + 4 = 12 seats",
    "Room 12 + 13 = 40 people",
    "Tier 1 + 2 = 30",
    "Box 1 + 2 = 30",
    "28 + 5 = 3 December",
    "The price after 10% - 5 = 40",
    "For each of 4 weeks: 5 + 3 = 32",
    "5 + 3 = 9 apples?",
]
NO_VALUES = [
    "y = 3x + 5.",
    "y = 3x",
    "r = 2\\sqrt{5}",
    "Area $= \\boxed{11\\sqrt2}$.",
    "= 9\\pi",
    "A = 8_{9}",
    "N = 5!",
    "P = (7, 8)",
    "= 10:30",
    "= 3 : 4",
    "x = 5\\frac{1}{2}",
    "x = 5 1/2",
    "= 2 and 1/2",
    "= 2 (x + 1)",
    "= 3 AB",
    "= 2 million",
    "45 + 30 = 1 hour 15 minutes",
]
VALUES = [
    "= 24",
    "= 24 clips and 30 + 4",
    "= 24 clips in 3 days",
    "= $24 a day, 3 (clips)",
    "= 24 (clips)",
    "= \\boxed{24 \\text{ cm}}",
    "(= 24, 3)",
    "= 24^\\circ",
    "&= 24 \\\\\n",
    "= 24 \\implies",
]


@pytest.mark.parametrize("text", FALSE)
def test_an_equation_that_is_false_however_it_is_read_is_an_error(text):
    assert walk(find_milestones("", (), "?"), text, correct=None).first_error is not None


@pytest.mark.parametrize("text", TRUE_OR_UNSURE)
def test_what_may_be_true_is_no_error(text):
    assert walk(find_milestones("", (), "?"), text, correct=False).first_error is None


@pytest.mark.parametrize("text", NO_VALUES)
def test_a_number_that_is_only_a_part_of_the_right_side_is_no_milestone(text):
    assert [each.value for each in find_milestones("Q", (text,), "?")] == ["?"]


@pytest.mark.parametrize("text", VALUES)
def test_a_number_alone_is_a_milestone_whatever_its_unit(text):
    assert [each.value for each in find_milestones("Q", (text,), "?")] == ["24", "?"]


def test_what_the_worked_solution_says_itself_is_no_error():
    milestones = find_milestones("", ("He pays 6*2 = 18.\n", "\\boxed{20}"), "20")
    assert walk(milestones, "6 * 2 = 18 dollars", correct=None).segments == ((0, 10, 0, True),)
    assert walk(milestones, "6 * 2 = 19 dollars", correct=None).first_error == 8


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("3 apples + 2 oranges = 7 fruits", "7"),
        ("3 pears + 2 = 7", "7"),
        ("6 + 2 * 5 = 40", "40"),
        ("3 apples + 2 oranges = 5 fruits", None),
        ("6 + 2 * 5 = 16", None),
        ("7 / 2 = 3.5", None),
        ("7 / 2 = 3", None),
        ("4 feet * 3 = 144 inches", None),
        ("3 + 2 apples = 7 + 1", None),
        ("About 3 apples + 2 oranges = 7 fruits", None),
        ("3 apples + 2 oranges = 7 fruits?", None),
        ("The price of 3 apples + 2 oranges = 7", None),
        ("x + 30 = 50", None),
        ("2 apples + 3 oranges = 7 fruits", None),
    ],
)
def test_another_value_of_a_milestones_own_equation_is_an_error(text, error):
    steps = ["3 + 2 = 5\n", "6 + 2 * 5 = 16\n", "7 / 2 = 4 boxes\n", "4 * 3 = 12 feet\n", "x + 30 = 42\n"]
    walked = walk(find_milestones("", steps, "42"), text, correct=None)
    assert walked.first_error == (None if error is None else text.rindex(error))


@pytest.mark.parametrize("operations_per_step", [1, 2])
@pytest.mark.parametrize("answer_values", [1, 2])
def test_every_wrong_value_of_a_chain_is_its_first_error(operations_per_step, answer_values):
    config = ChainsConfig(
        num_train=6,
        num_heldout=2,
        num_harder=2,
        operations_per_step=operations_per_step,
        answer_values=answer_values,
    )
    for instance in generate_splits(config)["train"]:
        milestones = find_milestones(instance.question, instance.steps, instance.answer)
        assert len(milestones) == len(instance.steps)
        text = "".join(instance.steps)
        whole = walk(milestones, text, correct=None)
        assert "".join(text[s.start : s.end] for s in whole.segments) == text
        assert whole.first_error is None and [s[2:] for s in whole.segments] == [
            (index, True) for index in range(len(milestones))
        ]
        for index, place in enumerate(match.start(1) for match in re.finditer(r"=(\d)", text)):
            wrong = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
            walked = walk(milestones, wrong, correct=False)
            assert walked.first_error == place
            assert walked.segments[-1][1:] == (place + 1, index, False)
            assert walk(milestones, wrong, correct=True).first_error is None


def test_a_chain_whose_beginning_the_question_states_is_judged_from_there():
    steps = ("5a+4=9\n", "9b+3=2\n", "2c-1=1\n", "1d-2=9\n\\boxed{9}")
    ahead = find_milestones("5 a+4 b+3 c-1 d-2", steps, "9")[2:]
    right = walk(ahead, "".join(steps), correct=None)
    assert right.first_error is None and [each[2:] for each in right.segments] == [(0, True), (1, True)]
    assert walk(ahead, "9b+3=7\n2c-1=1\n", correct=None).first_error is None
    assert walk(ahead, "9b+3=2\n2c-1=5\n", correct=None).first_error == 12


def test_a_value_between_two_steps_of_a_chain_is_judged_where_the_modulus_is_known():
    steps = ("5a+4b+3=2\n", "2c-1d-2=9\n\\boxed{9}")
    milestones = find_milestones("5 a+4 b+3 c-1 d-2", steps, "9")
    assert walk(milestones, "5a+4=9\n9b+3=2\n2c-1=1\n1d-2=9\n\\boxed{9}", correct=None).first_error is None
    assert walk(milestones, "5a+4=8\n", correct=None).first_error == 5
    assert walk(milestones, "2c-1d-2=9\n9e+1=0", correct=None, shown=1).first_error == 15
    assert walk(milestones, "2c-1d-2=9\n\\boxed{8}", correct=None, shown=1).first_error == 17


@pytest.mark.parametrize(
    ("text", "written", "value"),
    [
        ("Its speed is 120 / 2 = 60 km/h.", "120/2=60", "60"),
        ("= 60 km/h * 2", "", None),
        ("x = 24,5", "", None),
        ("x = 24 ± 3", "", None),
        ("x = 20 sin x", "", None),
        ("23 + 1 = 24, so", "23+1=24", "24"),
        ("-6 + 10 = 4 degrees", "", "4"),
        ("x - 6 + 10 = 4", "", "4"),
        ("So:\n- 6 + 10 = 16 hours", "6+10=16", "16"),
        ("* 6 + 10 = 16 hours", "6+10=16", "16"),
        ("5 - 20 = -15", "5-20=-15", None),
    ],
)
def test_what_an_equation_states(text, written, value):
    [equation] = equations(text)
    assert (equation.written, equation.value) == (written, value)


def test_the_end_of_a_step_that_begins_with_a_sign_is_no_equation_of_its_own():
    milestones = find_milestones("?", ["-6 + 10 = 4 degrees.\n", "4 * 5 = 20"], "20")
    assert walk(milestones, "6 + 10 = 16 hours", correct=None).first_error is None
    assert walk(milestones, "6 + 10 = 4", correct=None).first_error == 9


def test_a_flag_at_the_end_of_a_line_stays_whatever_follows():
    lines = "So 3 + 4 = 7\n\n- 2 * 5 = 10\n7 + 10 = 18\n= 18 * 1 = 18\n+ 4 = 22\n".splitlines(keepends=True)
    milestones = find_milestones("", (), "?")
    errors = [
        walk(milestones, "".join(lines[:num]), correct=None).first_error for num in range(len(lines) + 1)
    ]
    flagged = next(error for error in errors if error is not None)
    assert errors[errors.index(flagged) :] == [flagged] * errors.count(flagged)


_PIECES = st.sampled_from(
    [
        *"0123456789+-*/=%$().,^|{}\n ",
        "12",
        "x",
        " of ",
        "\\frac{",
        "\\boxed{",
        "}{",
        " apples",
        "7a+5=2",
        "\u0663",
        "²",
    ]
)


@given(st.text() | st.lists(_PIECES, max_size=40).map("".join), st.lists(st.text(), max_size=3), st.text())
def test_no_text_makes_the_walk_fail_and_segments_follow_each_other(text, steps, answer):
    for milestones in (find_milestones(text, [*steps, text], answer), find_milestones("5 a+4", [text], "9")):
        for correct in (None, False, True):
            segments = walk(milestones, text, correct=correct, shown=1).segments
            starts = [0, *(segment.end for segment in segments)][: len(segments)]
            assert [segment.start for segment in segments] == starts
            assert all(0 <= segment.end <= len(text) for segment in segments)


@needs_shared
def test_nothing_is_flagged_in_the_worked_solutions_of_gsm8k():
    problems = read_gsm8k("train", folder=SHARED / "gsm8k")
    for problem in problems:
        milestones = find_milestones(problem.question, problem.steps, problem.answer)
        assert walk(milestones, "".join(problem.steps), correct=None).first_error is None, problem.steps
    counts = coverage(problems[::20])
    assert counts.stating / counts.steps > 0.9 and counts.with_two / counts.problems > 0.9


@needs_shared
def test_few_right_solutions_of_models_are_flagged():
    rows = [json.loads(line) for line in (SHARED / "traces.jsonl").open()]
    rows = [row for row in rows if row["source"].startswith("processbench") and row["steps_ok"]]
    flagged = [
        row["id"]
        for row in rows
        if walk(find_milestones("", (), "?"), row["sep"].join(row["steps"]), correct=None).first_error
        is not None
    ]
    assert len(rows) > 600 and len(flagged) <= 0.01 * len(rows), flagged
