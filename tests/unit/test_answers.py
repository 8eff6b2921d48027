"""Answers: options, texts without a box, and hostile ones."""

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.real_data import SHARED, needs_shared
from seele.config.settings import RewardConfig
from seele.errors import DataError
from seele.records import GradeReason
from seele.reward.extract import answer_sentences, last_line, unboxed_answer
from seele.reward.grader import GraderPool
from seele.reward.graders import load_judge
from seele.reward.multiple_choice import LETTERS, grade_choice

# --- Which option an answer names


CITIES = ("Paris", "Rome", "Oslo", "Bern")


def names(answer: str | None, options: tuple[str, ...] = CITIES, gold: str = "C") -> str:
    """The letters of all options as which the answer is accepted, or why it is not."""
    grades = [grade_choice(answer, letter, options) for letter in LETTERS[: len(options)]]
    reasons = {grade.reason.value for grade in grades if not grade.correct}
    letters = "".join(letter for letter, grade in zip(LETTERS, grades, strict=False) if grade.correct)
    return letters or "/".join(reasons)


@pytest.mark.parametrize(
    "answer",
    [
        "C",
        "c",
        "(C)",
        "C.",
        "C)",
        "C:",
        " C ",
        "$C$",
        "**C**",
        r"\text{C}",
        "{C}",
        r"\boxed{{C}}",
        r"\textbf{(C)}",
        r"\boxed{C}",
        r"so \boxed{\text{(C) Oslo}}",
        "Oslo",
        "oslo.",
        r"\text{ Oslo }",
        "C. Oslo",
        "C) Oslo",
        "(C) Oslo",
        "C: Oslo",
        "C - Oslo",
        "C Oslo",
        "C (Oslo)",
        r"\text{C (Oslo)}",
        "(C) (Oslo)",
        "C, Oslo",
        "C = Oslo",
        "C \u2013 Oslo",
        "C. it can't be A or B",
        "(C) Oslo, so P(A) is 0",
        "C. Oslo is C. as I said",
        "the answer is Oslo",
        "Option C",
        "the answer is C",
        "The correct answer is (C).",
        "First I took A. No: the answer is C, not B.",
        "3",
        "(3)",
    ],
)
def test_letter_text_and_number_name_an_option(answer):
    assert names(answer) == "C"


@pytest.mark.parametrize(
    "answer",
    [
        "E",
        "5",
        "London",
        "A and B",
        "(A) and (B)",
        "(A), (B)",
        "(A) (B)",
        "(A)(B)",
        "A), B)",
        "A. B.",
        "A) Paris, B) Rome",
        "A. Paris and B. Rome",
        "the answer is A or B",
        "So the answer is (A) and (B)",
        "A or Rome",
        "A. Rome",
        "A (Rome)",
        "(A) (Rome)",
        "A, Rome",
        "A = Rome",
        "A, C",
        "A = C",
        "A-C",
        "(A) Rome",
        "Paris, Rome",
        "a city",
        "A city in France",
        "not C",
        "0",
        "33",
        "x",
    ],
)
def test_what_names_no_option_or_two_is_wrong(answer):
    assert names(answer) == "wrong"


@pytest.mark.parametrize("answer", [None, "", " \n", r"\boxed{}", r"I think \boxed{C"])
def test_no_answer(answer):
    assert names(answer) == "no_answer"


def test_texts_come_before_numbers_unless_the_question_is_numbered():
    options = ("4", "3", "2", "1")
    assert grade_choice("3", "B", options).correct  # the text of B
    assert not grade_choice("3", "C", options).correct
    assert grade_choice("3", "3", options).correct  # numbered: the third one
    assert grade_choice("C", "3", options).correct
    assert not grade_choice("2", "3", options).correct
    assert grade_choice("3.", "C", ("x", "y", "z")).correct  # no such text
    assert grade_choice("2) 20 N", "2", ("10 N", "20 N", "2", "40 N")).correct
    assert not grade_choice("2) 10 N", "2", ("10 N", "20 N", "2", "40 N")).correct
    assert not grade_choice("(2), (3)", "2", ("10 N", "20 N", "2", "40 N")).correct
    assert not grade_choice("2) 20 N, 3) 2", "2", ("10 N", "20 N", "2", "40 N")).correct
    assert not grade_choice("2.5 N", "2", ("10 N", "20 N")).correct


def test_a_number_names_no_option_where_another_one_contains_it():
    speeds = ("2 m/s", "3 m/s", "4 m/s", "5 m/s")
    assert names("2", speeds) == names("the answer is 3", speeds) == "wrong"
    assert names("1", speeds) == "A"
    assert names("2", ("1 m/s", "2 m/s", "2.5 m/s")) == "B"  # by its number and by what it says
    assert names("2", ("1/2", "1/3", "2/3", "2,000")) == names("2", ("x^2", "H_2O", "z_{2}")) == "B"
    decimals = ("3.0 m/s", "4.0 m/s", "5.0 m/s", "6.0 m/s")
    assert (
        names("3", decimals) == names("2", ("$2.00", "$1.00")) == names("3", ("x = 3", "y", "z")) == "wrong"
    )
    assert names("2", ("about 2", "4 to 6")) == "wrong" and names("2", ("about 1", "2,000", "2.5")) == "B"
    assert names("the answer is 3", ("4", "3", "2")) == "B"


@pytest.mark.parametrize(
    ("answer", "option"),
    [
        (r"50\%", "50%"),
        (r"$50\%$", "50%"),
        (r"\$6,000", "$6,000"),
        (r"\$6{,}000", "$6,000"),
        (r"\text{R\&D}", "R&D"),
        (r"\mathrm{MgBr_{2}}", "MgBr_{2}"),
        (r"\text{(B) MgBr$_{2}$}", "MgBr_{2}"),
        (r"\text{(B) }\frac{1}{243}", r"\frac{1}{243}"),
        (r"\text{(B) \frac{\sqrt{1}}{243}}", "something else"),
        (r"\textbf{B. \text{Oslo} {north}}", "something else"),
        *((rf"\{command}{{B}}", "else") for command in ("textrm", "boldsymbol", "bm", "textsf", "texttt")),
        ("[B]", "else"),
        ('"B"', "else"),
        ('"Oslo"', "Oslo"),
        (r"\dfrac{1}{2}", r"$\frac{1}{2}$"),
        ("\N{MINUS SIGN}3", "-3"),
    ],
)
def test_mark_up_changes_nothing(answer, option):
    assert names(rf"\boxed{{{answer}}}", ("x", option, "y")) == "B"


def test_genotypes_are_told_apart_by_their_letters():
    genotypes = ("R", "rr", "Rr", "RR")
    assert grade_choice("Rr", "C", genotypes).correct
    assert not grade_choice("RR", "C", genotypes).correct
    assert not grade_choice("rR", "C", genotypes).correct


def test_signs_of_texts_are_not_separators():
    assert names("C. -2", ("2", "1", "-2", "-1")) == "C"
    assert names("A -2", ("2", "1", "-2", "-1")) == "wrong"
    assert names("C: .5", ("5", "1", ".5", "-1")) == "C"


def test_options_with_the_same_text_are_the_same():
    assert names("Rome", ("Rome", "Paris", "Rome ")) == "AC"


@pytest.mark.parametrize("answer", ["2", "(2)", "[2]", "2)", "2:"])
def test_a_number_in_brackets_is_no_label_before_the_texts_either(answer):
    assert grade_choice(answer, "C", ("1", "3", "2")).correct
    assert grade_choice(answer, "B", ("red", "blue", "green")).correct  # no text: the second one
    assert not any(grade_choice(answer, gold, ("1 m", "3 m", "2 m")).correct for gold in "AB")


def test_a_text_in_brackets_comes_before_the_number_in_it():
    options = ("(3)", "(1)", "(2)")
    assert grade_choice("(1)", "B", options).correct and not grade_choice("(1)", "A", options).correct


def test_texts_that_are_labels_are_labels():
    assert names("B", ("B", "A")) == "B"
    assert names("I", ("H", "I")) == "B"  # no ninth option: the text
    assert names("a dog", ("cat", "a dog")) == "B"


@pytest.mark.parametrize("count", [1, 3, 10])
def test_one_to_ten_options(count):
    options = tuple(f"word {index * 'l'}" for index in range(count))
    for index, letter in enumerate(LETTERS[:count]):
        assert (
            names(letter, options)
            == names(str(index + 1), options)
            == names(options[index], options)
            == letter
        )


@pytest.mark.parametrize(
    ("gold", "options", "complaint"),
    [
        ("A", (), "1 to 10 options, got 0"),
        ("A", ("x",) * 11, "1 to 10 options, got 11"),
        ("C", ("x", "y"), "'C' names none of the 2 options"),
        ("London", CITIES, "'London' names none"),
        (" ", CITIES, "' ' names none"),
    ],
)
def test_a_question_that_makes_no_sense_is_the_callers_mistake(gold, options, complaint):
    with pytest.raises(DataError, match=complaint):
        grade_choice("A", gold, options)


def test_without_the_texts_labels_are_read():
    assert grade_choice("(C) whatever", "C").correct
    assert grade_choice("3", "C").correct
    assert grade_choice("Oslo", "C").reason is GradeReason.WRONG


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=10), min_size=1, max_size=10))
def test_any_text_gets_a_verdict(answer, options):
    grade = grade_choice(answer, "A", options)
    assert grade.reason in {GradeReason.CORRECT, GradeReason.WRONG, GradeReason.NO_ANSWER}


def test_long_texts_take_linear_time():
    assert names(r"\text{" * 300_000 + "C") == "wrong"
    assert names("so " * 300_000 + "the answer is C") == "C"
    assert unboxed_answer("\n" * 300_000 + "4") == "4"


@needs_shared
def test_every_option_of_mmlu_pro_is_found_by_letter_and_by_text():
    rows = [
        json.loads(line)
        for line in (SHARED / "mmlu_pro" / "sample_300.jsonl").read_text().split("\n")
        if line
    ]
    assert {len(row["options"]) for row in rows} >= {3, 10}
    for row in rows:
        for letter, text in zip(LETTERS, row["options"], strict=False):
            right = letter == row["answer"]
            for answer in (letter, f"({letter})", f"{letter}. {text}", f"The answer is ({letter})."):
                assert grade_choice(answer, row["answer"], row["options"]).correct == right, (answer, row)
            assert grade_choice(text, row["answer"], row["options"]).correct == right, (text, row)


@needs_shared
def test_golds_of_arc_c_are_letters_and_22_numbers():
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(SHARED / "arc_c" / "valid.arc_c.parquet")
    golds = [row["ground_truth"] for row in table["reward_model"].to_pylist()]
    numbers = [gold for gold in golds if gold.isdecimal()]
    assert (len(golds), len(numbers)) == (1172, 22)
    for gold in golds:
        letter = LETTERS[int(gold) - 1] if gold.isdecimal() else gold
        assert grade_choice(rf"\boxed{{{gold}}}", gold, ("w", "x", "y", "z", "v")).correct
        assert grade_choice(letter, gold, ("w", "x", "y", "z", "v")).correct


# --- Answers of texts without a box: the last "answer is ...", else the last number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        # Numbers, whatever stands around them.
        ("The answer is 42.", "42"),
        ("The answer is: **1,234.50**.", "1234.50"),
        ("**Answer:** \\$1,234", "1234"),
        ("the final answer is $1{,}234$", "1234"),
        ("answer = -3", "-3"),
        ("The answer is \N{MINUS SIGN}7.", "-7"),
        ("The answer is 1/2.", "1/2"),
        ("The answer is $\\frac{1}{2}$.", "\\frac{1}{2}"),
        ("The answer is \\(7\\).", "7"),
        ("The answer is:\n\n$$\n\\frac{3}{4}\n$$\n", "\\frac{3}{4}"),
        ("The answer to the problem is therefore 7, because 3+4 = 7.", "7"),
        ("The answer is 10^5.", "10^5"),
        # Percent signs stay, units go.
        ("The answer is 50%.", "50\\%"),
        ("The answer is $50\\%$", "50\\%"),
        ("The answer is 12 apples.", "12"),
        ("The answer is 9.8 m/s^2, as measured.", "9.8"),
        ("The answer is $\\frac{1}{2}$ metres per second.", "\\frac{1}{2}"),
        ("The answer is 90°.", "90"),
        ("The answer is $18 a day.", "18"),
        ("The answer is 540 meters a week.", "540"),
        ("The answer is 14kg.", "14"),
        # More than a number is taken whole.
        ("The answer is 2x + 3.", "2x + 3"),
        ("The answer is 5xy.", "5xy"),
        ("The answer is 2**10.", "2**10"),
        ("The answer is 3 pi.", "3 pi"),
        ("The answer is $x=3$ or $x=4$.", "$x=3$ or $x=4$"),
        ("The answers are 1, 3 and 5.", "1, 3 and 5"),
        ("The answer is $5 and he has $6 left.", "$5 and he has $6 left"),
        ("Answer: blue", "blue"),
        ("The answer is 5 million.", "5 million"),
        ("The answer is 2 thirds.", "2 thirds"),
        ("The answer is 101 base two.", "101 base two"),
        ("The answer is 3 percent.", "3\\%"),
        ("The answer is 5; 6.", "5; 6"),
        ("The answer is 3, x.", "3, x"),
        ("The answer is 1, pi.", "1, pi"),
        ("The answer is 7, minus x.", "7, minus x"),
        ("The answer is 2 alpha.", "2 alpha"),
        ("The answer is 1 1/2.", "1 1/2"),
        ("The answer is x.", "x"),
        # Remarks go, of an equation the right side stays, of words the number.
        ("The answer is 12 (since 3*4=12).", "12"),
        ("The answer is 12 - as shown above.", "12"),
        ("The answer is $42$ and it is correct.", "42"),
        ("The answer is 3+4 = 7.", "7"),
        ("The answer is $2^{10}$ = 1024.", "1024"),
        ("The answer is found as follows: 3+4=7", "7"),
        ("*Answer:* 42", "42"),
        ("The answer is:\n- 12", "12"),
        ("The answer for x = 3 is 7.", "7"),
        ("The answer is only 42.", "42"),
        ("The answer is 17 for n = 5.", "17"),
        ("The answer is 17 apples when $x = 3$.", "17"),
        ("The answer is $17$ if x=3.", "17"),
        ("The answer is $5+3=8$.", "8"),
        ("The answer is negative 8.", "-8"),
        ("The answer is minus $1,200.", "-1200"),
        ("Answer: Tom has 12 apples.", "12"),
        ("So the final answer is: (B) 12", "12"),
        # What says nothing leaves the answer to the phrase before it, or to the last number.
        ("The answer is 42. I hope this answer is helpful.", "42"),
        ("The answer is 12.\n\nIs this right? Let me know if the answer is wrong.", "12"),
        ("## Answer:\nWe have 3 apples and 4 more.\nSo the total is 7.", "7"),
        ("Answer:\nLet's think step by step. 3 and 4. So it is 7", "7"),
        ("The answer is 4. The answer is not 5.", "4"),
        ("The answer is not 5 but 7.", "7"),
        ("The answer is 7, so the answer is not $\\frac{1}{2}$.", "7"),
        ("So it is 7, not 1/2.", "7"),
        ("The answer is not 5.", "not 5"),
        # The last phrase that says something counts, and goes before numbers behind it.
        ("The answer is 3. No, the answer is 4. There were 5.", "4"),
        ("There are 7. The answer is", "7"),
        # The last number, without the phrase.
        ("we get 5 - 3, hence 2.", "2"),
        ("x = 5 - 3", "3"),
        ("it falls to -3.", "-3"),
        ("so 1,234,567 of them", "1234567"),
        ("= 3/4 in all", "3/4"),
        ("thus $\\frac{3}{4}$", "\\frac{3}{4}"),
        ("about $1.5 \\times 10^{-7}$ m", "1.5 \\times 10^{-7}"),
        ("about 1.5e-7 m", "1.5e-7"),
        ("60% of 5 is 3", "3"),
        ("So it takes 1 1/2 hours.", "1 1/2"),
        ("So $1\\frac{1}{2}$", "1\\frac{1}{2}"),
        ("So it is $2\\sqrt{3}$.", "2\\sqrt{3}"),
        ("So $x = \\frac{\\pi}{4}$", "\\frac{\\pi}{4}"),
        ("So \\[ x = 2 \\\\[4pt] = \\sqrt{3} \\]", "\\sqrt{3}"),
        ("We open \\[ and then \\( y = 2\\sqrt{3} \\).", "2\\sqrt{3}"),
        ("it leaves at 3:45", "3:45"),
        ("It is 42 [1]", "42"),
        ("It is 42.\n1. Read.\n2. Check.", "42"),
        ("It is 42.\n\n\t1. Read.\n\n  2) Check.", "42"),
        ("She has 60 and gets 12 more.\n\n72.\n\nDone.", "72"),
        ("H2O", None),
        ("no digits", None),
        ("", None),
    ],
)
def test_the_last_phrase_counts_and_else_the_last_number(text, answer):
    assert unboxed_answer(text) == answer


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "${}$", "**{}**", "{} apples", "{}."]))
def test_an_integer_is_found_however_it_is_written(number, form):
    written = form.format(number)
    assert unboxed_answer(f"I counted 3. The answer is {written}") == str(number)
    assert unboxed_answer(f"I counted 3, and then {written}") == str(number)


@given(st.text())
def test_no_text_makes_it_fail_and_no_answer_is_blank(text):
    for said in (unboxed_answer(text), *answer_sentences(text)):
        assert said is None or said.strip()
    assert "\n" not in last_line(text)


@pytest.mark.parametrize(
    "text",
    [
        *("answer of " * 20_000, "1,111" * 20_000, "$" * 100_000, "answer is $" * 20_000, "(-" * 50_000),
        *("\\[1" * 30_000, "\\(1" * 30_000, "\\\\[1" * 30_000),
        *("1/" + "1" * 50_000 + "/", "3" * 50_000, "answer: .\n" * 20_000, "answer: . $$\n" * 20_000),
    ],
)
def test_long_texts_are_read(text):
    unboxed_answer(text)


def test_a_sentence_is_kept_as_it_is_for_options():
    assert [*answer_sentences("I think the answer is (C) because of (A).")] == ["(C)"]
    assert [*answer_sentences("The answer is 5 apples. The answers are wrong.")] == ["wrong", "5 apples"]
    assert not [*answer_sentences("Perhaps (C).")]
    assert last_line("It is\n **B** \n\n") == "B"


# --- What anybody may write into a box: none of it hangs, crashes the pool, is run, or costs another answer


MEGABYTE = 1_000_000
TIME_LIMIT_S = 0.3
MEMORY_LIMIT_MB = 512

Kind = Callable[[random.Random, str], object]


def python_code(rng: random.Random, canary: str) -> str:
    """Makes the file ``canary`` if it is run; most of it also where sympy reads it."""
    command = rng.choice(
        [
            f"__import__('os').system('touch {canary}')",
            f"__import__('pathlib').Path('{canary}').touch()",
            f"open('{canary}','w')",
            f"eval(\"open('{canary}','w')\")",
            f"(lambda: open('{canary}', 'w'))()",
            f"().__class__.__base__.__subclasses__() and open('{canary}','w')",
        ]
    )
    # Has no letters, so that MathRuler's rule of two letters lets it through.
    octal = "".join(f"\\{ord(character):03o}" for character in command)
    frames = [
        "{}",
        "sqrt('{}')",
        "frac('{}')-1",
        "f({})",
        "1+{}",
        "(x,{})",
        r"\sqrt{{{}}}",
        r"\operatorname{{f}}({})",
        "$x_{{{}}}$",
        r"\text{{{}}}",
        "x;{}",
        "x\n{}",
    ]
    return rng.choice(frames).format(rng.choice([command, octal]))


def power_tower(rng: random.Random, _: str) -> str:
    base, height = rng.randint(2, 99), rng.randint(3, 40)
    towers = [
        "**".join([str(base)] * height) + "+0.5",
        "^".join([str(base)] * height),
        f"{base}^{{" * height + "9" + "}" * height,
        f"(({base}**999)**999)**999+0.5",
        f"{base}**(9*9*9*9*9*9*9*9)+x",
        f"(x+1)**{10 ** rng.randint(3, 12)}",
        f"x^{{{base}^{{{base}^{{{base}}}}}}}",
    ]
    return rng.choice(towers)


def factorial(rng: random.Random, _: str) -> str:
    number = rng.randint(10**4, 10**9)
    return rng.choice(
        [f"{number}!+0.5", "9" + "!" * rng.randint(3, 60), f"({number}!)!", rf"{number}!\cdot x"]
    )


def shift(rng: random.Random, _: str) -> str:
    number = rng.randint(10**6, 10**12)
    return rng.choice(
        [f"1<<{number}", f"(1<<{number})+0.5", f"[0]*{number}", f"'a'*{number}", f"1e{number}+x"]
    )


def slow(rng: random.Random, _: str) -> str:
    """Allowed, and more than there is time for."""
    return "(1+" + "+".join(f"sqrt({root})" for root in (2, 3, 5, 7)) + f")**{rng.randint(40, 99)}"


def deep_nesting(rng: random.Random, _: str) -> str:
    opening, closing = rng.choice(
        [*map(tuple, ("()", "[]", "{}")), (r"\frac{1}{", "}"), (r"\sqrt{", "}"), (r"\left(", r"\right)")]
    )
    depth = rng.choice([60, 99, 300])
    return opening * depth + "x" + closing * depth


def megabytes(rng: random.Random, _: str) -> str:
    unit = rng.choice(["{", "}", "\\", "9", "(", "$", r"\boxed{", "\n", " x", "-", "^", "\u00e9"])
    return unit * (MEGABYTE // len(unit)) + rng.choice(["", "1", r"\boxed{1}"])


def tiresome(rng: random.Random, _: str) -> str:
    """Short enough to be read."""
    units = [
        "9",
        "-",
        "(x+1)*",
        "x^",
        "1,",
        r"\frac",
        r"\sqrt ",
        "{}",
        "$ ",
        r"\(",
        "a+",
        "1/",
        "!",
        "'",
        "sqrt",
    ]
    unit = rng.choice(units)
    return unit * (rng.randint(300, 990) // len(unit)) + rng.choice(["", "1", "x"])


def unbalanced(rng: random.Random, _: str) -> str:
    return "".join(rng.choices("{}[]()$\\|^_&%#~x1+-/.,", k=rng.randint(1, 80)))


def unicode_text(rng: random.Random, _: str) -> str:
    # From 0xD800 on: surrogates without their other half.
    points = (rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0xD800, 0x11000)]) for _ in range(40))
    return "".join(map(chr, points))


def null_bytes(rng: random.Random, _: str) -> str:
    return rng.choice(["\0", "1\0", "\0" * 500, "x\0+1", "\\frac{1}{\0}"])


def no_text(rng: random.Random, _: str) -> object:
    return rng.choice([None, 3, 2.5, True, ["1"], {"a": 1}, b"1", object()])


KINDS: list[Kind] = [
    python_code,
    power_tower,
    factorial,
    shift,
    deep_nesting,
    megabytes,
    tiresome,
    unbalanced,
    unicode_text,
    null_bytes,
    no_text,
    python_code,
    slow,
]


def hostile_answers(count: int, *, seed: int, canary: Path) -> Iterator[object]:
    """``count`` answers, the kinds in turn; at most 15 of them take all of their time."""
    rng = random.Random(seed)
    kinds = (KINDS[index % len(KINDS)] for index in range(count))
    turns = ((kind, index // len(KINDS)) for index, kind in enumerate(kinds))
    return ((no_text if kind is slow and turn >= 15 else kind)(rng, str(canary)) for kind, turn in turns)


def grade_among_honest_answers(grader: str, count: int, canary: Path) -> dict[str, Any]:
    """Grade ``count`` hostile answers, an honest one right behind each, in the same messages."""
    pairs = [
        pair
        for number, answer in enumerate(hostile_answers(count, seed=count, canary=canary))
        for pair in ((answer, "x+0.5"), (f"{number}/4+x", f"x+{number / 4}"))
    ]
    settings = RewardConfig(
        grader=grader, num_workers=2, time_limit_s=TIME_LIMIT_S, memory_limit_mb=MEMORY_LIMIT_MB
    )
    with GraderPool(settings) as pool:
        grades = pool.grade_answers(pairs)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "correct": [grade.correct for grade in grades],
        "reasons": sorted({grade.reason.value for grade in grades}),
        "memory_mb": used.ru_maxrss / 1024,
    }


@pytest.mark.parametrize(("grader", "count"), [("mathruler", 1000), ("strict+", 104)])
def test_hostile_answers_cost_nothing_but_themselves(tmp_path, grader, count):
    if grader != "mathruler":
        pytest.importorskip("math_verify")
    canary = tmp_path / "canary"
    # In a process whose children are the graders: to the kernel, what they were forked from counts as theirs.
    command = [sys.executable, __file__, grader, str(count), str(canary)]
    tests, path = str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")
    environment = os.environ | {"PYTHONPATH": f"{tests}{os.pathsep}{path}"}
    run = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment).stdout)
    assert run["correct"] == [False, True] * count
    assert GradeReason.TIMEOUT in run["reasons"]
    assert not canary.exists()
    assert run["memory_mb"] < MEMORY_LIMIT_MB


def test_the_code_among_them_is_live(tmp_path):
    # Control: without the guard, sympy runs it.
    canary = tmp_path / "canary"
    probe = "import sys, sympy\nfor text in sys.argv[1:]:\n"
    probe += "    try: sympy.sympify(text)\n    except Exception: pass"
    rng = random.Random(0)
    code = [python_code(rng, str(canary)) for _ in range(5)]
    subprocess.run([sys.executable, "-c", probe, *code], cwd=tmp_path, check=True)
    assert canary.exists()


@pytest.mark.parametrize("grader", ["mathruler", "math_verify", "strict+"])
def test_the_gate_alone_lets_no_code_through(tmp_path, grader):
    if grader != "mathruler":
        pytest.importorskip("math_verify")
    # Here, in a process that may do everything.
    judge, rng = load_judge(grader), random.Random(1)
    for _ in range(200):
        code = python_code(rng, str(tmp_path / "canary"))
        try:
            assert not judge(code, "x+0.5"), code
        except Exception as error:  # noqa: BLE001 - anything may be raised; the pool counts it
            assert not isinstance(error, AssertionError)
    assert os.listdir(tmp_path) == []


def test_multiple_choice_survives_them_in_this_process(tmp_path):
    for answer in hostile_answers(300, seed=3, canary=tmp_path / "canary"):
        answer = answer if isinstance(answer, str) else None
        assert not grade_choice(answer, "C", ("Paris", "Rome", "Oslo")).correct
    assert os.listdir(tmp_path) == []


if __name__ == "__main__":
    print(json.dumps(grade_among_honest_answers(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))  # noqa: T201
