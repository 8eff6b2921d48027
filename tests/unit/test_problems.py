"""Files of problems: schema, splits, overlap with benchmarks, limits on tokens."""

import csv
import dataclasses
import fcntl
import json
import os
import random
import re
import resource
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.config import DataConfig
from seele.data.contamination import Overlap, Questions, find_contaminated, tokens
from seele.data.overlong import (
    Fit,
    Fits,
    Limits,
    Tokens,
    fit,
    read_fitting_problems,
    read_record,
    write_record,
)
from seele.data.split import divide_file, is_in_first_part
from seele.data.storage import schema
from seele.data.storage.files import (
    as_readable_as_usual,
    check_writable,
    file_sha256,
    model_sha256,
    read_json_lines,
    write_atomically,
)
from seele.data.storage.schema import count_unhintable, read_columns, read_problems, write_problems
from seele.errors import ConfigError, DataError
from seele.records import Instance
from seele.reward.length_penalty import overlong_penalty
from seele_eval.contamination import main

# --- The parquet file of problems, and files that are complete or absent


PROBLEM = Instance(
    instance_id="toy/1",
    data_source="toy",
    question="1+1+1 = ?",
    steps=("1+1=2\n", "2+1=3, so \\boxed{3}"),
    answer="3",
    level=2,
)
ROW = {
    "instance_id": "toy/1",
    "data_source": "toy",
    "question": "1+1+1 = ?",
    "steps": ["1+1=2\n", "2+1=3"],
    "answer": "3",
}


def write_rows(path: Path, *rows: dict) -> Path:
    columns = {name: [row.get(name) for row in rows] for name in rows[0]}
    pq.write_table(pa.table(columns), path)
    return path


def test_what_is_written_is_read_again(tmp_path):
    without_hint = Instance(
        instance_id="toy/2", data_source="toy", question="2 = ?", steps=(), answer="2", level=0
    )
    write_problems(tmp_path / "train.parquet", [PROBLEM, without_hint], split="train")
    assert read_problems(tmp_path / "train.parquet") == [PROBLEM, without_hint]


def test_the_columns_of_verl_repeat_our_own(tmp_path):
    write_problems(tmp_path / "train.parquet", [PROBLEM], split="train")
    table = pq.read_table(tmp_path / "train.parquet")
    assert table.column_names == schema.SCHEMA.names
    row = table.to_pylist()[0]
    assert row["prompt"] == [{"role": "user", "content": PROBLEM.question}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": PROBLEM.answer}
    assert row["extra_info"] == {"index": 0, "split": "train"}


def test_the_same_problems_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_problems(tmp_path / name, [PROBLEM], split="train")
    assert file_sha256(tmp_path / "a") == file_sha256(tmp_path / "b")


def test_level_may_be_absent_and_other_columns_are_ignored(tmp_path):
    [instance] = read_problems(write_rows(tmp_path / "f", ROW | {"remark": "easy", "prompt": 1}))
    assert (instance.level, instance.steps) == (0, ("1+1=2\n", "2+1=3"))


def test_instances_below_two_steps_are_kept_and_counted(tmp_path):
    rows = [ROW | {"instance_id": f"toy/{n}", "steps": ["a", "b", "c"][:n]} for n in range(4)]
    instances = read_problems(write_rows(tmp_path / "f", *reversed(rows)))
    assert [len(instance.steps) for instance in instances] == [3, 2, 1, 0]
    assert count_unhintable(instances) == 2
    assert count_unhintable(replace(instance, tiers=("Add.",)) for instance in instances) == 0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"answer": 3}, "row 0 (counted from 0), column 'answer': expected a text that is not blank;"),
        ({"answer": 3}, "; write numbers as text; got 3 (int)"),
        ({"answer": None}, "; write numbers as text; got nothing (null)"),
        ({"answer": " "}, "; write numbers as text; got ' ' (str)"),
        ({"instance_id": ""}, "column 'instance_id'"),
        ({"instance_id": None}, "column 'instance_id'"),
        ({"question": "\n"}, "column 'question'"),
        ({"data_source": None}, "column 'data_source'"),
        ({"steps": None}, "column 'steps': expected a list of texts, got nothing (null)"),
        ({"steps": "1+1=2"}, "column 'steps': expected a list of texts, got '1+1=2' (str)"),
        (
            {"steps": ["1+1=2", " "]},
            "column 'steps', step 1: expected a text that is not blank; drop blank steps; got ' ' (str)",
        ),
        ({"steps": [1, 2]}, "column 'steps', step 0"),
        ({"level": -1}, "column 'level': expected an integer >= 0"),
        ({"level": True}, "column 'level'"),
        ({"level": "hard"}, "column 'level'"),
        ({"level": 10.0**20}, "column 'level'"),
    ],
)
def test_a_bad_value_is_named_with_file_row_and_column(tmp_path, change, complaint):
    path = write_rows(tmp_path / "bad.parquet", ROW | change)
    with pytest.raises(DataError, match=rf"bad\.parquet.*{re.escape(complaint)}"):
        read_problems(path)


def test_a_repeated_id_is_named_with_both_rows(tmp_path):
    path = write_rows(tmp_path / "f", ROW, ROW | {"instance_id": "toy/2"}, ROW)
    with pytest.raises(DataError, match=r"row 2 .*'toy/1' \(str\) already occurs in row 0"):
        read_problems(path)


@pytest.mark.parametrize("name", ["trace", "trajectory", "session_id", "sampling_params", "responses", "uid"])
def test_a_column_that_verl_would_overwrite_is_refused(tmp_path, name):
    with pytest.raises(DataError, match=rf"columns \['{name}'\] have names that verl reserves"):
        read_problems(write_rows(tmp_path / "f", ROW | {name: "x"}))


def test_missing_columns_are_listed(tmp_path):
    with pytest.raises(
        DataError, match=r"missing columns \['steps', 'answer'\].*; `seele data prepare \S+f --out"
    ):
        read_problems(write_rows(tmp_path / "f", {k: ROW[k] for k in list(ROW)[:3]}))


@pytest.mark.parametrize(("suffix", "kind"), [("json", "JSON"), ("jsonl", "JSON"), ("csv", "CSV")])
def test_rows_are_sent_to_be_prepared(tmp_path, suffix, kind):
    (file := tmp_path / f"rows.{suffix}").write_text("{}\n")
    with pytest.raises(DataError, match=rf"{kind}, expected parquet; `seele data prepare {file} --out"):
        read_problems(file)


def test_repeated_columns_are_refused(tmp_path):
    table = pa.Table.from_arrays(
        [*pa.table({k: [v] for k, v in ROW.items()}), pa.array([1])], [*ROW, "answer"]
    )
    pq.write_table(table, tmp_path / "f")
    with pytest.raises(DataError, match=r"columns \['answer'\] occur more than once"):
        read_problems(tmp_path / "f")


def test_files_that_hold_no_problems_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_problems(tmp_path / "absent.parquet")
    write_problems(tmp_path / "empty.parquet", [], split="train")
    with pytest.raises(DataError, match="no rows"):
        read_problems(tmp_path / "empty.parquet")
    write_atomically(tmp_path / "text.parquet", "not parquet")
    with pytest.raises(DataError, match="not a readable parquet file"):
        read_problems(tmp_path / "text.parquet")


def test_text_that_is_no_utf_8_is_refused(tmp_path):
    rows = pa.Table.from_pylist([ROW])
    bad = pa.array([b"\xff\xfe"]).view(pa.string())
    position = rows.schema.get_field_index("question")
    pq.write_table(rows.set_column(position, "question", bad), tmp_path / "f")
    with pytest.raises(DataError, match=r"not a readable parquet file.*utf-8"):
        read_problems(tmp_path / "f")


def test_a_level_that_no_column_can_hold_is_refused(tmp_path):
    problem = replace(PROBLEM, level=10**20)
    with pytest.raises(DataError, match=r"row 0 .*'level': expected an integer >= 0 .* and < 2\*\*63"):
        write_problems(tmp_path / "f", [problem], split="train")


@pytest.mark.parametrize("content", ["text with ü\r\nand two lines\n", b"\x00bytes"])
def test_a_written_file_holds_exactly_the_content(tmp_path, content):
    path = tmp_path / "new" / "folder" / "file"
    write_atomically(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half of it \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_atomically(path, "x" * 1000),
        lambda path: write_problems(path, [PROBLEM], split="train"),
    ],
    ids=["text", "parquet"],
)
def test_a_full_disk_leaves_nothing(tmp_path, write):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(tmp_path / "file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_followed_and_a_pipe_not_replaced(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "there" / "file").read_text() == "new" and (tmp_path / "link").is_symlink()
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(ConfigError, match=rf"^{pipe}: is a device or a pipe; name a file"):
        write_atomically(pipe, "text")
    with pytest.raises(ConfigError, match=r"^--out /dev/null: is a device or a pipe; name a file"):
        check_writable(Path("/dev/null"))
    assert pipe.is_fifo()


def test_weights_become_as_readable_as_other_new_files(tmp_path):
    (weights := tmp_path / "weights").touch(mode=0o600)
    (usual := tmp_path / "usual").touch()
    as_readable_as_usual(tmp_path)
    assert weights.stat().st_mode == usual.stat().st_mode


def test_a_file_that_another_process_removes_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock = fcntl.flock

    def remove_and_lock(stream, operation):
        monkeypatch.setattr(fcntl, "flock", lock)
        [file] = tmp_path.iterdir()
        file.unlink()
        lock(stream, operation)

    monkeypatch.setattr(fcntl, "flock", remove_and_lock)
    write_atomically(tmp_path / "file", "text")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["text"]


def test_json_lines_are_counted_from_one_and_blank_ones_skipped(tmp_path):
    write_atomically(tmp_path / "f", '{"a": 1}\n\n"line\u2028separator"\n')
    assert read_json_lines(tmp_path / "f") == [
        (f"{tmp_path}/f: line 1", {"a": 1}),
        (f"{tmp_path}/f: line 3", "line\u2028separator"),
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [(b"{", "a JSON value"), (b'"\xff"', "text in UTF-8 .*; save the"), (b"[" * 100_000, "a JSON value")],
    ids=["open", "no UTF-8", "deep"],
)
def test_a_line_that_is_not_json_is_named(tmp_path, line, complaint):
    write_atomically(tmp_path / "f", b"1\n" + line)
    with pytest.raises(DataError, match=f"f: line 2: expected {complaint}"):
        read_json_lines(tmp_path / "f")


@pytest.mark.parametrize("read", [read_json_lines, read_problems])
def test_a_folder_is_not_taken_for_a_missing_file(tmp_path, read):
    with pytest.raises(DataError, match="is a folder; name a file in it"):
        read(tmp_path)


@pytest.mark.parametrize("is_folder", [False, True])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(tmp_path, is_folder):
    (tmp_path / "file").write_text("text")
    check_writable(tmp_path / "new" / "deep" / "x", is_folder=is_folder)
    for out, complaint in (
        (Path("/proc/new/x"), r"cannot be written \(No such file or directory\); give a path that you can"),
        (tmp_path / "file" / "new" / "x", f"{tmp_path}/file is a file; give a path below a folder"),
        (tmp_path / ("x" * 300), r"cannot be written \(File name too long\)"),
        (tmp_path / "file", "is a file; give a folder")
        if is_folder
        else (tmp_path, "is a folder; name a file"),
    ):
        with pytest.raises(ConfigError, match=f"^--html {out}: {complaint}"):
            check_writable(out, option="--html", is_folder=is_folder)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_columns_are_read_in_file_order_whoever_made_them(tmp_path):
    rows = [
        ROW
        | {"instance_id": f"toy/{n}", "level": 3 - n, "hard": n == 0, "score": n / 2, "meta": {"a": {"b": n}}}
        for n in range(3)
    ]
    path = write_rows(tmp_path / "f", *rows)
    names = ("level", "data_source", "hard", "score", "meta.a.b")
    assert read_columns(path, names) == [
        dict(zip(names, values, strict=True))
        for values in [(3, "toy", True, 0.0, 0), (2, "toy", False, 0.5, 1), (1, "toy", False, 1.0, 2)]
    ]
    assert read_columns(path, ()) == [{}, {}, {}]


def test_fields_of_our_own_columns_are_read_too(tmp_path):
    write_problems(tmp_path / "f", [PROBLEM], split="train")
    assert read_columns(tmp_path / "f", ["extra_info.split", "level"]) == [
        {"extra_info.split": "train", "level": 2}
    ]


def test_a_name_with_a_dot_may_be_a_column_itself(tmp_path):
    path = write_rows(tmp_path / "f", ROW | {"pass.rate": 0.5})
    assert read_columns(path, ["pass.rate"]) == [{"pass.rate": 0.5}]


@pytest.mark.parametrize("name", ["hardness", "extra_info", "extra_info.hardness", "level.x"])
def test_an_unknown_column_is_answered_with_those_that_there_are(tmp_path, name):
    write_problems(tmp_path / "f", [PROBLEM], split="train")
    with pytest.raises(
        DataError, match=rf"f: no columns \['{name}'\]; the file has .*'level'.*'extra_info\.split'"
    ):
        read_columns(tmp_path / "f", ["level", name])


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (None, "nothing (null)"),
        (float("nan"), "nan (float)"),
        ([1], "[1] (list)"),
        (b"1", "b'1' (bytes)"),
    ],
)
def test_a_value_that_is_no_text_number_or_boolean_is_named(tmp_path, value, came):
    path = write_rows(tmp_path / "f", ROW | {"score": value})
    allowed = "expected a text, a number or a boolean"
    with pytest.raises(
        DataError,
        match=re.escape(f"f: row 0 (counted from 0), column 'score': {allowed}, got {came}"),
    ):
        read_columns(path, ["score"])


@pytest.mark.parametrize("meta", [None, {"rate": None}])
def test_a_field_that_is_missing_in_a_row_is_named(tmp_path, meta):
    path = write_rows(tmp_path / "f", ROW | {"meta": {"rate": 0.5}}, ROW | {"meta": meta})
    with pytest.raises(
        DataError, match=r"row 1 \(counted from 0\), column 'meta\.rate': .* nothing \(null\)"
    ):
        read_columns(path, ["meta.rate"])


# --- Two parts of the problems that never overlap


def first_part(count: int, *, share: float, seed: int) -> set[int]:
    return {i for i in range(count) if is_in_first_part(f"p-{i}", share=share, seed=seed)}


@given(share=st.floats(0.0, 1.0), larger=st.floats(0.0, 1.0), seed=st.integers(0, 100))
def test_a_part_grows_with_its_share(share, larger, seed):
    share, larger = sorted((share, larger))
    assert first_part(60, share=share, seed=seed) <= first_part(60, share=larger, seed=seed)


def test_everything_or_nothing_is_possible():
    assert first_part(50, share=1.0, seed=0) == set(range(50))
    assert first_part(50, share=0.0, seed=0) == set()


def test_the_share_is_met_on_average_and_seeds_divide_differently():
    parts = [first_part(2000, share=0.25, seed=seed) for seed in (0, 1)]
    # Binomial: standard deviation 19.4.
    assert all(abs(len(part) - 500) < 80 for part in parts)
    # Independent divisions share a quarter of a quarter: 125, standard deviation 10.8.
    assert abs(len(parts[0] & parts[1]) - 125) < 45


@pytest.fixture
def file(tmp_path):
    """Forty problems with a column of somebody else's."""
    problems = [
        Instance(instance_id=f"p-{i}", data_source="d", question="q", steps=("s",), answer="a", level=i)
        for i in range(40)
    ]
    write_problems(tmp_path / "train.parquet", problems, split="train")
    table = pq.read_table(tmp_path / "train.parquet")
    topics = pa.array([f"topic {i % 3}" for i in range(40)])
    pq.write_table(table.append_column("topic", topics), tmp_path / "train.parquet")
    return tmp_path / "train.parquet"


def test_the_parts_do_not_depend_on_how_the_file_was_prepared(tmp_path):
    kept = sorted({*range(1000)} - first_part(1000, share=0.4, seed=0))  # as with heldout_share=0.4
    problems = [
        Instance(instance_id=f"p-{i}", data_source="d", question="q", steps=("s",), answer="a") for i in kept
    ]
    write_problems(tmp_path / "train.parquet", problems, split="train")
    divide_file(tmp_path / "train.parquet", tmp_path / "a", tmp_path / "b", share=0.4, seed=0)
    assert 0.3 < len([*read_problems(tmp_path / "a")]) / len(kept) < 0.5


def test_files_are_disjoint_complete_in_order_and_keep_all_columns(file, tmp_path):
    first, rest = tmp_path / "sft" / "a.parquet", tmp_path / "rl" / "a.parquet"
    divide_file(file, first, rest, share=0.4, seed=3)
    levels = {part: [problem.level for problem in read_problems(part)] for part in (first, rest)}
    is_first = [is_in_first_part(f"stages/p-{i}", share=0.4, seed=3) for i in range(40)]
    assert levels[first] == [i for i in range(40) if is_first[i]]
    assert sorted(levels[first] + levels[rest]) == list(range(40))
    assert levels[rest] == sorted(levels[rest])
    assert [row["topic"] for row in read_columns(rest, ["topic"])] == [f"topic {i % 3}" for i in levels[rest]]


def test_a_part_without_problems_gets_no_file(file, tmp_path):
    divide_file(file, tmp_path / "none.parquet", tmp_path / "all.parquet", share=0.0, seed=0)
    assert not (tmp_path / "none.parquet").exists()
    assert read_problems(tmp_path / "all.parquet") == read_problems(file)


def test_only_the_beginning_of_a_file_is_divided_where_that_is_asked_for(file, tmp_path):
    first, rest = tmp_path / "first.parquet", tmp_path / "rest.parquet"
    assert divide_file(file, first, rest, share=0.4, seed=3, max_samples=25) == 25
    levels = [problem.level for part in (first, rest) for problem in read_problems(part)]
    assert sorted(levels) == list(range(25))
    assert divide_file(file, first, rest, share=0.4, seed=3, max_samples=99) == 40
    assert divide_file(file, tmp_path / "a", tmp_path / "b", share=0.4, seed=3, max_samples=0) == 0
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()


# --- Overlap of training problems with benchmarks: what counts, and the command's report and copy


FIXTURES = Path(os.environ["SEELE_FIXTURES"], "benchmarks")

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Find $x$ if $x+1 = 5$.", "find x, if \\(x + 1=5\\)"),
        ("It costs $1,234,567$ dollars", "It costs \\$1234567 dollars."),
        ("$1{,}234{,}567$ and $10,\\!000$ and $10\\,000$", "1,234,567 and 10,000 and 10000"),
        ("$x \N{MINUS SIGN} 3$", "x-3"),
        ("\\left( \\dfrac{1}{2} \\right)", "(\\frac 12)".replace("12", "{1}{2}")),
        ("\\text{Alice} runs", "Alice \\quad runs"),
    ],
)
def test_the_same_question_in_other_clothes_has_the_same_tokens(one, other):
    assert tokens(one) == tokens(other)


@pytest.mark.parametrize(
    ("one", "other"), [("2+3", "2-3"), ("1.5", "15"), ("$\\{1,2\\}$", "$\\{12\\}$"), ("n!", "n")]
)
def test_another_question_has_other_tokens(one, other):
    assert tokens(one) != tokens(other)


def test_an_exact_overlap_needs_no_length():
    questions = Questions({"b": ["What is $2+3$?"], "c": ["what is 2 + 3"]})
    assert questions.find("What is 2+3?") == [
        Overlap("b", 0, is_exact=True, shared=1.0),
        Overlap("c", 0, is_exact=True, shared=1.0),
    ]
    assert questions.find("What is 2-3?") == questions.find("So what is 2+3?") == []


def test_a_run_of_thirteen_words_is_an_overlap_and_twelve_are_none():
    # 15 words have 3 runs of 13; the first 14 of them share 2.
    questions = Questions({"b": ["other words", LONG]})
    [overlap] = questions.find(" ".join(["before", *LONG.split()[:14], "after"]))
    assert overlap == Overlap("b", 1, is_exact=False, shared=2 / 3)
    assert questions.find(" ".join(["before", *LONG.split()[:12], "after"])) == []


def test_wording_that_many_different_questions_share_is_none():
    texts = [f"{LONG} {ending}" for ending in ("a", "b", "c")]
    assert Questions({"b": texts}, common=3).find(f"{LONG} d") == []
    assert len(Questions({"b": texts}, common=4).find(f"{LONG} d")) == 3
    # The same question in three benchmarks is one question.
    assert len(Questions({name: [LONG] for name in "abc"}, common=2).find(f"{LONG} d")) == 3


def test_a_question_without_words_overlaps_with_nothing():
    assert Questions({"b": ["??", ""]}).find("??") == []


SHORT = "What is the remainder of $2+3$?"


@pytest.mark.parametrize(
    ("problem", "is_found"),
    [
        (f"Solve the following. {SHORT}", True),
        (f"{SHORT} Put your answer in \\boxed{{}}.", True),
        (f"{SHORT}\nA) 5\nB) 6", True),
        (f"{SHORT} (A) 5 (B) 6", True),
        ("What is the remainder of $2+3\n+ x$?", False),
        ("What is the remainder of $2+3+x$?", False),
        ("What is the remainder of $2+3y$?", False),
        ("What is the remainder of $2$ and $3$?", False),
    ],
)
def test_a_short_question_is_found_among_other_words_but_not_within_a_formula(problem, is_found):
    found = Questions({"b": [SHORT]}).find(problem)
    assert found == ([Overlap("b", 0, is_exact=False, shared=1.0)] if is_found else [])


def test_a_choice_is_found_with_its_options_and_without():
    choice = "Soil gets better by\n\nA) rain\nB) sun"
    questions = Questions({"b": ["Soil gets better by"]}, with_options={"b": [choice]})
    exact = [Overlap("b", 0, is_exact=True, shared=1.0)]
    assert questions.find(choice) == questions.find("Soil gets better by") == exact
    assert questions.find("Soil gets better by: (A) rain (B) sun") == exact
    # A question without options comes twice and counts once.
    [overlap] = Questions({"b": [LONG]}, with_options={"b": [LONG]}).find(f"{LONG} after")
    assert overlap.shared == 1.0


@pytest.mark.parametrize("bad", [{"n": 1}, {"common": 1}])
def test_runs_of_one_word_are_refused(bad):
    with pytest.raises(ValueError, match="at least 2"):
        Questions({}, **bad)


def test_the_smallest_share_is_the_callers():
    questions = Questions({"b": [LONG]})
    problems = [("p0", "nothing"), ("p1", LONG), ("p2", " ".join(LONG.split()[:13]))]
    assert [(each.row, each.instance_id) for each in find_contaminated(problems, questions)] == [
        (1, "p1"),
        (2, "p2"),
    ]
    assert [each.row for each in find_contaminated(problems, questions, min_shared=0.5)] == [1]


# The command


@pytest.fixture
def problems(tmp_path):
    """A file with a question of GSM8K, one of GPQA without its options, and one of nobody."""
    gsm8k = json.loads((FIXTURES / "gsm8k" / "test.jsonl").read_text().splitlines()[0])["question"]
    with (FIXTURES / "gpqa_diamond" / "gpqa_diamond.csv").open(newline="") as file:
        gpqa = next(csv.DictReader(file))["Question"]
    questions = ("A question of nobody?", f"  {gsm8k.upper()} ", gpqa)
    instances = [
        Instance(instance_id=f"p{n}", data_source="toy", question=question, steps=("a\n", "b"), answer="1")
        for n, question in enumerate(questions)
    ]
    write_problems(tmp_path / "train.parquet", instances, split="train")
    return tmp_path / "train.parquet", gpqa


def run(*arguments: object) -> int:
    return main([str(argument) for argument in ("--data-dir", FIXTURES, "--any-row-count", *arguments)])


def test_overlaps_are_reported_by_benchmark_and_removed(problems, tmp_path, capsys):
    file, gpqa = problems
    assert run(file, "--benchmarks", "gsm8k,gpqa_diamond", "--remove", tmp_path / "clean") == 0
    said = capsys.readouterr().out
    assert "2 of 3 problems (66.67%)" in said
    assert "row 1, p1: gsm8k 0, exact: " in said and "row 2, p2: gpqa_diamond 0, exact: (not shown)" in said
    assert gpqa[:20] not in said
    copy = tmp_path / "clean" / "train.parquet"
    assert [problem.instance_id for problem in read_problems(copy)] == ["p0"]
    assert pq.read_schema(copy) == pq.read_schema(file)
    report = json.loads((tmp_path / "clean" / "train.contamination.json").read_text())
    assert [(each["row"], each["overlaps"][0]["benchmark"]) for each in report["contaminated"]] == [
        (1, "gsm8k"),
        (2, "gpqa_diamond"),
    ]
    assert gpqa[:20] not in json.dumps(report)


def test_all_nine_are_the_default(problems, capsys):
    assert run(problems[0]) == 0
    said = capsys.readouterr().out
    for name in ("gsm8k", "math500", "minerva_math", "olympiadbench", "aime24", "amc23", "arc_c", "mmlu_pro"):
        assert f"| {name} " in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--benchmarks", "gsm9k"], "unknown ['gsm9k']"),
        (["--n", "1", "--benchmarks", "gsm8k"], "--n, --common: n and common must be at least 2"),
        (["--benchmarks", "gsm8k", "--remove", "{folder}"], "is in this folder; name another folder"),
        (["--benchmarks", "gsm8k", "--json", "{folder}/train.parquet"], "train.parquet; name another file"),
        (
            ["--benchmarks", "gsm8k", "--remove", "{folder}/b", "--json", "{folder}/b/train.parquet"],
            "b/train.parquet; name another file",
        ),
    ],
)
def test_what_cannot_be_done_ends_with_one_line(problems, capsys, arguments, complaint):
    file, _ = problems
    before = file.read_bytes()
    assert run(file, *(text.format(folder=file.parent) for text in arguments)) == 2
    assert complaint in capsys.readouterr().err and file.read_bytes() == before


def test_cleaned_copies_of_one_name_would_overwrite_each_other(problems, tmp_path, capsys):
    file, _ = problems
    other, clean = tmp_path / "other" / file.name, tmp_path / "clean"
    other.parent.mkdir()
    other.write_bytes(file.read_bytes())
    assert run(file, other, "--benchmarks", "gsm8k", "--remove", clean) == 2
    assert "would overwrite each other; run once per file" in capsys.readouterr().err
    assert not clean.exists()


@pytest.mark.parametrize("option", ["--json", "--remove"])
def test_an_output_is_checked_before_any_benchmark_is_fetched(problems, tmp_path, capsys, option):
    assert main([str(problems[0]), option, "/proc/x", "--data-dir", str(tmp_path / "no benchmarks")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {option} /proc/x: cannot be written (")


def test_a_file_that_is_not_there_is_named_before_any_benchmark_is_fetched(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere.parquet"), "--data-dir", str(tmp_path / "no benchmarks")]) == 2
    assert "nowhere.parquet: no such file; expected parquet files" in capsys.readouterr().err


# --- DAPO's penalty, METHODS' vectors: limit 2,048, buffer 512, factor 1


@pytest.mark.parametrize(("tokens", "penalty"), [(10, 0.0), (1536, 0.0), (1792, -0.5), (2048, -1.0)])
def test_the_penalty_falls_over_the_buffer(tokens, penalty):
    assert overlong_penalty(tokens, max_response_tokens=2048, buffer_tokens=512, factor=1.0) == penalty


@pytest.mark.parametrize("buffer", [0, 2049])
def test_a_buffer_that_is_none_or_longer_than_the_limit_is_refused(buffer):
    with pytest.raises(ValueError, match=f"1 to 2048 tokens, got {buffer}"):
        overlong_penalty(1, max_response_tokens=2048, buffer_tokens=buffer, factor=1.0)


# --- Problems over the limits on tokens: left out or cut, by a record that all readers follow


LIMITS = Limits(prompt=20, response=10)


@pytest.mark.parametrize(
    ("tokens", "dropped", "truncated"),
    [
        pytest.param(Tokens(prompt=20), None, Fit(), id="a prompt that just fits"),
        pytest.param(
            Tokens(prompt=21),
            "has 21 prompt tokens, more than data.max_prompt_length (20)",
            Fit("has 21 prompt tokens, more than data.max_prompt_length (20)"),
            id="a prompt that does not, whatever is cut",
        ),
        pytest.param(Tokens(prompt=9, response=10), None, Fit(), id="a solution that just fits"),
        pytest.param(
            Tokens(prompt=9, response=11),
            "has a solution of 11 tokens, more than data.max_response_length (10)",
            Fit(is_cut=True),
            id="a solution that is cut",
        ),
        pytest.param(Tokens(prompt=9, hint_steps=(5, 6)), None, Fit(), id="a hint that just fits"),
        pytest.param(
            Tokens(prompt=9, hint_steps=(5, 6, 1)),
            "has 9 prompt tokens and 12 in its longest hint, more than data.max_prompt_length (20)",
            Fit(hint_steps=2),
            id="a hint of one step too many",
        ),
        pytest.param(
            Tokens(prompt=9, hint_steps=(12, 1)),
            "has 9 prompt tokens and 13 in its longest hint, more than data.max_prompt_length (20)",
            Fit(hint_steps=0),
            id="hints of which none fits",
        ),
        pytest.param(
            Tokens(prompt=5, hint_steps=(4, 5), hints_in_response=True), None, Fit(), id="a prefix that fits"
        ),
        pytest.param(
            Tokens(prompt=5, hint_steps=(4, 6), hints_in_response=True),
            "has 10 tokens in its longest prefix, which with another one are more than "
            "data.max_response_length (10)",
            Fit(hint_steps=1),
            id="a prefix that leaves no room for a token",
        ),
    ],
)
def test_what_becomes_of_a_problem(tokens, dropped, truncated):
    assert fit(tokens, LIMITS, "drop") == fit(tokens, LIMITS, "refuse") == Fit(dropped)
    assert fit(tokens, LIMITS, "truncate") == truncated


def test_only_three_ways_are_known():
    with pytest.raises(ValueError, match="overlong must be one of"):
        DataConfig(overlong="cut")


def problem(name: str) -> Instance:
    return Instance(instance_id=name, data_source="toy", question=f"{name}?", steps=("a\n", "b"), answer="1")


@pytest.fixture
def files(tmp_path):
    """Two files, with the problems a0 to a3 and b0 to b3."""
    for name in "ab":
        write_problems(tmp_path / f"{name}.parquet", [problem(f"{name}{n}") for n in range(4)], split="train")
    return [str(tmp_path / f"{name}.parquet") for name in "ab"]


def names(problems):
    return [(problem.instance.instance_id, problem.row, problem.hint_steps) for problem in problems]


def test_all_readers_of_a_record_have_the_same_problems_in_their_order(files, tmp_path):
    training = Fits(files=tuple(files), left_out={"a1": "why", "b0": "why"}, hint_steps={"b2": 0})
    write_record(tmp_path / "record", [training, Fits()])
    assert read_record(tmp_path / "record") == [training, Fits()]
    assert names(read_fitting_problems(files, -1, tmp_path / "record")) == [
        *(("a0", 0, None), ("a2", 2, None), ("a3", 3, None)),
        *(("b1", 1, None), ("b2", 2, 0), ("b3", 3, None)),
    ]
    # So many problems are looked at, those that are left out among them.
    first = read_fitting_problems(files, 5, tmp_path / "record")
    assert [problem.instance.instance_id for problem in first] == ["a0", "a2", "a3"]
    assert [problem.instance.instance_id for problem in read_fitting_problems(files[0])] == [
        f"a{n}" for n in range(4)
    ]


def test_what_does_not_fit_one_file_stays_in_another(files, tmp_path):
    write_problems(tmp_path / "held.parquet", [problem("a1")], split="heldout")
    training = Fits(files=tuple(files), left_out={"a1": "why"})
    validation = Fits(files=(str(tmp_path / "held.parquet"), files[1]), left_out={"b3": "why"})
    write_record(tmp_path / "record", [training, validation])
    held = read_fitting_problems(str(tmp_path / "held.parquet"), -1, tmp_path / "record")
    assert names(held) == [("a1", 0, None)]
    # Trained and validated on: it lacks the same problems in both.
    shared = read_fitting_problems(files[1], -1, tmp_path / "record")
    assert [problem.instance.instance_id for problem in shared] == ["b0", "b1", "b2"]


def test_hints_may_be_shortened_to_none(files, tmp_path):
    write_record(tmp_path / "record", [Fits(files=tuple(files), hint_steps={"a0": 0})])
    [none, some, *_] = read_fitting_problems(files, -1, tmp_path / "record")
    assert (none.may_be_hinted, some.may_be_hinted) == (False, True)
    alone = some._replace(instance=dataclasses.replace(some.instance, steps=("a",)))
    assert not alone.may_be_hinted


@pytest.mark.parametrize("content", [None, "{", '[{"left": {}}]', "[3]"])
def test_a_record_that_is_missing_or_broken_is_refused(files, tmp_path, content):
    if content is not None:
        (tmp_path / "record").write_text(content)
    with pytest.raises(DataError, match="expected the run's record of problems that are too long"):
        read_fitting_problems(files, -1, tmp_path / "record")


def test_the_digest_tells_models_apart_wherever_they_lie(tmp_path):
    blocks = random.Random(0).randbytes(6 << 20)

    def digest(name: str, content: bytes, file: str = "model.safetensors") -> str | None:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / file).write_bytes(content)
        return model_sha256(tmp_path / name)

    one = digest("one", blocks)
    assert digest("copy", blocks) == one
    assert digest("copy", b"the weights again", "consolidated.safetensors") == one
    assert one not in {digest("end", blocks[:-1] + b"!"), digest("begin", b"!" + blocks[1:])}
    assert digest("small", blocks[: 4 << 20]) != digest("other", blocks[: 3 << 20] + bytes(1 << 20))
    assert digest("shards", blocks) != digest("shards", blocks, "other.safetensors")
    assert model_sha256(tmp_path / "nowhere") is None
    # As LUFFY's base model differs from the one that it was copied from.
    (tmp_path / "copy/config.json").write_text('{"rope_theta": 40000}')
    assert model_sha256(tmp_path / "copy") != one
