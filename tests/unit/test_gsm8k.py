"""GSM8K: solution lines become steps."""

import json
import sys
from pathlib import Path

import pytest

from seele.data.tasks.gsm8k import HUB_NAME, HUB_REVISION, read_gsm8k, split_solution
from seele.errors import DataError, DependencyError
from seele.reward.extract import last_boxed

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "gsm8k"

ROW = {"question": "Two boxes of 6 eggs?", "answer": "2*6=<<2*6=12>>12 eggs.\nThat is a dozen.\n#### 12"}


def write_split(folder: Path, *rows: object) -> Path:
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_steps_are_the_solution_lines_and_the_boxed_answer():
    steps, answer = split_solution(ROW["answer"])
    assert steps == ("2*6=12 eggs.\n", "That is a dozen.\n", "The answer is \\boxed{12}.")
    assert answer == "12"


@pytest.mark.parametrize(
    ("last_line", "answer"),
    [("#### 1,234,567", "1234567"), ("#### -5", "-5"), ("####0.75 ", "0.75"), ("#### $1,000.50", "1000.50")],
)
def test_the_gold_is_a_plain_number(last_line, answer):
    steps, gold = split_solution(f"One line.\r\n \n{last_line}\n")
    assert (gold, steps) == (answer, ("One line.\n", f"The answer is \\boxed{{{answer}}}."))


@pytest.mark.parametrize("solution", ["12", "#### ", "#### many", "#### 12\nand more"])
def test_a_solution_without_a_final_number_is_refused(solution):
    with pytest.raises(ValueError, match="'#### number'"):
        split_solution(solution)


def test_ids_follow_the_content_and_not_the_position(tmp_path):
    other = ROW | {"question": "Three boxes?"}
    first, second = read_gsm8k("train", folder=write_split(tmp_path, ROW, other))
    [alone] = read_gsm8k("train", folder=write_split(tmp_path, other))
    assert alone.instance_id == second.instance_id != first.instance_id


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"question": "?"}, "key 'answer': expected a text that is not blank, got None"),
        ({"question": 3, "answer": "#### 1"}, "key 'question'"),
        (["?"], "key 'question'"),
        ({"question": "?", "answer": "it is 3"}, "key 'answer': the solution must end in"),
    ],
)
def test_a_bad_row_is_named_with_file_line_and_key(tmp_path, row, complaint):
    with pytest.raises(DataError, match=rf"train\.jsonl: line 2.*{complaint}"):
        read_gsm8k("train", folder=write_split(tmp_path, ROW, row))


def test_a_missing_split_is_named(tmp_path):
    with pytest.raises(DataError, match=r"test\.jsonl: no such file"):
        read_gsm8k("test", folder=tmp_path)


def test_without_a_folder_the_pinned_revision_comes_from_the_hub(tmp_path, serve_rows):
    hub = serve_rows([ROW])
    assert read_gsm8k("train") == read_gsm8k("train", folder=write_split(tmp_path, ROW))
    assert hub.calls == [((HUB_NAME, "main"), {"split": "train", "revision": HUB_REVISION})]


def test_a_hub_that_cannot_be_reached_suggests_a_folder(serve_rows):
    serve_rows(None)
    with pytest.raises(DataError, match=r"Couldn't reach the hub.*give the folder"):
        read_gsm8k("test")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DependencyError, match="pip install datasets"):
        read_gsm8k("test")


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the real GSM8K files are not beside this checkout")
@pytest.mark.parametrize(("split", "count"), [("train", 7473), ("test", 1319)])
def test_every_real_problem_can_be_hinted_and_states_its_gold_last(split, count):
    instances = read_gsm8k(split, folder=FOLDER)
    assert len({instance.instance_id for instance in instances}) == len(instances) == count
    for instance in instances:
        assert len(instance.steps) >= 2
        assert (
            last_boxed(instance.steps[-1])
            == instance.answer
            == str(float(instance.answer)).removesuffix(".0")
        )
        assert "<<" not in "".join(instance.steps)
