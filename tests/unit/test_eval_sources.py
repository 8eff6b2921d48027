"""The table of benchmarks: definitions, files, the hub, row counts; the real files where they are at hand."""

import json
import os
import shutil
from pathlib import Path

import pytest

from seele.errors import ConfigError, DataError
from seele.reward.grader import GraderPool
from seele_eval.benchmarks import BENCHMARKS, GENERAL, GROUPS, LUFFY, MATH
from seele_eval.own_benchmarks import find_benchmarks
from seele_eval.sources import load_benchmark, load_problem_file, read_rows

ROOT = Path(__file__).parents[2]
FIXTURES = Path(os.environ["SEELE_FIXTURES"], "benchmarks")
REAL = ROOT.parent / "shared" / "data"

NOT_AT_HAND = ("gpqa_diamond", "mmlu_pro", "aime26", "hmmt25")
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason=f"the real data sets are not at {REAL}")


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
    with pytest.raises(ConfigError, match=r"unknown \['gsm9k'\]; known are \['gsm8k'"):
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
    with pytest.raises(DataError, match=r"from who made it$"):
        load("mmlu_pro_300", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("gsm8k", "{\n", "line 1: expected a JSON value"),
        ("amc83", "{}", "expected a list of rows, got dict"),
        ("amc83", "[", "cannot be read as json"),
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


# Golds


@pytest.fixture(scope="module")
def grader():
    with GraderPool(num_workers=2) as pool:
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


@needs_real_data
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in NOT_AT_HAND])
def test_a_real_file_is_whole_and_every_gold_is_right_against_itself(name, grader):
    task = load(name, data_dir=REAL, any_row_count=False)
    assert len(task.problems) == BENCHMARKS[name].rows
    assert len({problem.instance_id for problem in task.problems}) == len(task.problems)
    assert refused(task, grader) == []


@needs_real_data
@pytest.mark.parametrize("name", ["arc_c", "mmlu_pro_300"])
def test_every_real_option_is_right_by_its_text(name, grader):
    def text_of_gold(problem):
        return f"\\boxed{{{problem.options[problem.labels.index(problem.answer)]}}}"

    assert refused(load(name, data_dir=REAL, any_row_count=False), grader, text_of_gold) == []


@needs_real_data
def test_the_real_golds_of_olympiadbench_are_right_as_they_are_written_and_in_any_order(grader):
    task = load("olympiadbench", data_dir=REAL, any_row_count=False)
    written = [row["final_answer"][0] for _, row in read_rows(REAL / "olympiadbench/test.jsonl")]
    for problem, gold in zip(task.problems, written, strict=True):
        for said in (gold, ", ".join(reversed(problem.answers))):
            assert task.judge(grader, problem, task.extract(f"\\boxed{{{said}}}", problem)).correct, said


@needs_real_data
def test_the_traps_of_the_real_data_are_met():
    olympiad = load("olympiadbench", data_dir=REAL).problems
    assert sum(len(problem.answers) > 1 for problem in olympiad) == 92
    assert sum(bool(problem.unit) for problem in olympiad) == 8
    assert not any("$" in answer[:1] for problem in olympiad for answer in problem.answers)
    arc = load("arc_c", data_dir=REAL).problems
    assert sum(problem.answer.isdecimal() for problem in arc) == 22
    assert {len(problem.options) for problem in arc} == {3, 4, 5}
    assert {problem.answer for problem in load("amc23", data_dir=REAL).problems} >= {"27", "-1"}
    assert not any("," in problem.answer for problem in load("gsm8k", data_dir=REAL).problems)
    assert {len(problem.options) for problem in load("mmlu_pro_300", data_dir=REAL).problems} >= {3, 4, 10}


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
