"""Each data set's schema: rows of the local files, rows of the hub, and rows that break it.

The rows in tests/fixtures/files.json are made up, in the real schemas.
"""

import os
from pathlib import Path

import pytest

from seele.errors import DataError
from seele_eval.benchmarks import BENCHMARKS
from seele_eval.problems import number_twins, open_problem
from seele_eval.rows import read_arc, read_gpqa, read_gsm8k, read_math, read_mmlu_pro, read_olympiad
from seele_eval.sources import read_rows

FIXTURES = Path(os.environ["SEELE_FIXTURES"], "benchmarks")


def fixture(name):
    """The problems of a fixture, read as the benchmark is read."""
    benchmark = BENCHMARKS[name]
    return [benchmark.read(row, at) for at, row in read_rows(FIXTURES / benchmark.files[0])]


ANSWERS = {
    "gsm8k": ["42", "3000", "-3"],
    "math500": ["\\frac{3}{4}", "\\left( 2, 1 \\right)", "x^2+2x+1"],
    # The last of several boxes; no answer field.
    "minerva_math": ["1.6", "4.5e33", "2 e^{-t}"],
    "olympiadbench": ["2", "-2, 2", "(1,2), (2,1)", "\\frac{41}{12}", "n^{2}"],
    "aime24": ["025", "204"],
    "aime25": ["70", "588"],
    "aime26": ["72", "5"],
    "hmmt25": ["\\frac{3}{4}", "\\sqrt{2}, -\\sqrt{2}", "1,001"],
    # Floats in the file: MathRuler raises on anything but a text.
    "amc23": ["27", "-1"],
    "amc83": ["142", "144"],
    "arc_c": ["B", "2", "C", "D"],
    "mmlu_pro": ["A", "B", "J"],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_schema_is_read(name):
    problems = fixture(name)
    assert [problem.answer for problem in problems] == ANSWERS[name]
    assert all(problem.question for problem in problems)
    assert len({problem.instance_id for problem in problems}) == len(problems)


def test_several_answers_in_one_text_are_several_answers():
    assert [problem.answers for problem in fixture("olympiadbench")][1:3] == [("-2", "2"), ("(1,2)", "(2,1)")]
    assert [problem.answers for problem in fixture("hmmt25")] == [
        ("\\frac{3}{4}",),
        ("\\sqrt{2}", "-\\sqrt{2}"),
        ("1,001",),
    ]
    assert [problem.unit for problem in fixture("olympiadbench")] == ["", "", "", "km", ""]


def test_options_keep_the_labels_of_their_source():
    problems = fixture("arc_c")
    assert [problem.labels for problem in problems] == [
        tuple("ABCD"),
        tuple("1234"),
        tuple("ABC"),
        tuple("ABCDE"),
    ]
    assert problems[1].options == ("steam", "ice", "3 kinds of rain", "fog")
    assert problems[0].question.endswith("planet?\n\nA) the Moon\nB) Mars\nC) the Sun\nD) Halley's comet")


def test_one_to_ten_options_are_lettered():
    assert [len(problem.options) for problem in fixture("mmlu_pro")] == [1, 4, 10]
    assert fixture("mmlu_pro")[2].question.endswith("J) 9")


def test_the_options_of_gpqa_are_mixed_the_same_way_always():
    problems, again = fixture("gpqa_diamond"), fixture("gpqa_diamond")
    assert problems == again
    assert [p.options[p.labels.index(p.answer)] for p in problems] == ["16", "3", "mercury"]
    assert {problem.answer for problem in problems} != {"A"}, "the right option must not always be the first"


def gpqa_row(number):
    wrong = {f"Incorrect Answer {n}": f"wrong {n}" for n in (1, 2, 3)}
    return {"Question": f"Made up {number}?", "Correct Answer": "right", **wrong}


def test_no_place_among_the_options_is_favoured():
    golds = [read_gpqa(gpqa_row(number), "row").answer for number in range(400)]
    # 100 each expected, standard deviation 8.7.
    assert all(65 <= golds.count(letter) <= 135 for letter in "ABCD")


@pytest.mark.parametrize(
    ("read", "row", "answers"),
    [
        (read_math, {"question": "2+2?", "answer": "4"}, ("4",)),
        (read_math, {"problem": "2+2?", "answer": 4}, ("4",)),
        (read_math, {"problem": "2+2?", "answer": 4.5}, ("4.5",)),
        (read_math, {"problem": "2+2?", "solution": "\\boxed{4}"}, ("4",)),
        (read_olympiad, {"question": "?", "final_answer": "['$2$']"}, ("2",)),
        (read_olympiad, {"question": "?", "final_answer": "2"}, ("2",)),
        (
            read_arc,
            {"question": "?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"},
            ("B",),
        ),
    ],
)
def test_schemas_of_the_hub_are_read_too(read, row, answers):
    assert read(row, "row").answers == answers


def test_the_hub_and_the_file_of_arc_give_the_same_problem():
    choices = {"text": ["the Moon", "Mars", "the Sun", "Halley's comet"], "label": list("ABCD")}
    row = {"id": "x", "question": "Which of these is a planet?", "choices": choices, "answerKey": "B"}
    assert read_arc(row, "row") == fixture("arc_c")[0]


CHAT = {"reward_model": {"ground_truth": "B"}}


@pytest.mark.parametrize(
    ("read", "row", "complaint"),
    [
        (read_gsm8k, {"question": "?"}, "key 'answer'"),
        (read_gsm8k, {"question": "?", "answer": "it is 3"}, "must end in a line '#### number'"),
        (read_math, {"problem": " ", "answer": "1"}, "key 'problem'"),
        (read_math, {"problem": "?", "answer": None}, "expected an 'answer'"),
        (read_math, {"problem": "?", "answer": True}, "expected an 'answer'"),
        (read_math, {"problem": "?", "solution": "no box"}, "expected an 'answer'"),
        (read_math, ["?"], "key 'question'"),
        (read_olympiad, {"question": "?", "final_answer": []}, "expected a list of texts"),
        (read_olympiad, {"question": "?", "final_answer": [2]}, "expected a list of texts"),
        (read_arc, {"question": "?"}, "expected 'choices' or a chat"),
        (read_arc, {"prompt": [{"content": "?\n\nA) a\nno label"}], **CHAT}, "expected options such as"),
        (read_arc, {"prompt": [{"content": "?\n\nA) a\nC) c"}], **CHAT}, "the gold 'B' is none of"),
        (read_gpqa, {"Question": "?", "Correct Answer": "x"}, "key 'Incorrect Answer 1'"),
        (read_mmlu_pro, {"question": "?", "options": [], "answer": "A"}, "expected 1 to 10 texts"),
        (read_mmlu_pro, {"question": "?", "options": ["x"] * 11, "answer": "A"}, "expected 1 to 10 texts"),
        (read_mmlu_pro, {"question": "?", "options": ["x", "y"], "answer": "C"}, "the gold 'C' is none of"),
    ],
)
def test_a_row_that_breaks_the_schema_is_named(read, row, complaint):
    with pytest.raises(DataError, match=f"^line 7.*{complaint}"):
        read(row, "line 7")


def test_ids_follow_the_content_and_twins_are_told_apart():
    one, two = open_problem("1+1?", "2"), open_problem("1+2?", "3")
    numbered = number_twins([one, two, one])
    assert [problem.instance_id for problem in numbered] == [
        one.instance_id,
        two.instance_id,
        f"{one.instance_id}-2",
    ]
