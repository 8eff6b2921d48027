r"""Steps: cut where a hint may end, never within maths, code, tables or braces, and the text comes back."""

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.data.steps.cutting import join_steps, split_sentences, split_steps
from seele.data.steps.protected import legal_cuts, protected_spans
from seele.data.tasks.gsm8k import read_gsm8k

REAL = Path(__file__).parents[2].parent / "shared" / "data"
needs_real_data = pytest.mark.skipif(
    not REAL.is_dir(), reason="the real traces are not beside this checkout (../shared)"
)


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
    for line in (REAL / "traces.jsonl").read_text(encoding="utf-8").splitlines():
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


@needs_real_data
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
        for instance in read_gsm8k(split, folder=REAL / "gsm8k"):
            yield instance.steps
    for name in ("countdown_test", "kk_logic_test"):
        yield from pq.read_table(REAL / "uft" / f"{name}.parquet", columns=["hint"])["hint"].to_pylist()
    for name in ("dev", "test"):
        for line in (REAL / "aqua" / f"{name}.json").read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["rationale"].splitlines(keepends=True)


@needs_real_data
def test_every_solution_of_gsm8k_uft_and_aqua_is_cut_legally_and_comes_back():
    num = 0
    for steps in other_solutions():
        check_steps(join_steps(steps, separator=""), "".join(steps), has_money=True)
        num += 1
    assert num == 7473 + 1319 + 1024 + 500 + 508
