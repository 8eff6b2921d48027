"""The parquet file of problems, and files that are complete or absent."""

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seele.data.storage import schema
from seele.data.storage.files import file_sha256, read_json_lines, write_atomically
from seele.data.storage.schema import count_unhintable, read_columns, read_problems, write_problems
from seele.errors import DataError
from seele.records import Instance

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
    with pytest.raises(DataError, match=r"row 2 .*'toy/1' \(str\) already stands in row 0"):
        read_problems(path)


@pytest.mark.parametrize("name", ["trace", "trajectory", "session_id", "sampling_params", "responses", "uid"])
def test_a_column_that_verl_would_overwrite_is_refused(tmp_path, name):
    with pytest.raises(DataError, match=rf"columns \['{name}'\] have names that verl uses"):
        read_problems(write_rows(tmp_path / "f", ROW | {name: "x"}))


def test_missing_columns_are_listed(tmp_path):
    with pytest.raises(DataError, match=r"missing columns \['steps', 'answer'\]"):
        read_problems(write_rows(tmp_path / "f", {k: ROW[k] for k in list(ROW)[:3]}))


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


def test_json_lines_are_counted_from_one_and_blank_ones_skipped(tmp_path):
    write_atomically(tmp_path / "f", '{"a": 1}\n\n"line\u2028separator"\n')
    assert read_json_lines(tmp_path / "f") == [
        (f"{tmp_path}/f: line 1", {"a": 1}),
        (f"{tmp_path}/f: line 3", "line\u2028separator"),
    ]


@pytest.mark.parametrize("line", [b"{", b'"\xff"'])
def test_a_line_that_is_not_json_is_named(tmp_path, line):
    write_atomically(tmp_path / "f", b"1\n" + line)
    with pytest.raises(DataError, match="f: line 2: expected a JSON value"):
        read_json_lines(tmp_path / "f")


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
