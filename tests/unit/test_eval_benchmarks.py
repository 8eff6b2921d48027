"""Benchmarks: their definitions, rows, answers and verdicts.

The rows in tests/fixtures/files.json are made up, in the real schemas.
"""

import json
import os
import re
import shutil
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.real_data import SHARED, needs_shared
from seele import plugins
from seele.config.settings import RewardConfig
from seele.data.storage.schema import write_problems
from seele.errors import ConfigError, DataError, SeeleError
from seele.records import Finish, Grade, GradeReason, Instance
from seele.reward.grader import GraderPool
from seele_eval import contamination, run
from seele_eval.arguments import parse_arguments
from seele_eval.benchmarks import BENCHMARKS, GENERAL, GROUPS, LUFFY, MATH
from seele_eval.compare import compare
from seele_eval.grading import (
    BOX_OR_LAST,
    IN_BOXES,
    WHOLE_TEXT,
    FoundAnswer,
    Reading,
    extract_boxed,
    extract_option,
    judge_all,
    judge_found,
    judge_one,
    judge_option,
)
from seele_eval.own_benchmarks import find_benchmarks
from seele_eval.predictions import read_predictions
from seele_eval.problems import choice_problem, drop_unit, number_twins, open_problem, split_answers, vote_key
from seele_eval.prompts import Response
from seele_eval.rows import read_arc, read_gpqa, read_gsm8k, read_math, read_mmlu_pro, read_olympiad
from seele_eval.sources import load_benchmark, load_problem_file, read_rows

# --- The table of benchmarks: definitions, files, the hub, row counts; real files where they are at hand


ROOT = Path(__file__).parents[2]
FIXTURES = Path(os.environ["SEELE_FIXTURES"], "benchmarks")

NOT_AT_HAND = ("gpqa_diamond", "mmlu_pro", "aime26", "hmmt25")


def load(name, **changes):
    settings = {"data_dir": FIXTURES, "any_row_count": True} | changes
    return load_benchmark(name, BENCHMARKS[name], **settings)


def boxed(problem):
    """The gold as a model would give it."""
    return f"So it is $\\boxed{{{problem.answer}}}$."


# Definitions


def test_the_papers_settings_are_the_defaults():
    # arXiv:2509.06923, section 5.1.
    sampled = {name for name in GROUPS["all"] if BENCHMARKS[name].temperature}
    assert sampled == {"aime24", "amc23"}
    assert all((BENCHMARKS[name].temperature, BENCHMARKS[name].samples) == (0.6, 32) for name in sampled)
    assert len(MATH) == 6 and len(GENERAL) == 3


def test_every_benchmark_has_a_pinned_source_and_a_count():
    counts = {name: benchmark.rows for name, benchmark in BENCHMARKS.items()}
    assert counts == {
        "gsm8k": 1319, "math500": 500, "minerva_math": 272, "olympiadbench": 675, "aime24": 30, "aime25": 30,
        "aime26": 30, "hmmt25": 30, "amc23": 40, "amc83": 83, "arc_c": 1172, "gpqa_diamond": 198,
        "mmlu_pro": 12032, "mmlu_pro_300": 300,
    }  # fmt: skip
    revisions = [benchmark.hub.revision for benchmark in BENCHMARKS.values() if benchmark.hub]
    assert len(revisions) == 13 and all(len(revision) == 40 for revision in revisions)


def test_groups_stand_for_their_members_once():
    assert list(find_benchmarks(["general", "gsm8k"])) == [*GENERAL, "gsm8k"]
    assert list(find_benchmarks(["all", "math"])) == [*MATH, *GENERAL]
    assert list(find_benchmarks(["luffy"])) == [
        "aime24", "aime25", "amc83", "math500", "minerva_math", "olympiadbench",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"unknown \['gsm9k'\] .*; known are \['gsm8k'"):
        find_benchmarks(["gsm8k", "gsm9k"])


def test_luffy_draws_its_small_benchmarks_32_times_and_the_others_once():
    # arXiv:2504.14945: avg@32 on AIME24, AIME25 and AMC, pass@1 on the other three.
    several = {name for name, benchmark in find_benchmarks(["luffy"]).items() if benchmark.samples == 32}
    assert several == {"aime24", "aime25", "amc83"}
    assert {BENCHMARKS[name].samples for name in LUFFY if name not in several} == {1}


# Files


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "mmlu_pro_300"])
def test_a_wrong_number_of_rows_is_refused_unless_it_is_wanted(name):
    task = load(name)
    assert task.source["rows"] == len(task.problems) > 0
    with pytest.raises(
        DataError, match=f"{task.source['rows']} rows, but {name} has {BENCHMARKS[name].rows}"
    ):
        load(name, any_row_count=False)


def test_a_limit_keeps_the_first_problems():
    assert load("gsm8k", limit=2).problems == load("gsm8k").problems[:2]


def test_a_missing_file_is_named_with_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"aime25/test.jsonl: no such file.*math-ai/aime25@563bb840"):
        load("aime25", data_dir=tmp_path)
    with pytest.raises(DataError, match=r"from its author$"):
        load("mmlu_pro_300", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("gsm8k", "{\n", "line 1: expected a JSON value"),
        ("amc83", "{}", "expected a list of rows, got dict"),
        ("amc83", "[", "cannot be read as JSON"),
        ("arc_c", "no parquet", "cannot be read as parquet"),
        ("gpqa_diamond", "Question\nonly this\n", "key 'Correct Answer'"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, complaint):
    path = tmp_path / BENCHMARKS[name].files[0]
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(DataError, match=f"{path.name}.*{complaint}"):
        load(name, data_dir=tmp_path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_problem_file("mine", tmp_path / "none.parquet")


def test_a_row_may_hold_a_line_separator(tmp_path):
    shutil.copytree(FIXTURES / "math500", tmp_path / "math500")
    with (tmp_path / "math500/test.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"problem": "a\u2028b", "answer": "1"}, ensure_ascii=False) + "\n")
    assert load("math500", data_dir=tmp_path).problems[-1].question == "a\u2028b"


# Columns


def test_columns_that_tell_problems_apart_are_found_and_kept(serve_rows):
    task = load("hmmt25", by=("problem_type",))
    assert task.problems[1].columns == {"problem_type": ["Algebra", "Number Theory"]}
    assert "problem_type" in task.columns and load("hmmt25").columns == ()
    rows = [{"problem": f"{n}?", "answer": "1", "kind": {"of": n or None}, "no": None} for n in range(101)]
    serve_rows(rows)
    task = load("aime26", data_dir=None, by=("kind.of", "problem"), limit=2)
    # A hundred and one questions are no kinds of questions, however many are asked.
    assert task.columns == ("answer", "kind.of")
    assert [problem.columns for problem in task.problems] == [{"kind.of": None}, {"kind.of": 1}]


# The hub


def test_without_a_folder_the_pinned_revision_comes_from_the_hub(serve_rows):
    hub = serve_rows([{"question": "2+2?", "options": ["3", "4"], "answer": "B"}])
    task = load("mmlu_pro", data_dir=None)
    assert hub.calls == [
        (("TIGER-Lab/MMLU-Pro", None), {"split": "test", "revision": BENCHMARKS["mmlu_pro"].hub.revision})
    ]
    assert task.source == {
        "hub": "TIGER-Lab/MMLU-Pro",
        "revision": BENCHMARKS["mmlu_pro"].hub.revision,
        "rows": 1,
    }


def test_the_hubs_copy_of_olympiadbench_lacks_one_problem(serve_rows):
    row = {"question": "?", "final_answer": ["2"]}
    serve_rows([row] * 674)
    assert len(load("olympiadbench", data_dir=None, any_row_count=False).problems) == 674
    serve_rows([row] * 675)
    with pytest.raises(DataError, match="675 rows, but olympiadbench has 674"):
        load("olympiadbench", data_dir=None, any_row_count=False)


def test_a_hub_that_cannot_be_reached_says_what_else_to_do(serve_rows):
    serve_rows(None)
    with pytest.raises(DataError, match=r"reach the hub.*put arc_c/valid.arc_c.parquet below a folder"):
        load("arc_c", data_dir=None)
    with pytest.raises(DataError, match=r"is gated: accept its terms at .*Idavidrein/gpqa and set HF_TOKEN"):
        load("gpqa_diamond", data_dir=None)
    with pytest.raises(DataError, match="not on the hub"):
        load("mmlu_pro_300", data_dir=None)
    # A user's own may have no file.
    hub_only = replace(BENCHMARKS["arc_c"], files=())
    with pytest.raises(DataError, match=r"reach the hub.*It has no file that could be below --data-dir"):
        load_benchmark("mine", hub_only, data_dir=FIXTURES)
    with pytest.raises(DataError, match="'mine' is not on the hub; its definition needs one of files, hub"):
        load_benchmark("mine", replace(hub_only, hub=None), data_dir=FIXTURES)


# Golds


@pytest.fixture(scope="module")
def grader():
    with GraderPool(RewardConfig(num_workers=2)) as pool:
        yield pool


def refused(task, grader, text_of=boxed):
    """Ids of the problems whose gold is not accepted when it is given as ``text_of`` gives it."""
    return [
        problem.instance_id
        for problem in task.problems
        if not task.judge(grader, problem, task.extract(text_of(problem), problem)).correct
    ]


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "mmlu_pro_300"])
def test_every_gold_of_the_fixtures_is_right_against_itself(name, grader):
    assert refused(load(name), grader) == []


def test_numbers_are_right_in_other_clothes(grader):
    [first, second] = load("aime24").problems
    assert not refused(load("aime24"), grader, lambda problem: f"\\boxed{{{int(problem.answer)}}}")
    assert load("amc23").judge(grader, load("amc23").problems[0], "27.0").correct
    assert load("gsm8k").judge(grader, load("gsm8k").problems[1], "3,000").correct
    assert not load("aime24").judge(grader, first, second.answer).correct


def test_wrapped_several_and_united_answers_of_olympiadbench_are_right(grader):
    task = load("olympiadbench")
    said = ["$2$", "2, -2", "(2,1) \\text{ and } (1,2)", "\\frac{41}{12} \\text{ km}", "n^2"]
    wrong = ["3", "2", "(1,2)", "\\frac{41}{13} \\text{ km}", "n^3"]
    for problem, answer, other in zip(task.problems, said, wrong, strict=True):
        assert task.judge(grader, problem, answer).correct, answer
        assert not task.judge(grader, problem, other).correct, other


@needs_shared
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in NOT_AT_HAND])
def test_a_real_file_is_whole_and_every_gold_is_right_against_itself(name, grader):
    task = load(name, data_dir=SHARED, any_row_count=False)
    assert len(task.problems) == BENCHMARKS[name].rows
    assert len({problem.instance_id for problem in task.problems}) == len(task.problems)
    assert refused(task, grader) == []


@needs_shared
@pytest.mark.parametrize("name", ["arc_c", "mmlu_pro_300"])
def test_every_real_option_is_right_by_its_text(name, grader):
    def text_of_gold(problem):
        return f"\\boxed{{{problem.options[problem.labels.index(problem.answer)]}}}"

    assert refused(load(name, data_dir=SHARED, any_row_count=False), grader, text_of_gold) == []


@needs_shared
def test_the_real_golds_of_olympiadbench_are_right_as_they_are_written_and_in_any_order(grader):
    task = load("olympiadbench", data_dir=SHARED, any_row_count=False)
    written = [row["final_answer"][0] for _, row in read_rows(SHARED / "olympiadbench/test.jsonl")]
    for problem, gold in zip(task.problems, written, strict=True):
        for said in (gold, ", ".join(reversed(problem.answers))):
            assert task.judge(grader, problem, task.extract(f"\\boxed{{{said}}}", problem)).correct, said


@needs_shared
def test_the_traps_of_the_real_data_are_met():
    olympiad = load("olympiadbench", data_dir=SHARED).problems
    assert sum(len(problem.answers) > 1 for problem in olympiad) == 92
    assert sum(bool(problem.unit) for problem in olympiad) == 8
    assert not any("$" in answer[:1] for problem in olympiad for answer in problem.answers)
    arc = load("arc_c", data_dir=SHARED).problems
    assert sum(problem.answer.isdecimal() for problem in arc) == 22
    assert {len(problem.options) for problem in arc} == {3, 4, 5}
    assert {problem.answer for problem in load("amc23", data_dir=SHARED).problems} >= {"27", "-1"}
    assert not any("," in problem.answer for problem in load("gsm8k", data_dir=SHARED).problems)
    assert {len(problem.options) for problem in load("mmlu_pro_300", data_dir=SHARED).problems} >= {3, 4, 10}


def test_the_docs_list_the_benchmarks_as_they_are():
    table = (ROOT / "docs" / "evaluation.md").read_text().split("## Benchmarks")[1]
    rows = {line.split("|")[1].strip(" `"): line for line in table.splitlines() if line.startswith("| `")}
    for name, benchmark in BENCHMARKS.items():
        said = rows[name]
        assert f"| {benchmark.rows} |" in said and benchmark.files[0] in said
        assert benchmark.hub is None or f"{benchmark.hub.name}@{benchmark.hub.revision[:8]}" in said
        drawn = f"{benchmark.samples} at T={benchmark.temperature}" if benchmark.temperature else "greedy"
        assert f"| {drawn} |" in said
        assert f"| {benchmark.title} |" in said or name not in GROUPS["all"]


# --- Each data set's schema: rows of the local files, rows of the hub, and rows that break it


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
        (read_math, {"problem": "2+2?", "answer": None, "solution": "\\boxed{4}"}, ("4",)),
        (read_math, {"problem": "2+2?", "answer": float("nan"), "solution": "\\boxed{4}"}, ("4",)),
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
        (read_gsm8k, {"question": "?", "answer": "#### 3,4"}, "must end in a line '#### number'"),
        (read_math, {"problem": " ", "answer": "1"}, "key 'problem'"),
        (read_math, {"problem": "?", "answer": None}, "expected an 'answer'"),
        (read_math, {"problem": "?", "answer": True}, "expected an 'answer'"),
        (read_math, {"problem": "?", "answer": float("nan")}, "expected an 'answer'"),
        (read_math, {"problem": "?", "answer": [4], "solution": "\\boxed{4}"}, "expected an 'answer'"),
        (read_math, {"problem": "?", "solution": "no box"}, "expected an 'answer'"),
        (read_math, ["?"], "key 'question'"),
        (read_olympiad, {"question": "?", "final_answer": []}, "expected a list of texts"),
        (read_olympiad, {"question": "?", "final_answer": [2]}, "expected a list of texts"),
        (read_arc, {"question": "?"}, "expected 'choices' or a chat"),
        (read_arc, {"prompt": [{"content": "?\n\nA) a\nno label"}], **CHAT}, "expected options such as"),
        (read_arc, {"prompt": [{"content": "?\n\nA) a\nC) c"}], **CHAT}, "the gold 'B' is not one of"),
        (read_gpqa, {"Question": "?", "Correct Answer": "x"}, "key 'Incorrect Answer 1'"),
        (read_mmlu_pro, {"question": "?", "options": [], "answer": "A"}, "expected 1 to 10 texts"),
        (read_mmlu_pro, {"question": "?", "options": ["x"] * 11, "answer": "A"}, "expected 1 to 10 texts"),
        (read_mmlu_pro, {"question": "?", "options": ["x", "y"], "answer": "C"}, "gold 'C' is not one of"),
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


# --- Benchmarks of a user's own, from a YAML file or an import path: scored, resumed, looked for in
# problems


QUESTIONS = [f"How many legs have {n} made-up spiders with eight legs each in all?" for n in range(1, 5)]
YAML = """
reference: legs.jsonl
columns: {question: ask, answer: gold, level: meta.hard}
prompt: "{question}\\nOne number."
"""
CODE = """
import json
import numpy as np
from seele_eval.benchmarks import Benchmark
from seele_eval.problems import open_problem
from seele.data.sources import OpenSplit


def near(answer, gold):
    return abs(float(answer) - float(gold)) < 2


def undecided(answer, gold):
    return None


def rows(split):
    yield {"question": f"Rows of {split}?", "answer": 4}


def read(row, at):
    return open_problem(row["ask"], row["gold"])


LEGS = Benchmark(read=read, open=lambda: OpenSplit(rows=[("row 0", {"ask": "2+2?", "gold": "4"})], origin={}))


def array(answer, gold):
    return np.array([True, False])


def numpy_bool(answer, gold):
    return np.bool_(True)
"""


@pytest.fixture
def legs(tmp_path):
    """A benchmark of four questions as a YAML file."""
    rows = [{"ask": ask, "gold": 8 * n, "meta": {"hard": n}} for n, ask in enumerate(QUESTIONS, start=1)]
    (tmp_path / "legs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "legs.py").write_text(CODE)
    (file := tmp_path / "legs.yaml").write_text(YAML)
    return file


@pytest.fixture
def model(tmp_path):
    (folder := tmp_path / "model").mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def load_own(spec):
    [(name, benchmark)] = find_benchmarks([str(spec)]).items()
    return load_benchmark(name, benchmark, data_dir=None)


def evaluate(model, spec, out, *options):
    """The score of a model that always answers 9, and the questions that it was asked."""
    asked = []

    def complete(requests):
        asked.extend(request.question for request in requests)
        said = Response(text="\\boxed{9}", num_tokens=1, finish=Finish.STOP)
        return ((index, said) for index, _ in enumerate(requests))

    argv = ["--model", str(model), "--benchmarks", str(spec), "--out", str(out), *options]
    [score] = run.evaluate(parse_arguments(argv), complete=complete).scores
    return score, asked


def test_a_yaml_file_is_a_benchmark_with_its_columns_and_its_prompt(legs):
    task = load_own(legs)
    assert (task.name, task.samples, task.temperature, len(task.problems)) == ("legs", 1, 0.0, 4)
    assert [(each.question, each.answer, each.level) for each in task.problems] == [
        (f"{ask}\nOne number.", str(8 * n), n) for n, ask in enumerate(QUESTIONS, start=1)
    ]
    assert task.source["rows"] == 4 and list(task.source["files"]) == ["legs.jsonl"]


def test_its_scores_are_written_resumed_and_told_apart_like_the_nines(legs, model, tmp_path):
    legs.write_text(f"{YAML}judge: legs.py:near\n")
    score, asked = evaluate(model, legs, tmp_path / "out", "--by", "meta.hard")
    assert (score.benchmark, score.accuracy, score.problems) == ("legs", 0.25, 4)
    assert [part.value for part in score.by_column["meta.hard"]] == ["1", "2", "3", "4"]
    assert len(asked) == 4 and "legs" in (tmp_path / "out" / "scores.md").read_text()
    again, asked = evaluate(model, legs, tmp_path / "out")
    assert asked == [] and again.accuracy == score.accuracy
    (tmp_path / "own.py").write_text("def reward(data_source, solution_str, ground_truth, extra_info): pass")
    with pytest.raises(
        ConfigError, match=r"own.py:reward: benchmarks \['legs'\] have judges of their own; ev"
    ):
        evaluate(model, legs, tmp_path / "out", "--grader", f"{tmp_path}/own.py:reward")
    # Verdicts of another function or file do not count; what was asked with another prompt is refused.
    legs.write_text(f"{YAML}judge: legs.py:numpy_bool\n")
    again, asked = evaluate(model, legs, tmp_path / "out")
    assert (again.accuracy, len(asked)) == (1.0, 4)
    (tmp_path / "wide.py").write_text(CODE.replace("< 2", "< 8"))
    legs.write_text(f"{YAML}judge: wide.py:near\n")
    again, asked = evaluate(model, legs, tmp_path / "out")
    assert (again.accuracy, again.problems, len(asked)) == (0.5, 4, 4)
    [paired] = compare(tmp_path / "out", tmp_path / "out").differences
    assert (paired.problems, paired.first) == (4, 0.5)
    legs.write_text(legs.read_text().replace("One number", "A number"))
    with pytest.raises(ConfigError, match="has samples of another legs problem"):
        evaluate(model, legs, tmp_path / "out")


def test_samples_and_temperature_are_the_files(legs, model, tmp_path):
    legs.write_text(f"{YAML}samples: 3\ntemperature: 1\nmay_be_published: false\nrows: 4\n")
    score, asked = evaluate(model, legs, tmp_path / "out")
    assert (score.samples, score.temperature, len(asked)) == (3, 1.0, 12)
    assert {each.question for each in read_predictions(tmp_path / "out").predictions} == {""}
    legs.write_text(legs.read_text().replace("One number.", "A number."))
    assert len(evaluate(model, legs, tmp_path / "out")[1]) == 12, "another prompt"
    legs.write_text(f"{YAML}rows: 5\n")
    with pytest.raises(DataError, match="4 rows, but legs has 5"):
        load_own(legs)


def test_training_problems_that_it_asks_are_found_whatever_its_prompt(legs, tmp_path, capsys):
    legs.write_text(YAML.replace("One number.", "One number that nothing else follows, please."))
    questions = [QUESTIONS[2], "Is this another question of a made-up kind altogether, or is it not one?"]
    instances = [
        Instance(instance_id=f"a-{n}", data_source="a", question=question, steps=(), answer="24")
        for n, question in enumerate(questions)
    ]
    write_problems(tmp_path / "train.parquet", instances, split="train")
    assert contamination.main([str(tmp_path / "train.parquet"), "--benchmarks", str(legs)]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 problems" in said and "row 0, a-0: legs 2, exact" in said
    command = [str(tmp_path / "train.parquet"), "--benchmarks", f" {legs}, ", "--min-shared", "0"]
    assert contamination.main(command) == 0
    for option, value in (
        *(("--min-shared", "50"), ("--min-shared", "nan"), ("--examples", "-1")),
        ("--benchmarks", ", "),
    ):
        with pytest.raises(SystemExit):
            contamination.main([*command, option, value])
        assert f"argument {option}: must be" in capsys.readouterr().err


def test_options_are_judged_by_their_label(tmp_path):
    rows = [
        {"question": "Which?", "options": ["red", "blue"], "answer": "B"},
        {"question": "Which?", "options": {"2": "blue", "1": "red"}, "answer": 1},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "colours.yaml").write_text("reference: rows.json\ncolumns: {options: options}\n")
    task = load_own(tmp_path / "colours.yaml")
    rows[1]["options"]["3"] = None  # as parquet fills up what other rows have
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    assert load_own(tmp_path / "colours.yaml").problems == task.problems
    assert task.problems[0].question == "Which?\n\nA) red\nB) blue"
    assert task.problems[1].question == "Which?\n\n1) red\n2) blue"
    said = [
        task.extract(f"\\boxed{{{colour}}}", problem) for problem in task.problems for colour in ("red", "B")
    ]
    assert said == ["A", "B", "1", "2"]
    assert [task.judge(None, task.problems[0], each).correct for each in ("A", "B")] == [False, True]
    assert [task.judge(None, task.problems[1], each).correct for each in ("red", "blue")] == [True, False]
    for options, answer in (
        ({"yes": "red", "no": "blue"}, "yes"),
        ({"A": "red", "C": "blue"}, "A"),
        (["red"] * 11, "A"),
        (["red"] * 27, "A"),
        ({"0": "red", "1": "blue"}, "0"),
    ):
        (tmp_path / "rows.json").write_text(
            json.dumps([{"question": "Which?", "options": options, "answer": answer}])
        )
        with pytest.raises(
            DataError, match=r"row 0.*expected 1 to 10 options with the labels A, B, C, .*got"
        ):
            load_own(tmp_path / "colours.yaml")


def test_several_answers_are_a_list_and_rows_may_come_from_a_function(legs, tmp_path):
    legs.write_text("reference: legs.py:rows\nsplit: hard\n")
    [problem] = load_own(legs).problems
    assert (problem.question, problem.answers) == ("Rows of hard?", ("4",))
    (tmp_path / "legs.jsonl").write_text(json.dumps({"question": "Roots?", "answer": [1, 2.5]}) + "\n")
    legs.write_text("reference: legs.jsonl\n")
    assert load_own(legs).problems[0].answers == ("1", "2.5")


def test_a_prepared_file_is_one_of_the_rows_that_a_benchmark_may_have(legs, tmp_path):
    mine = Instance(instance_id="seven", data_source="toy", question="3 + 4?", steps=(), answer="7")
    write_problems(tmp_path / "mine.parquet", [mine], split="mine")
    legs.write_text("reference: mine.parquet\ncolumns: {question: question, answer: answer}\n")
    [found] = load_own(legs).problems
    assert (found.question, found.answers) == ("3 + 4?", ("7",))


def test_a_list_is_refused_if_a_judge_would_take_its_entries_apart(legs, tmp_path, grader):
    def own(*answers, judge=""):
        (tmp_path / "legs.jsonl").write_text(json.dumps({"question": "Roots?", "answer": answers}) + "\n")
        legs.write_text(f"reference: legs.jsonl\n{judge}")
        return load_own(legs)

    task = own("1,234", "5")
    assert task.problems[0].answers == ("1234", "5")
    assert task.judge(grader, task.problems[0], "5, 1234").correct
    for answers in (("1,5", "2,4"), ("5", "x=1 and y=2")):
        with pytest.raises(DataError, match=r"'answer': the entry '.*' of the list is read as 2 answers, \["):
            own(*answers)
    kept = ("(1,5)", "\\{2,4\\}", "\\pm 3", "$2$")
    assert own(*kept).problems[0].answers == kept
    assert own("1,5", "2,4", judge="judge: legs.py:near\n").problems[0].answers == ("1,5", "2,4")
    assert own("1,5").problems[0].answers == ("1,5",)


def test_a_benchmark_is_found_by_import_path_and_of_an_installed_package(legs, tmp_path, monkeypatch):
    task = load_own(f"{tmp_path}/legs.py:LEGS")
    assert (task.name, task.problems[0].question) == ("LEGS", "2+2?")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = EntryPoints([EntryPoint("spiders", "legs:LEGS", "seele.benchmarks")])
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: points.select(group=group))
    assert load_own("spiders").problems == task.problems
    with pytest.raises(ConfigError, match=r"unknown \['beetles'\]; known are .*'spiders'.*FILE.yaml"):
        find_benchmarks(["beetles"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("refrence: legs.jsonl", r"legs.yaml: unknown key 'refrence' .*; allowed keys are \['columns'"),
        ("reference: legs.jsonl\ncolumns: {gold: a}", r"legs.yaml.columns: unknown key 'gold'"),
        ("reference: legs.jsonl\ncolumns: {question: q}", r"column 'q': expected a text .*\['ask', 'gold'"),
        ("reference: legs.jsonl\nsamples: many", "legs.yaml.samples: expected a whole number, got 'many'"),
        ("reference: legs.jsonl\nsamples: 0", "legs.yaml: expected a finite temperature >= 0 and samples"),
        ("reference: legs.jsonl\ntemperature: .nan", "legs.yaml: expected a finite temperature >= 0"),
        ("reference: legs.jsonl\ntemperature: .inf", "legs.yaml: expected a finite temperature >= 0"),
        ("reference: legs.jsonl\nprompt: One number.", r"legs.yaml: prompt needs \{question\}"),
        ("reference: legs.jsonl\njudge: legs.py:far", "legs.yaml.judge: .*legs.py has no 'far'"),
        ("reference: none.jsonl", "none.jsonl: no such file"),
        ("{}", "reference"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_before_anything_is_drawn(legs, text, complaint):
    legs.write_text(text)
    with pytest.raises((ConfigError, DataError), match=complaint):
        load_own(legs)


@pytest.mark.parametrize("judge", ["partial(near, gold='8')", "Near()", "len", "Near"])
def test_a_judge_is_a_function_with_a_file(legs, tmp_path, judge):
    lines = ("from functools import partial", "class Near:", "    __call__ = near", f"judge = {judge}")
    (tmp_path / "legs.py").write_text(CODE + "\n".join(lines) + "\n")
    legs.write_text(f"{YAML}judge: legs.py:judge\n")
    with pytest.raises(ConfigError, match=r"legs.yaml.judge: .*legs.py:judge' must be a function"):
        load_own(legs)


def test_a_judge_or_reader_that_fails_is_named_with_its_line_and_the_problem(legs, model, tmp_path):
    for judge, complaint in (
        ("undecided", r":13: problem \w+-\w+: .*got None"),
        ("array", r":28: problem \w+-\w+: a judge must return True or False, got array"),
        ("near", r":10: .*ValueError"),
    ):
        legs.write_text(f"{YAML}judge: legs.py:{judge}\n")
        task = load_own(legs)
        with pytest.raises(DataError, match=f"legs.py{complaint}"):
            task.judge(None, task.problems[0], "nine")
    legs.write_text(f"{YAML}judge: legs.py:numpy_bool\n")
    task = load_own(legs)
    assert task.judge(None, task.problems[0], "nine").correct
    (tmp_path / "typo.py").write_text(CODE.replace('row["gold"]', 'row["gould"]'))
    with pytest.raises(DataError, match=r"typo.py:22: row 0: KeyError: 'gould'"):
        load_own(f"{tmp_path}/typo.py:LEGS")


@pytest.mark.parametrize(
    ("judge", "complaint"),
    [
        ("def judge(answer): return True", r"cannot be called with an answer and the gold: too many pos"),
        ("def judge(answer, *, gold): return True", r"cannot be called with an answer and the gold: "),
        ("async def judge(answer, gold): return True", r"is a coroutine function, .*; begin it with def"),
    ],
)
def test_a_judge_that_does_not_take_an_answer_and_the_gold_is_refused(legs, tmp_path, judge, complaint):
    (tmp_path / "own.py").write_text(f"{judge}\n")
    legs.write_text(f"{YAML}judge: own.py:judge\n")
    with pytest.raises(ConfigError, match=rf"legs.yaml.judge: \S*own.py:1: '\S*own.py:judge' {complaint}"):
        load_own(legs)


def test_a_judge_is_tried_before_the_model_is_loaded(legs, model, tmp_path):
    legs.write_text(f"{YAML}judge: legs.py:undecided\n")

    def complete(requests):
        raise AssertionError("the model must not be touched")

    argv = ["--model", str(model), "--benchmarks", str(legs), "--out", str(out := tmp_path / "out")]
    with pytest.raises(DataError, match=r"legs.py:13: problem \w+-\w+: a judge must return True or False"):
        run.evaluate(parse_arguments(argv), complete=complete)
    assert not out.exists()


def test_a_benchmark_in_python_has_the_version_of_its_own_functions(legs, tmp_path):
    def version(code, name="OWN"):
        (file := tmp_path / f"own_{len([*tmp_path.iterdir()])}.py").write_text(CODE + code)
        [benchmark] = find_benchmarks([f"{file}:{name}"]).values()
        return benchmark.version

    judged = "def judge(grader, problem, answer): return {}\nOWN = Benchmark(read=read, {}=judge{})\n"
    assert version("", "LEGS") == "", "nothing of its own decides a verdict"
    first, second = version(judged.format(1, "judge", "")), version(judged.format(2, "judge", ""))
    assert len({first, second, version(judged.format(1, "extract", "")), ""}) == 4
    assert version(judged.format(1, "judge", ", version='7'")) == "7"
    with pytest.raises(ConfigError, match=r":OWN: extract and judge must be functions.*or set version="):
        version("class Judge:\n    pass\nOWN = Benchmark(read=read, judge=Judge())\n")


OWN = """
from functools import partial
from pathlib import Path
from seele.records import Grade, GradeReason

ROWS = [("row 0", {"ask": "2+2?", "gold": "4"})]
RIGHT = Grade(True, GradeReason.CORRECT)


def opened(rows=ROWS, **origin):
    return OpenSplit(rows=rows, origin=origin)


def part(*given, **named):
    return BODY


OWN = Benchmark(**{"read": read, "open": opened} | {FIELDS})
"""


@pytest.mark.parametrize(
    ("fields", "body", "complaint"),
    [
        ("judge", "True", ": judge, problem ID: must return a seele.records.Grade, got True"),
        ("judge", "given[3]", ": judge, problem ID: IndexError: tuple index out of range (LINE)"),
        ("extract", "4", ": extract, problem ID: must return a text or None, got 4"),
        ("extract", "1 / 0", ": extract, problem ID: ZeroDivisionError: division by zero (LINE)"),
        ("open", "ROWS", ": open: must return a seele.data.sources.OpenSplit, got [("),
        ("open", "1 / 0", ": open: ZeroDivisionError: division by zero (LINE)"),
        ("open", "opened(1 / 0 for _ in '1')", ": rows and origin of open: ZeroDivisionError"),
        ("open", "opened(a=Path())", ": rows and origin of open: TypeError: Object of type"),
        ("open", "opened([{'ask': 1}])", ": rows of open: must return pairs of a location and a row, got {"),
        ("read", "given[0]", ": row 0: read must return a seele_eval.problems.Problem, got {'ask"),
    ],
)
def test_a_mistake_in_a_benchmarks_own_functions_is_named_before_the_model_is_loaded(
    model, tmp_path, fields, body, complaint
):
    def complete(requests):
        raise AssertionError("the model must not be touched")

    code = OWN.replace("BODY", body).replace("FIELDS", f'"{fields}": part')
    (file := tmp_path / "own.py").write_text(CODE + code)
    line = (CODE + code).split("\n").index("def part(*given, **named):") + 1
    argv = ["--model", str(model), "--benchmarks", f"{file}:OWN", "--out", str(out := tmp_path / "out")]
    with pytest.raises(SeeleError) as raised:
        run.evaluate(parse_arguments(argv), complete=complete)
    said = re.sub("problem [0-9a-f]{16}(-[0-9a-f]{8})?:", "problem ID:", str(raised.value))
    assert f"{file}:{line}{complaint.replace('LINE', f'{file}:{line + 1}')}" in said
    assert said.startswith(f"{file}" if fields == "read" else f"--benchmarks {file}:OWN: ")
    assert not out.exists()


def test_a_reader_that_is_a_partial_is_named_by_the_function_that_it_calls(tmp_path):
    code = OWN.replace("BODY", "given[0]['gould']").replace("FIELDS", '"read": partial(part, gold=1)')
    (file := tmp_path / "own.py").write_text(CODE + code)
    with pytest.raises(DataError, match=rf"^{file}:\d+: row 0: KeyError: 'gould'$"):
        load_own(f"{file}:OWN")


def test_only_functions_of_ones_own_are_wrapped(legs, model, tmp_path):
    assert load_own(f"{tmp_path}/legs.py:LEGS").judge is judge_one
    assert load_own(f"{tmp_path}/legs.py:LEGS").extract is extract_boxed
    code = OWN.replace("BODY", "RIGHT").replace("FIELDS", '"judge": part')
    (file := tmp_path / "own.py").write_text(CODE + code)
    assert evaluate(model, f"{file}:OWN", tmp_path / "out")[0].accuracy == 1.0


def test_names_are_not_taken_twice(legs, tmp_path):
    (tmp_path / "gsm8k.yaml").write_text(YAML)
    with pytest.raises(ConfigError, match="another benchmark is named 'gsm8k'; rename one"):
        find_benchmarks([str(tmp_path / "gsm8k.yaml")])


# --- What the text in a box says: several answers, units, votes


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("1,3,5", ["1", "3", "5"]),
        ("$69$,$84$", ["69", "84"]),
        ("$(1,8,19), (2,7,13)$", ["(1,8,19)", "(2,7,13)"]),
        ("\\{-2, 0, 2\\}", ["-2", "0", "2"]),
        ("\\left\\{1, 2\\right\\}", ["1", "2"]),
        ("1 and 3", ["1", "3"]),
        ("1 \\text{ or } 3", ["1", "3"]),
        ("\\pm 2", ["2", "-2"]),
        ("x=\\pm3", ["x=3", "x=-3"]),
        ("2 \\pm \\sqrt{3}", ["2 +\\sqrt{3}", "2 -\\sqrt{3}"]),
        ("\\frac{-1\\pm\\sqrt{17}}{2}, 0", ["\\frac{-1+\\sqrt{17}}{2}", "\\frac{-1-\\sqrt{17}}{2}", "0"]),
        ("(\\pm1, \\mp 2)", ["(1, -2)", "(-1, +2)"]),
        ("\\frac{32}{9}, \\frac{1}{2}", ["\\frac{32}{9}", "\\frac{1}{2}"]),
        ("\\left(-\\frac{1}{2}, \\frac{7}{2}\\right)", ["(-\\frac{1}{2}, \\frac{7}{2})"]),
        ("\\{1,2\\}, \\{3\\}", ["\\{1,2\\}", "\\{3\\}"]),
        ("\\{\\{1,2\\}, \\{3\\}\\}", ["\\{1,2\\}", "\\{3\\}"]),
        ("1; 3", ["1", "3"]),
        ("1 \\quad 3", ["1", "3"]),
        ("x=1,\\qquad x=3", ["x=1", "x=3"]),
        ("1 \\\\ 3", ["1", "3"]),
        ("1 \\text{, } 3\\text{, and } 5", ["1", "3", "5"]),
        ("(1;3)", ["(1;3)"]),
        ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}, 3", ["\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "3"]),
        ("\\begin{cases} x=1, \\\\ y=2 \\end{cases}", ["\\begin{cases} x=1, \\\\ y=2 \\end{cases}"]),
        ("7", ["7"]),
        ("", []),
    ],
)
def test_answers_are_split_outside_brackets(text, answers):
    assert split_answers(text) == answers


@given(st.text())
def test_splitting_never_fails_and_leaves_no_blank_answer(text):
    assert all(answer.strip() for answer in split_answers(text))


@pytest.mark.parametrize(
    ("answer", "unit", "bare"),
    [
        ("3 km", "km", "3"),
        ("\\frac{41}{12} \\text{ km}", "km", "\\frac{41}{12}"),
        ("\\frac{600}{7}\\,\\mathrm{km/h}", "km/h", "\\frac{600}{7}"),
        ("8 mins", "min", "8"),
        ("50 minute", "minutes", "50"),
        ("3", "km", "3"),
        ("3 km", "", "3 km"),
        # Not the end of a word, nor anything before the end.
        ("skm", "km", "skm"),
        ("2 km 300", "km", "2 km 300"),
        # An s that ends a unit is not always a plural's.
        ("5 gauss", "gauss", "5"),
        ("5 ms", "ms", "5"),
        ("5 m", "ms", "5 m"),
        ("5 ms", "m", "5 ms"),
        ("5 hrs", "hr", "5"),
    ],
)
def test_a_unit_is_dropped_from_the_end_only(answer, unit, bare):
    assert drop_unit(answer, unit) == bare


def test_votes_count_answers_that_only_look_different():
    assert (
        len({vote_key(text) for text in ("\\dfrac{1}{2}", "\\frac{1}{2}", "$\\frac{1} {2}$", "\\frac12")})
        == 2
    )
    assert vote_key("\\text{Paris}") == vote_key("Paris") == "Paris"
    assert vote_key("12") != vote_key("13")


# --- From a text to a verdict, by kind of problem. The grader here knows equality and nothing else


class ExactGrader:
    """Right is what is the same without blanks."""

    def __init__(self, too_long=False):
        self.asked = []
        self.too_long = too_long

    def grade_answer(self, answer, gold):
        self.asked.append((answer, gold))
        if self.too_long:
            return Grade(False, GradeReason.TOO_LONG)
        if answer is None:
            return Grade(False, GradeReason.NO_ANSWER)
        correct = answer.replace(" ", "") == gold.replace(" ", "")
        return Grade(correct, GradeReason.CORRECT if correct else GradeReason.WRONG)


def verdict(problem, answer, judge=judge_all):
    return judge(ExactGrader(), problem, answer)


ROOTS = open_problem("x^3=x?", "-1", "0", "1")


@pytest.mark.parametrize("answer", ["-1,0,1", "1, 0, -1", "\\{0, 1, -1\\}", "0, \\pm 1", "1 and 0 and -1"])
def test_several_answers_count_in_any_order(answer):
    assert verdict(ROOTS, answer).correct


@pytest.mark.parametrize("answer", ["-1,0", "-1,0,1,2", "0,0,1", "-1,-1,-1", "1", ""])
def test_all_of_them_must_be_given_and_nothing_else(answer):
    assert verdict(ROOTS, answer).reason is GradeReason.WRONG


def test_each_reference_answer_is_used_up_by_one_answer():
    twice = open_problem("?", "2", "2", "3")
    assert verdict(twice, "2,3,2").correct
    assert not verdict(twice, "2,3,3").correct


@pytest.mark.parametrize(
    ("golds", "wrong"),
    [
        (("1,250", "3,400"), "1250, 3400"),
        (("A or B", "C"), "A, C"),
        (("\\{1,2\\}", "\\{3\\}"), "1, 2, 3"),
        (("\\pm 2", "5"), "2, 5"),
        (("2+\\sqrt{3}", "2-\\sqrt{3}"), "2+\\sqrt{3}"),
    ],
)
def test_an_answer_may_itself_be_a_list_or_a_set(golds, wrong):
    problem = open_problem("?", *golds)
    assert verdict(problem, problem.answer).correct
    assert verdict(problem, ", ".join(reversed(golds))).correct
    assert not verdict(problem, wrong).correct


def test_answers_that_run_together_are_not_those_of_the_gold(grader):
    two = open_problem("?", "5", "100")
    assert grader.grade_answer("5100", two.answer).correct, "MathRuler ignores commas"
    assert judge_all(grader, two, "5100").reason is GradeReason.WRONG
    assert judge_all(grader, two, "5, 100").correct
    thousands = open_problem("?", "1005", "2014")
    assert judge_all(grader, thousands, "1,005 and 2,014").correct
    assert not judge_all(grader, thousands, "1,006 and 2,014").correct
    assert judge_all(grader, open_problem("?", "5", "100", "200"), "5,100,200").correct


def test_either_sign_stands_for_two_answers(grader):
    roots = open_problem("?", "3-\\sqrt{2}", "3+\\sqrt{2}")
    assert judge_all(grader, roots, "3\\pm\\sqrt{2}").correct
    assert not judge_all(grader, roots, "2\\pm\\sqrt{2}").correct
    assert judge_all(grader, open_problem("?", "\\pm 3"), "x=\\pm3").correct


def test_a_single_answer_is_asked_for_once_and_without_its_unit():
    grader = ExactGrader()
    assert judge_all(grader, open_problem("How far?", "3", unit="km"), "3 \\text{ km}").correct
    assert grader.asked == [("3", "3")]


def test_what_is_too_long_for_the_grader_is_not_taken_apart():
    grader = ExactGrader(too_long=True)
    assert judge_all(grader, ROOTS, "1," * 10**6).reason is GradeReason.TOO_LONG
    assert len(grader.asked) == 1


def test_no_answer_stays_no_answer():
    for judge, problem in ((judge_one, ROOTS), (judge_all, ROOTS), (judge_option, CHOICE)):
        assert judge(ExactGrader(), problem, None).reason is GradeReason.NO_ANSWER


CHOICE = choice_problem("Which?", {"A": "left", "B": "right"}, "B")
NUMBERED = choice_problem("Which?", {"1": "left", "2": "right"}, "2")


@pytest.mark.parametrize(
    ("problem", "text", "label"),
    [
        (CHOICE, "\\boxed{A} no, \\boxed{right}", "B"),
        (CHOICE, "\\boxed{(b)}", "B"),
        (NUMBERED, "\\boxed{2) right}", "2"),
        (NUMBERED, "\\boxed{left}", "1"),
    ],
)
def test_the_last_box_names_an_option_by_its_label(problem, text, label):
    assert extract_option(text, problem) == label


def test_a_box_that_names_no_option_is_kept_as_it_is():
    assert extract_option("\\boxed{up}", CHOICE) == "up"
    assert extract_option("no box", CHOICE) is None
    assert verdict(CHOICE, "up", judge_option).reason is GradeReason.WRONG
    assert verdict(CHOICE, "B", judge_option).correct


def test_the_last_box_counts_and_an_open_one_is_none():
    assert extract_boxed("\\boxed{1} so \\boxed{2}", ROOTS) == "2"
    assert extract_boxed("\\boxed{1} so \\boxed{2", ROOTS) is None


OPEN = open_problem("1+1?", "2")
LAST = Reading(answers=BOX_OR_LAST)


def read(text, problem=OPEN, reading=LAST):
    return reading.read(text, problem, extract_option if problem.labels else extract_boxed)


def test_a_box_goes_before_everything_and_an_open_one_leaves_no_answer():
    assert read("\\boxed{3}, so the answer is 2.") == FoundAnswer(answer="3")
    # What was cut off is not replaced by what was found earlier.
    assert read("The answer is 2: \\boxed{2") == FoundAnswer(answer=None)
    assert read("\\boxed{1}, or \\boxed{2") == FoundAnswer(answer=None)


def test_without_a_box_the_phrase_or_the_last_number_counts_where_it_is_asked_for():
    assert read("The answer is 2.") == FoundAnswer(answer="2", is_unboxed=True)
    assert read("Hence 2") == FoundAnswer(answer="2", is_unboxed=True)
    assert read("Nothing.") == FoundAnswer(answer=None)
    assert read("The answer is 2.", reading=IN_BOXES) == FoundAnswer(answer=None)


@pytest.mark.parametrize(
    ("problem", "text", "label"),
    [
        (CHOICE, "(A) is wrong. The answer is (B).", "B"),
        (CHOICE, "The answer is right, because of 1 and 2.", "B"),
        (CHOICE, "The correct answer: **A) left**", "A"),
        (CHOICE, "The answer is B. The other answers are incorrect.", "B"),
        (CHOICE, "It is A.\n\nI hope this answer is clear.\n\nB", "B"),
        (NUMBERED, "The answer is 2.", "2"),
        (CHOICE, "Let us see.\n\n(B)\n", "B"),
        (CHOICE, "A is too small.\nSo option B is correct.", "B"),
        (CHOICE, "(B) is the best choice of the two.", "B"),
        (CHOICE, "Neither A nor B is correct.", None),
        (CHOICE, "B is right if A is wrong. But it is not.", None),
        # What names no option in a phrase is a wrong answer, elsewhere none at all.
        (CHOICE, "The answer is up.", "up"),
        (CHOICE, "There are 2 of them", None),
        (CHOICE, "A long way to go", None),
    ],
)
def test_an_option_may_be_named_without_a_box(problem, text, label):
    assert read(text, problem) == FoundAnswer(answer=label, is_unboxed=label is not None)


def test_thoughts_do_not_count_where_only_what_is_behind_them_does():
    after = Reading(after_thinking=True, begun=True)
    assert read("\\boxed{1} </think> \\boxed{2}", reading=after).answer == "2"
    assert read("\\boxed{1} </think> two", reading=after).answer is None
    assert read("\\boxed{1} and on and on", reading=after).answer is None
    assert read("\\boxed{1}", reading=Reading(after_thinking=True)).answer == "1"
    last = Reading(answers=BOX_OR_LAST, after_thinking=True, begun=True)
    assert read("\\boxed{1} </think> The answer is 2.", reading=last) == FoundAnswer(
        answer="2", is_unboxed=True
    )


def test_a_grader_may_be_given_the_text_and_a_text_without_a_formula_its_answer():
    whole = Reading(answers=WHOLE_TEXT, after_thinking=True, begun=True)
    found = read("$3$ </think> So it is $2$.", reading=whole)
    assert found == FoundAnswer(answer="2", is_unboxed=True, text=" So it is $2$.")
    grader = ExactGrader()
    judge_found(judge_one, grader, OPEN, found)
    judge_found(judge_one, grader, OPEN, read("</think> The answer is 2.", reading=whole))
    assert grader.asked == [(" So it is $2$.", "2"), ("2", "2")]
    assert read("$x=2$. And \\boxed{", reading=Reading(answers=WHOLE_TEXT)) == FoundAnswer(answer=None)
    # An option is read by its own rules.
    assert read("</think> It is $x$. The answer is (B).", CHOICE, whole) == FoundAnswer(
        answer="B", is_unboxed=True
    )
    assert judge_found(judge_one, grader, OPEN, read("$2$", reading=whole)).reason is GradeReason.NO_ANSWER


def test_a_benchmarks_own_judge_decides_on_texts_with_and_without_a_formula(legs):
    legs.write_text(f"{YAML}judge: legs.py:near\n")
    task, whole, grader = load_own(legs), Reading(answers=WHOLE_TEXT), ExactGrader()
    for text in ("Legs: $8+1=9$, so the answer is $9$.", "The answer is 9."):
        found = whole.read(text, task.problems[0], task.extract)
        assert judge_found(task.judge, grader, task.problems[0], found).correct
    assert grader.asked == []


@pytest.mark.parametrize("answers", [IN_BOXES.answers, BOX_OR_LAST, WHOLE_TEXT])
def test_a_benchmarks_own_extraction_alone_decides_where_an_answer_is(answers):
    text = "I weigh 3 options: $1+1$, \\boxed{\n<answer>7</answer>\nThis took me 2 minutes."

    def between_tags(text, problem):
        return text.partition("<answer>")[2].partition("</answer>")[0]

    assert Reading(answers=answers).read(text, OPEN, between_tags) == FoundAnswer(answer="7")


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", '[{"q": "1"}]'), ("a.csv", "q\n1\n"), ("a.jsonl", '{"q": "1"}')]
)
def test_a_byte_order_mark_is_skipped(name, text, tmp_path):
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert [row for _, row in read_rows(tmp_path / name)] == [{"q": "1"}]
