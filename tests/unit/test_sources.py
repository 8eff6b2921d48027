"""Sources of problems: named ones, references to the hub, mappings."""

import json
import os
import re
import shutil
import sys
from decimal import Decimal
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from helpers.commands import exit_status
from seele import plugins
from seele.data.sources import Counts, find_settings, open_split, source_names
from seele.data.sources.mapping import as_level, as_text, look_up, parse_path
from seele.data.sources.prepare_source import prepare_source
from seele.data.sources.reference import HubReference, parse_reference
from seele.data.sources.rows import to_instances
from seele.data.storage.files import file_sha256
from seele.data.storage.hub import HubSource, open_configs
from seele.data.storage.schema import read_problems
from seele.data.tasks.gsm8k import read_gsm8k
from seele.errors import ConfigError, DataError

# --- Sources of problems: the named ones in their data sets' real schemas, references, mappings


ROOT = Path(__file__).parents[2]
FIXTURES = Path(os.environ["SEELE_FIXTURES"], "datasets")

MESSAGES = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))
TEXTS = {"problem": pa.string(), "level": pa.string(), "type": pa.string(), "solution": pa.string()}

# File in the data set's repository, our rows for it, and its columns there.
HUB_FILES = {
    "deepmath": [
        (
            "data/train-00000-of-00001.parquet",
            "deepmath",
            {
                "question": pa.string(),
                "final_answer": pa.string(),
                "difficulty": pa.float64(),
                "topic": pa.string(),
                "r1_solution_1": pa.string(),
                "r1_solution_2": pa.string(),
                "r1_solution_3": pa.string(),
            },
        )
    ],
    "openr1_46k": [
        (
            "data/train-00000-of-00001.parquet",
            "openr1_46k",
            {
                "data_source": pa.string(),
                "prompt": MESSAGES,
                "target": MESSAGES,
                "ability": pa.string(),
                "reward_model": pa.struct([("ground_truth", pa.string()), ("style", pa.string())]),
                "extra_info": pa.struct([("index", pa.int64()), ("split", pa.string())]),
            },
        )
    ],
    "dapo_17k": [
        (
            "data/dapo-math-17k.parquet",
            "dapo_17k",
            {
                "data_source": pa.string(),
                "prompt": MESSAGES,
                "ability": pa.string(),
                "reward_model": pa.struct([("ground_truth", pa.string()), ("style", pa.string())]),
                "extra_info": pa.struct([("index", pa.string())]),
            },
        )
    ],
    "math": [
        (f"{subject}/{split}-00000-of-00001.parquet", f"math_{subject}_{split}", TEXTS)
        for subject in ("algebra", "geometry")
        for split in ("train", "test")
    ],
}
SUBJECTS = {"reference": "hf://EleutherAI/hendrycks_math?config=algebra,geometry"}


def rows_of(name: str) -> list[dict]:
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture
def copy_of_hub(tmp_path):
    """Writes a data set as its repository holds it, and returns the folder."""

    def write(source: str) -> Path:
        for file, rows, columns in HUB_FILES[source]:
            (path := tmp_path / source / file).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows_of(rows), schema=pa.schema(list(columns.items()))), path)
        return tmp_path / source

    return write


def read_source(reference, *, split="train", source=None, columns=None, changes=None, counts=None):
    """Yields the problems of a split."""
    settings = find_settings(str(reference), columns=columns, changes=changes)
    opened = open_split(settings, settings.splits.get(split, split), source=source)
    yield from to_instances(opened.rows, settings, Counts() if counts is None else counts)


def read(source: str, folder: Path, *, changes=None, **options):
    counts = Counts()
    found = list(read_source(source, source=folder, changes=changes, counts=counts, **options))
    return found, counts


# The named sources


def test_deepmath_takes_the_solution_after_the_thinking_and_rounds_its_difficulty_down(copy_of_hub):
    [first, unended, half], counts = read("deepmath", copy_of_hub("deepmath"))
    assert first.question.startswith("Evaluate the limit: \\[") and first.answer == "2"
    assert "".join(first.steps).startswith("Factor the numerator") and "Hmm" not in "".join(first.steps)
    assert (first.level, first.data_source) == (5, "deepmath")
    assert unended.steps == () and unended.answer == "Yes"
    assert (half.level, half.answer) == (0, "\\dfrac{7}{2}") and "Halve" in half.steps[0]
    assert counts.read == 6
    assert counts.left_out == {"no_answer": 1, "duplicate": 1, "other_answer": 1}


def test_deepmath_offers_its_other_solutions_and_their_thinking(copy_of_hub):
    folder = copy_of_hub("deepmath")
    [second, *_], _ = read("deepmath", folder, columns={"solution": "r1_solution_2"})
    assert "".join(second.steps).startswith("By another way")
    [whole, *_], _ = read("deepmath", folder, changes={"thinking": "keep"})
    assert "".join(whole.steps) == rows_of("deepmath")[0]["r1_solution_1"].strip()


def test_openr1_asks_what_the_user_asked_and_keeps_the_whole_trace(copy_of_hub):
    [plums, equation], counts = read("openr1_46k", copy_of_hub("openr1_46k"))
    assert plums.question.startswith("## Task 1") and "systematic" not in plums.question
    # The tag stays in the data: a run takes it off where its prompt ends with it (test_solutions.py).
    assert "".join(plums.steps).startswith("<think>\n") and "</think>" in "".join(plums.steps)
    assert (plums.answer, equation.answer) == ("4", "x=4")
    assert (counts.read, counts.left_out) == (2, {})


def test_dapo_unwraps_its_prompts_and_keeps_each_question_once(copy_of_hub):
    problems, counts = read("dapo_17k", copy_of_hub("dapo_17k"))
    assert [(problem.question, problem.answer, problem.steps) for problem in problems] == [
        ("How many made-up primes are below 10?", "4", ()),
        ("Let $a+b=7$ in a made-up triangle. Find $a+b+1$.", "8", ()),
    ]
    assert counts.read == 6 and counts.left_out == {"duplicate": 3, "other_answer": 1}


def test_math_reads_its_subjects_in_turn_the_gold_from_the_box_and_levels_from_their_names(copy_of_hub):
    folder = copy_of_hub("math")
    problems, counts = read("math", folder, changes=SUBJECTS)
    assert [(problem.answer, problem.level) for problem in problems] == [
        ("2", 1),
        ("\\frac{3}{2}", 0),
        ("90", 3),
    ]
    assert counts.left_out == {"no_answer": 1}
    held_out, _ = read("math", folder, changes=SUBJECTS, split="heldout")
    assert [problem.answer for problem in held_out] == ["5", "6"]


@pytest.mark.parametrize("source", HUB_FILES)
def test_the_hub_and_a_copy_of_its_files_give_the_same_problems(source, copy_of_hub, monkeypatch):
    folder = copy_of_hub(source)
    changes = SUBJECTS if source == "math" else None
    hub = HubDouble(folder)
    monkeypatch.setitem(sys.modules, "datasets", hub)
    from_hub = list(read_source(source, changes=changes))
    assert from_hub == read(source, folder, changes=changes)[0]
    reference = parse_reference(find_settings(source).reference)
    assert {call[:1] + call[2:] for call in hub.calls} == {
        (reference.name, "train", reference.revision)
    } or changes
    assert {call[1] for call in hub.calls} == ({"algebra", "geometry"} if source == "math" else {None})


class HubDouble(ModuleType):
    """Stands in for ``datasets``: serves the parquet files of a folder as the hub would."""

    def __init__(self, folder: Path) -> None:
        super().__init__("datasets")
        self.folder, self.calls = folder, []

    def load_dataset(self, name, config, *, split, revision):
        self.calls.append((name, config, split, revision))
        folder = self.folder / config if config else self.folder / "data"
        file = next(iter([*folder.glob(f"{split}-*"), *folder.glob("*.parquet")]))
        return Rows(pq.read_table(file).to_pylist())


class Rows(list):
    """The little of a data set of ``datasets`` that is asked for."""

    @property
    def column_names(self):
        return list(self[0])

    def select_columns(self, names):
        return Rows({name: row[name] for name in names} for row in self)


@pytest.mark.parametrize("name", source_names())
def test_every_source_says_what_it_is_and_has_a_card(name):
    settings = find_settings(name)
    assert settings.data_source == name and settings.title and settings.licence
    _, *cards = (ROOT / "data" / "README.md").read_text().split("\n## ")
    (card,) = [each for each in cards if each.startswith(f"{name}: ")]
    reference = parse_reference(settings.reference)
    assert reference.name in card and f"seele data prepare {name}" in card and settings.licence in card
    assert reference.revision in card


def test_the_command_lists_every_source():
    from seele.cli.data_prepare import prepare_app

    assert all(name in prepare_app.info.help for name in source_names())


# References and mappings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://a/b", HubReference(name="a/b")),
        (
            "hf://a/b?config=x,y&split=test&revision=abc",
            HubReference(name="a/b", configs=("x", "y"), split="test", revision="abc"),
        ),
        ("hf://datasets/a/b?subset=x&ref=abc", HubReference(name="a/b", configs=("x",), revision="abc")),
        ("https://huggingface.co/datasets/a/b", HubReference(name="a/b")),
        ("https://huggingface.co/datasets/a/b/tree/abc", HubReference(name="a/b", revision="abc")),
        (
            "https://huggingface.co/datasets/a/b/viewer/x/test?p=0",
            HubReference(name="a/b", configs=("x",), split="test"),
        ),
        ("https://huggingface.co/datasets/a/b/viewer/default/train", HubReference(name="a/b", split="train")),
        ("https://huggingface.co/datasets/a/b/viewer/x", HubReference(name="a/b", configs=("x",))),
        ("some/folder", Path("some/folder")),
    ],
)
def test_a_reference_is_understood(text, expected):
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hf://a", "expected OWNER/NAME"),
        ("https://huggingface.co/a/b", "not a data set"),
        ("https://example.org/datasets/a/b", "expected hf://"),
        ("ftp://a/b", "expected hf://"),
        ("hf://[OWNER]/NAME", r"hf://\[OWNER\]/NAME: 'OWNER' does not appear .*; expected hf://"),
        ("hf://a/b?cofnig=x", "unknown or empty parameter 'cofnig'"),
        ("hf://a/b?split=", "unknown or empty parameter 'split'"),
        ("https://huggingface.co/datasets/a/b/blob/main/main/test.parquet", "cannot read 'blob/main/main/te"),
        ("https://huggingface.co/datasets/a/b/tree/refs/pr/1", "cannot read 'tree/refs/pr/1'"),
        ("hf://a/b/x/test", "cannot read 'x/test' behind OWNER/NAME; allowed are viewer/CONFIG"),
    ],
)
def test_a_bad_reference_is_refused(text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_reference(text)


def test_paths_lead_through_keys_and_places():
    row = {"a": {"b": [{"c": 1}, {"c": 2}]}, "a.b": "named so", "d": [5]}
    assert parse_path("a.b[0].c") == ["a", "b", 0, "c"]
    assert [look_up(row, path) for path in ("a.b[0].c", "a.b[-1].c", "a.b", "d[0]")] == [1, 2, "named so", 5]
    assert [look_up(row, path) for path in ("a.x.y", "d[3]", "d.x", "a[0]", "nothing")] == [None] * 5
    with pytest.raises(ConfigError, match="expected a path"):
        parse_path("a..b")


def test_values_become_texts_and_levels():
    numbers = (27.0, 2.5, 6.022e23, 3, Decimal("1.50"), Decimal("2E+2"), Decimal("1E-7"), 10**400)
    said = ["27", "2.5", "6022" + "0" * 20, "3", "1.5", "200", "0.0000001", "1" + "0" * 400]
    assert [as_text(value) for value in ("x", *numbers)] == ["x", *said]
    others = (True, None, [1], float("nan"), float("inf"), Decimal("nan"))
    assert [as_text(value) for value in others] == [None] * 6
    levels = ("Level 3", "Level-3", "Level ?", "-1.0", 5.5, -1.0, float("nan"), None, 4)
    assert [as_level(value) for value in levels] == [3, 3, 0, 0, 5, 0, 0, 0, 4]
    with pytest.raises(ValueError, match="expected a number"):
        as_level([3])


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_a_local_file_is_read_by_a_mapping(tmp_path, suffix):
    rows = [
        {
            "problem": f"What is {n}+1?",
            "meta": {"gold": n + 1},
            "parts": ["add one", f"so {n + 1}"],
            "hard": n,
        }
        for n in range(3)
    ]
    path = tmp_path / f"mine{suffix}"
    match suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".json":
            path.write_text(json.dumps(rows))
        case _:
            pq.write_table(pa.Table.from_pylist(rows), path)
    columns = {"question": "problem", "answer": "meta.gold", "steps": "parts", "level": "hard"}
    found = list(read_source(path, columns=columns))
    assert [(each.question, each.answer, each.level, "".join(each.steps)) for each in found] == [
        (f"What is {n}+1?", str(n + 1), n, f"add one\nso {n + 1}") for n in range(3)
    ]
    assert {each.data_source for each in found} == {"mine"}
    assert len({each.instance_id for each in found}) == 3


ROWS_OF_CSV = 'question,answer,solution\r\n"1, 2 or 3?",07,"First.\nThen."\r\n'


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "with a byte order mark"])
@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".csv", ROWS_OF_CSV),
        (".json", '[{"question": "1, 2 or 3?", "answer": "07", "solution": "First.\\nThen."}]'),
        (".jsonl", '{"question": "1, 2 or 3?", "answer": "07", "solution": "First.\\nThen."}'),
    ],
)
def test_a_file_of_a_spreadsheet_or_of_windows_is_read(tmp_path, suffix, text, mark):
    (file := tmp_path / f"f{suffix}").write_bytes((mark + text).encode())
    [found] = read_source(file)
    assert (found.question, found.answer, found.steps) == ("1, 2 or 3?", "07", ("First.\n", "Then."))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("f.csv", f"{ROWS_OF_CSV}a,b,c,d\n", "line 4: has more values than the first line has columns"),
        ("f.csv", f'{ROWS_OF_CSV}"a,b,c\n', r"line 4: cannot be read as CSV \(.*; close every double quote"),
        ("f.csv", "question,answer,solution\nq?,1\n", "line 2: has fewer values than the first line has"),
        (
            "f.csv",
            "question;answer\nq?;1\n",
            "the first line is one column with ';' in it; put commas between",
        ),
        ("f.csv", "question,answer,answer\nq?,1,2\n", "has several columns named 'answer'; give each"),
        ("f.csv", "question,answer\nqu\xe4?,1\n", "expected text in UTF-8 .*; save the file as UTF-8"),
        ("f.json", '["qu\xe4"]', "expected text in UTF-8 .*; save the file as UTF-8"),
        ("f.jsonl", '{"a": "\xe4"}', "line 1: expected text in UTF-8 .*; save the file as UTF-8"),
        ("f.xlsx", "", r"expected one of \(.*'\.csv'\), got '\.xlsx'; convert it, such as with pandas"),
    ],
    ids=[
        "long line",
        "open quote",
        "short line",
        "semicolons",
        "equal names",
        "csv of Latin-1",
        "json",
        "jsonl",
        "other format",
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, complaint):
    (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=rf"{re.escape(name)}: {complaint}"):
        list(read_source(tmp_path / name))


@pytest.mark.parametrize(("name", "content"), [("f.jsonl", "\n"), ("f.json", "[]"), ("f.csv", "question\n")])
def test_a_file_without_rows_is_named(tmp_path, capsys, name, content):
    (tmp_path / name).write_text(content)
    assert prepare(tmp_path / name, "--out", tmp_path / "out") == 2
    assert f"{name}: no rows for train.parquet; expected one row per problem" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_ids_follow_the_content_and_not_the_file(tmp_path):
    for name, order in (("a", (0, 1)), ("b", (1, 0))):
        lines = [json.dumps({"question": f"q{n}", "answer": "1"}) for n in order]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    changes = {"data_source": "same"}
    first, second = (
        [each.instance_id for each in read_source(tmp_path / f"{name}.jsonl", changes=changes)]
        for name in "ab"
    )
    assert first == second[::-1] and first[0] != first[1]


def test_a_folder_gives_the_files_of_a_split(tmp_path):
    for name in ("train-1", "train-0", "train-heldout", "training", "test"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"question": name, "answer": "1"}))
    found = [each.question for each in read_source(tmp_path)]
    assert found == ["train-0", "train-1"]
    with pytest.raises(DataError, match=r"no dev\[-\*\] or data/dev\[-\*\] with one of"):
        list(read_source(tmp_path, split="dev"))
    with pytest.raises(DataError, match=r"but \['test\.jsonl', 'train-0\.jsonl', .*name the file itself"):
        list(read_source(tmp_path, split="dev"))
    (tmp_path / "train.json").write_text("[]")
    with pytest.raises(DataError, match=r"exists as \['\.json', '\.jsonl'\]; name one file"):
        list(read_source(tmp_path))


def test_the_current_folder_gives_its_files_and_its_name(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    with pytest.raises(DataError, match=r"^\.: a folder without a file that ends in one of"):
        list(read_source("."))
    (tmp_path / "mine" / "rows.jsonl").write_text(json.dumps(GOOD))
    assert [each.data_source for each in read_source(".")] == ["mine"]


GOOD = {"question": "q?", "answer": "1"}


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (
            [GOOD, {"question": "q2?", "answer": ""}],
            r"line 2: no answer .*--set leave_out='\[\"no_answer\"\]'",
        ),
        ([GOOD, {"question": " ", "answer": "1"}], "line 2: no question"),
        (
            [GOOD, {"question": "q2?", "answer": True}],
            r"line 2: no answer \(.* 'answer', got True \(bool\)\)",
        ),
        ([GOOD, {"question": "q2?", "answer": float("nan")}], r"line 2: no answer \(.*got nan \(float\)\)"),
        (
            [GOOD, {"question": "q2? \ud83d", "answer": "1"}],
            "line 2, question: expected text in valid Unicode",
        ),
        ([GOOD, {"question": "q2?", "answer": "\ud83d"}], "line 2, answer: expected text in valid Unicode"),
        ([GOOD, GOOD], "line 2: the question occurs in an earlier row with the same answer"),
        ([GOOD, GOOD | {"answer": "2"}], "line 2: the question occurs in an earlier row with another answer"),
        ([GOOD, ["q2?", "1"]], "line 2: expected a row with columns"),
        (
            [{"question": "q?", "anser": "1"}],
            r"no column 'answer' \(for answer\) in .*; this row has \['question', 'anser'\]; map the columns",
        ),
    ],
)
def test_a_bad_row_ends_the_reading_with_its_place(tmp_path, rows, complaint):
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=rf"f\.jsonl: .*{complaint}"):
        list(read_source(tmp_path / "f.jsonl"))


def test_rows_are_left_out_for_the_reasons_that_are_named(tmp_path):
    rows = [
        GOOD,
        GOOD,
        GOOD | {"answer": "2"},
        {"question": "", "answer": "1"},
        {"question": "x" * 50, "answer": "1"},
    ]
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reasons = ("duplicate", "other_answer", "no_question", "too_long")
    counts = Counts()
    changes = {"leave_out": reasons, "max_chars": 20}
    [kept] = read_source(tmp_path / "f.jsonl", changes=changes, counts=counts)
    assert kept.question == "q?" and counts.left_out == dict.fromkeys(reasons, 1)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"level": "lvel"}, "no column 'lvel' \\(for level\\) in any row"),
        (
            {"solution": "meta.proof"},
            r"'meta.proof' \(for solution\) .* has \['question', 'answer', 'extra', ",
        ),
        (
            {"solution": "extra.prof"},
            r"'extra.prof' \(for solution\) .* has .*, 'extra', 'extra.proof'\]",
        ),
        ({"level": "extra.proof[1]"}, r"'extra.proof\[1\]' \(for level\) .*; this row has"),
    ],
)
def test_a_column_that_no_row_has_is_a_mistake(tmp_path, columns, complaint):
    (tmp_path / "f.jsonl").write_text(json.dumps(GOOD | {"extra": {"proof": None}}))
    with pytest.raises(DataError, match=complaint):
        list(read_source(tmp_path / "f.jsonl", columns=columns))


@pytest.mark.parametrize("kind", ["parquet", "hub"])
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"answer": "Answr"},
            r"'Answr' \(for answer\) in any row .*\['Question', 'Ans\.', 'meta', 'meta.lvl'\]",
        ),
        ({"question": "Question", "answer": "answr"}, r'COLUMN", perhaps "answer=Ans\."; answer='),
        ({"question": "a", "answer": "b"}, r'COLUMN", perhaps "question=Question answer=Ans\."; answer='),
        ({}, r'COLUMN", perhaps "question=Question answer=Ans\."; answer='),
        ({"question": "Question", "answer": "Ans.", "level": "lvl"}, r'perhaps "level=meta.lvl"; answer='),
    ],
)
def test_a_column_of_another_name_is_proposed_among_all_that_there_are(
    tmp_path, monkeypatch, kind, columns, said
):
    table = pa.Table.from_pylist([{"Question": "q?", "Ans.": "7", "meta": {"lvl": 1}}])
    pq.write_table(table, tmp_path / "f.parquet")
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset(table))
    reference = "hf://owner/name" if kind == "hub" else str(tmp_path / "f.parquet")
    with pytest.raises(DataError, match=said):
        list(read_source(reference, columns=columns))
    [found] = read_source(reference, columns={"question": "Question", "answer": "Ans."})
    assert (found.question, found.answer) == ("q?", "7")


def test_a_solution_is_not_proposed_as_the_question(tmp_path):
    (tmp_path / "f.jsonl").write_text(json.dumps({"Solution": "s", "Problem": "p", "Ans.": "7"}))
    with pytest.raises(DataError, match=r'perhaps "question=Problem answer=Ans\."'):
        list(read_source(tmp_path / "f.jsonl", columns={}))
    (tmp_path / "f.jsonl").write_text(json.dumps({"Solution": "s", "Answer": "7"}))
    with pytest.raises(DataError, match=r'perhaps "answer=Answer"'):
        list(read_source(tmp_path / "f.jsonl", columns={}))


def test_a_column_that_is_there_may_be_empty(tmp_path):
    rows = [GOOD | {"extra": {"proof": None}}, {"question": "q2?", "answer": "2", "extra": None}]
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(read_source(tmp_path / "f.jsonl", columns={"solution": "extra.proof"}))
    assert [each.steps for each in found] == [(), ()]


def test_a_solution_that_is_no_text_is_refused_and_not_dropped(tmp_path):
    (tmp_path / "f.jsonl").write_text(json.dumps(GOOD | {"proof": ["First.\nThen."]}))
    with pytest.raises(
        DataError, match=r"line 1, column 'proof': expected a text, got .*\(list\); map a list"
    ):
        list(read_source(tmp_path / "f.jsonl", columns={"solution": "proof"}))
    [found] = read_source(tmp_path / "f.jsonl", columns={"solution": "proof[0]"})
    assert found.steps == ("First.\n", "Then.")


def test_numbers_of_parquet_become_what_was_written(tmp_path, monkeypatch):
    answers = {
        "single": pa.array([0.1, 27.0], pa.float32()),
        "half": pa.array([0.1, 27.0], pa.float16()),
        "decimal": pa.array([Decimal("0.10"), Decimal("27.00")]),
        "double": pa.array([0.1, 27.0]),
        "within": pa.array([{"x": [0.1]}, {"x": [27.0]}], pa.struct([("x", pa.list_(pa.float32()))])),
    }
    table = pa.table({"question": ["a?", "b?"], **answers})
    pq.write_table(table, tmp_path / "f.parquet")
    stand_in = ModuleType("datasets")
    rows = Rows(table.to_pylist())
    rows.features = SimpleNamespace(arrow_schema=table.schema)
    stand_in.load_dataset = lambda *_, **__: rows
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    for name in ("single", "half", "decimal", "double", "within.x[0]"):
        for reference in (str(tmp_path / "f.parquet"), "hf://owner/name"):
            found = read_source(reference, columns={"answer": name})
            assert [each.answer for each in found] == ["0.1", "27"]


def test_a_parquet_text_that_is_no_utf_8_is_refused(tmp_path):
    bad = pa.array([b"\xff\xfe"]).view(pa.string())
    pq.write_table(pa.table({"question": bad, "answer": ["1"]}), tmp_path / "f.parquet")
    with pytest.raises(DataError, match=r"f\.parquet: cannot be read as parquet .*utf-8"):
        list(read_source(tmp_path / "f.parquet"))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"thinking": "some"}, "thinking must be 'keep' or 'drop'"),
        ({"max_steps": 0}, "max_steps must be >= 1"),
        ({"leave_out": ("ugly",)}, r"unknown reasons \['ugly'\]; known are \['no_question'"),
        ({"data_source": "a/b"}, "names must consist of letters"),
        ({"max_step": 3}, "unknown key 'max_step'"),
        ({"columns": {"solution": "a", "steps": "b"}}, "not both"),
        ({"columns": {"answer": None}}, "map its column"),
        ({"columns": {"steps": "a"}, "max_steps": 3}, "'a' is a list of steps"),
        ({"columns": {"solution": "a"}, "separator": " "}, "separator has no effect without a list of steps"),
        ({"columns": {"steps": "a"}, "thinking": "drop"}, "'a' is a list of steps; leave thinking out"),
        (
            {"columns": {"answer": None, "solution": "a"}, "solution_form": "gsm8k", "max_steps": 3},
            "max_steps has no effect on solution_form 'gsm8k'",
        ),
        ({"splits": {"train": 2022}}, r"hf://a/b.splits.train: expected a text, got 2022"),
        ({"splits": {2022: "train"}}, r"hf://a/b.splits: expected a text, got 2022"),
    ],
)
def test_bad_settings_are_refused(changes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        find_settings("hf://a/b", changes=changes)


def test_columns_that_are_set_are_not_looked_for(tmp_path):
    file = tmp_path / "f.jsonl"
    file.write_text('{"question": "no", "problem": "1 + 1?", "answer": "3", "gold": "2"}\n')
    changes = {"columns": {"question": "problem", "answer": "gold"}}
    (problem,) = read_source(file, changes=changes)
    assert (problem.question, problem.answer) == ("1 + 1?", "2")


def test_columns_are_given_in_one_place():
    with pytest.raises(ConfigError, match="--set columns: the columns are given with --map"):
        find_settings("hf://a/b", columns={"answer": "a"}, changes={"columns": {"answer": "b"}})


def test_an_unknown_name_is_answered_with_those_that_there_are():
    with pytest.raises(
        ConfigError,
        match=r"nor a source \(did you mean 'deepmath'\?\); sources are \['dapo_17k'",
    ):
        find_settings("deepmaths")


def test_the_origin_is_the_same_wherever_the_files_lie(copy_of_hub, tmp_path):
    first = copy_of_hub("deepmath")
    shutil.copytree(first, second := tmp_path / "elsewhere")
    settings = find_settings("deepmath")
    origins = [open_split(settings, "train", source=folder).origin for folder in (first, second)]
    assert origins[0] == origins[1] and list(origins[0]["files"]) == ["data/train-00000-of-00001.parquet"]


def test_the_yaml_files_hold_nothing_but_settings():
    for name in source_names():
        raw = yaml.safe_load((ROOT / "seele" / "data" / "sources" / f"{name}.yaml").read_text())
        assert raw["data_source"] == name


# A user's own sources

TABLE = """
import json
from pathlib import Path


def read(split):
    for line in (Path(__file__).parent / f"{split}.txt").read_text().splitlines():
        question, *steps, answer = json.loads(line)
        yield {"question": question, "steps": [f"{step}\\n" for step in steps], "answer": answer}


def read_nothing(split):
    pass


SOURCE = {"data_source": "table", "reference": "table.py:read", "splits": {"train": "all"}}
"""


@pytest.fixture
def own(tmp_path):
    """A folder with rows that no mapping of columns reads, and the function that does."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "table.py").write_text(TABLE)
    lines = [json.dumps([f"What is {n}+1?", f"one after {n}", n + 1]) for n in range(40)]
    (folder / "all.txt").write_text("\n".join(lines))
    (folder / "mine.yaml").write_text("reference: table.py:read\nsplits: {train: all}\n")
    return folder


def test_a_yaml_file_of_ones_own_is_a_source_whose_paths_begin_beside_it(own, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    problems = list(read_source("own/mine.yaml"))
    assert [problem.answer for problem in problems] == [str(n + 1) for n in range(40)]
    assert (problems[3].data_source, problems[3].steps) == ("mine", ("one after 3\n",))
    # The same file as columns, and with keys that only the YAML file of a source has.
    write_rows = [{"problem": p.question, "gold": p.answer} for p in problems]
    (own / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in write_rows))
    (own / "other.yaml").write_text(
        "data_source: sums\nreference: rows.jsonl\nquestion_prefix: What is\n"
        "columns: {question: problem, answer: gold}\n"
    )
    [first, *_] = read_source("own/other.yaml")
    assert (first.question, first.answer, first.data_source) == ("0+1?", "1", "sums")


def test_a_mapping_and_a_function_are_sources_by_import_path(own, monkeypatch):
    from_yaml = list(read_source(own / "mine.yaml", changes={"data_source": "table"}))
    assert list(read_source(f"{own}/table.py:SOURCE")) == from_yaml
    function = list(read_source(f"{own}/table.py:read", split="all"))
    assert [problem.steps for problem in function] == [problem.steps for problem in from_yaml]
    monkeypatch.syspath_prepend(str(own))
    changes = {"reference": "table:read"}
    assert list(read_source(own / "mine.yaml", changes=changes | {"data_source": "table"})) == from_yaml


def test_an_installed_package_names_sources(own, monkeypatch):
    monkeypatch.syspath_prepend(str(own))
    points = EntryPoints([EntryPoint("sums", "table:SOURCE", "seele.data_sources")])
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: points.select(group=group))
    settings = find_settings("sums", changes={"reference": f"{own}/table.py:read"})
    assert (settings.data_source, settings.splits) == ("table", {"train": "all"})
    with pytest.raises(ConfigError, match=r"nor a source .*; sources are .*'sums'"):
        find_settings("summs")


def test_an_own_source_is_prepared_with_a_part_held_out_and_the_same_bytes_anywhere(own, tmp_path):
    shutil.copytree(own, second := tmp_path / "elsewhere")
    for folder in (own, second):
        settings = find_settings(str(folder / "mine.yaml"), changes={"heldout_share": 0.25})
        prepare_source(folder / "out", settings)
    names = ("train.parquet", "heldout.parquet", "manifest.json")
    assert all((own / "out" / name).read_bytes() == (second / "out" / name).read_bytes() for name in names)
    manifest = json.loads((own / "out" / "manifest.json").read_text())
    counts = [entry["problems"] for entry in manifest["splits"].values()]
    assert sum(counts) == 40 and min(counts) >= 4
    assert manifest["splits"]["train"]["origin"] == {
        "function": "table.py:read",
        "sha256": file_sha256(own / "table.py"),
        "split": "all",
    }


def test_a_line_of_the_example_ends_at_a_line_feed_only(tmp_path):
    shutil.copy(ROOT / "examples" / "own_data" / "rows.py", tmp_path)
    row = {"ask": "1\u20282\x85?", "worked": ["a.", "b."], "result": 3}
    (tmp_path / "train.jsonl").write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")
    columns = {"question": "ask", "answer": "result", "steps": "steps"}
    [problem] = read_source(f"{tmp_path}/rows.py:read", columns=columns)
    assert problem.question == "1\u20282\x85?"


def test_rows_of_a_function_may_hold_arrays_and_numbers_of_numpy_and_pandas(tmp_path):
    pytest.importorskip("pandas")
    (tmp_path / "rows.py").write_text(
        "import numpy as np\nimport pandas as pd\n\n"
        "def read(split):\n"
        "    yield {'question': 'q1?', 'answer': np.float32(4), 'level': np.int64(3),\n"
        "           'steps': np.array(['a. ', 'b.'], dtype=object), 'more': pd.NaT}\n"
        "    yield {'question': 'q2?', 'answer': np.int64(5), 'level': pd.NA,\n"
        "           'steps': ['a. ', np.str_('b.')]}\n"
    )
    first, second = read_source(f"{tmp_path}/rows.py:read")
    assert (first.answer, first.level, first.steps) == ("4", 3, ("a. \n", "b."))
    assert (second.answer, second.level, second.steps) == ("5", 0, ("a. \n", "b."))


def test_a_folder_with_a_colon_is_found_beside_a_source(tmp_path):
    (tmp_path / "run:1").mkdir()
    (tmp_path / "run:1" / "rows.jsonl").write_text('{"question": "q?", "answer": 1}\n')
    (tmp_path / "mine.yaml").write_text("reference: run:1/rows.jsonl\n")
    assert find_settings(str(tmp_path / "mine.yaml")).reference == f"{tmp_path}/run:1/rows.jsonl"


def test_an_error_in_a_function_is_named_with_file_line_and_row_and_nothing_is_written(own):
    with (own / "all.txt").open("a") as file:
        file.write("\nno JSON")
    place = rf"{own}/table.py:8: table.py:read\('all'\), row 40 \(counted from 0\): JSONDecodeError"
    with pytest.raises(DataError, match=place):
        prepare_source(own / "out", find_settings(str(own / "mine.yaml")))
    assert not (own / "out").exists()
    with pytest.raises(DataError, match=r"table.py:12: .* row 0 .*: TypeError: 'NoneType'"):
        list(read_source(f"{own}/table.py:read_nothing"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("reference: table.py:read\ncolums: {}", r"mine.yaml: unknown key 'colums' .*; allowed keys are"),
        ("reference: table.py:read\ncolumns: [a]", r"mine.yaml.columns: expected a section .*\['a'\]"),
        ("reference: table.py:read\ncolumns: {answers: a}", r"mine.yaml.columns: unknown key 'answers'"),
        ("reference: table.py:read\nmax_steps: few", "mine.yaml.max_steps: expected a whole number"),
        ("title: Mine", "mine.yaml: expected a text under 'reference', got None"),
        ("[a, b]", r"mine.yaml: expected lines such as .*, got \['a', 'b'\]"),
        ("a: [", r"mine.yaml: cannot be read as YAML \(.*line 1, column 5.*\)$"),
        ("reference: table.py:raed", r"table.py has no 'raed'; it has \['SOURCE'"),
        ("reference: table.py:SOURCE", "expected a function that takes a split's name .*, got dict"),
        ("reference: none.py:read", "no file .*none.py"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_own_source_is_named_with_its_file(own, text, complaint):
    (own / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        list(read_source(own / "mine.yaml"))


def test_a_copy_of_the_files_is_no_help_to_a_function(own):
    with pytest.raises(ConfigError, match=r"--source .*: the rows come from a function, .*table.py:read"):
        list(read_source(own / "mine.yaml", source=own))


# --- References to data sets of the hub, as other projects write them: their columns, their configurations


GSM8K = "https://huggingface.co/datasets/openai/gsm8k?config=main&split=train"
MATH = "https://huggingface.co/datasets/EleutherAI/hendrycks_math?split=test"
DAPO = "hf://BytedTsinghua-SIA/DAPO-Math-17k?split=train"
MATH_SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)
GSM8K_ROWS = [
    {"question": f"{n} boxes of 6 eggs?", "answer": f"{n}*6=<<{n}*6={6 * n}>>{6 * n} eggs.\n#### {6 * n}"}
    for n in (200, 3)
]


class Hub(ModuleType):
    """Stands in for ``datasets``: rows by repository, configuration and split, errors as the library's."""

    def __init__(self, tables: dict[tuple[str, str | None, str], list[dict]]) -> None:
        super().__init__("datasets")
        self.tables, self.calls = tables, []

    def get_dataset_config_names(self, name, *, revision):
        return list(dict.fromkeys(config for repository, config, _ in self.tables if repository == name))

    def load_dataset(self, name, config, *, split, revision):
        self.calls.append((name, config, split, revision))
        configs = self.get_dataset_config_names(name, revision=revision)
        if not configs:
            raise FileNotFoundError(f"Dataset '{name}' doesn't exist on the Hub or cannot be accessed.")
        if config not in configs:
            if config is None:
                raise ValueError(f"Config name is missing.\nPlease pick one among: {configs}")
            raise ValueError(f"BuilderConfig '{config}' not found. Available: {configs}")
        if (name, config, split) not in self.tables:
            raise ValueError(f'Unknown split "{split}".')
        return Rows(self.tables[name, config, split])


@pytest.fixture
def serve(monkeypatch):
    """Makes the hub serve these tables; returns its stand-in."""

    def replace(tables):
        monkeypatch.setitem(sys.modules, "datasets", hub := Hub(tables))
        return hub

    return replace


def rows_at(name: str) -> list[dict]:
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]


prepare = partial(exit_status, "data", "prepare")


# The three references in the README of LZE


def test_gsm8k_by_reference_has_its_gold_behind_the_mark_and_its_lines_as_steps(serve, tmp_path, capsys):
    hub = serve({("openai/gsm8k", "main", "train"): GSM8K_ROWS})
    assert prepare(GSM8K, "--out", tmp_path / "out") == 0
    assert hub.calls == [("openai/gsm8k", "main", "train", "main")]
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [each.answer for each in problems] == ["1200", "18"]
    assert problems[1].steps == ("3*6=18 eggs.\n", "The answer is \\boxed{18}.")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["source"], manifest["licence"], manifest["reference"]) == ("gsm8k", "MIT", GSM8K)
    assert manifest["splits"]["train"]["golds"] == {"grader": "mathruler", "checked": 2, "failing": 0}


def test_gsm8k_by_reference_gives_the_problems_of_its_own_command(serve, tmp_path):
    serve({("openai/gsm8k", "main", "train"): GSM8K_ROWS})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GSM8K_ROWS))
    assert list(read_source(GSM8K)) == read_gsm8k("train", folder=tmp_path)


def test_math_by_reference_joins_all_configurations(serve, tmp_path):
    tables = {
        ("EleutherAI/hendrycks_math", subject, "test"): [
            row | {"problem": f"{subject}: {row['problem']}"} for row in rows_at("math_algebra_test")
        ]
        for subject in MATH_SUBJECTS
    }
    hub = serve(tables)
    assert prepare(MATH, "--out", tmp_path / "out") == 0
    assert [config for _, config, _, _ in hub.calls] == list(MATH_SUBJECTS)
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [each.question.split(":")[0] for each in problems] == list(MATH_SUBJECTS)
    assert {each.answer for each in problems} == {"5"} and {each.data_source for each in problems} == {"math"}
    assert all(each.steps and each.level for each in problems)
    origin = json.loads((tmp_path / "out" / "manifest.json").read_text())["splits"]["train"]["origin"]
    assert (origin["configs"], origin["split"]) == (list(MATH_SUBJECTS), "test")


def test_dapo_by_reference_is_unwrapped_and_each_question_kept_once(serve, tmp_path, capsys):
    serve({("BytedTsinghua-SIA/DAPO-Math-17k", None, "train"): rows_at("dapo_17k") * 100})
    assert prepare(DAPO, "--out", tmp_path / "out") == 0
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [(each.question, each.answer) for each in problems] == [
        ("How many made-up primes are below 10?", "4"),
        ("Let $a+b=7$ in a made-up triangle. Find $a+b+1$.", "8"),
    ]
    assert "2 problems of 600 rows" in capsys.readouterr().out


def test_a_reference_says_which_rows_and_not_what_is_held_out(serve):
    settings = find_settings("hf://zwhe99/DeepMath-103K?split=train")
    assert settings.heldout_share == 0.0 and settings.splits == {"train": "train"}
    assert settings.columns == find_settings("deepmath").columns
    assert find_settings("hf://eleutherai/Hendrycks_Math?config=algebra").reference.endswith("config=algebra")


# Other data sets


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (
            {"id": 1, "problem": "q?", "solution": "So \\boxed{7}.", "answer": "7", "level": "Level 2"},
            {"question": "problem", "answer": "answer", "solution": "solution", "level": "level"},
        ),
        ({"problem": "q?", "answer": 7.0, "url": "x"}, {"question": "problem", "answer": "answer"}),
        (
            {"problem": "q?", "solution": "So \\boxed{7}.", "type": "x"},
            {"question": "problem", "answer": "last box of solution", "solution": "solution"},
        ),
        *(
            (
                {"problem": "q?", "solution": "So \\boxed{7}.", "answer": empty, "target": None},
                {"question": "problem", "answer": "last box of solution", "solution": "solution"},
            )
            for empty in (None, " ", float("nan"), [])
        ),
        (
            {"question": "q?", "answer": {"value": 7}, "final_answer": "7"},
            {"question": "question", "answer": "final_answer"},
        ),
        (
            {"prompt": [{"role": "user", "content": "q?"}], "reward_model": {"ground_truth": "7"}},
            {"question": "prompt[-1].content", "answer": "reward_model.ground_truth"},
        ),
        ({"question": "q?", "final_answer": "7"}, {"question": "question", "answer": "final_answer"}),
        (
            {"question": "q?", "answer": "6+1=<<6+1=7>>7\n#### 7"},
            {"question": "question", "answer": "last line of answer", "solution": "answer"},
        ),
        (
            {"question": "q?", "answer": "7", "steps": ["a.\n", "b."], "difficulty": 3},
            {"question": "question", "answer": "answer", "steps": "steps", "level": "difficulty"},
        ),
        (
            {"question": "q?", "answer": "7", "level": True, "difficulty": 3},
            {"question": "question", "answer": "answer", "level": "difficulty"},
        ),
        (
            {"question": "q?", "answer": "7", "solution": ["a.\n", "b."]},
            {"question": "question", "answer": "answer", "steps": "solution"},
        ),
        (
            {"question": "q?", "answer": "7", "steps": "a. b.", "solution": {"a": 1}},
            {"question": "question", "answer": "answer", "solution": "steps"},
        ),
    ],
    ids=[
        *("math500", "aime", "boxed", "null", "blank", "nan", "empty list", "answer in a mapping", "verl"),
        *("final_answer", "gsm8k copy", "steps", "no level"),
        *("solution in a list", "steps in a text"),
    ],
)
def test_columns_are_found_by_their_usual_names(serve, row, columns):
    serve({("owner/name", None, "train"): [row]})
    [problem] = read_source("hf://owner/name", counts=(counts := Counts()))
    assert (problem.question, problem.answer) == ("q?", "7")
    assert counts.columns == columns


def write_rows(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(GOOD | row) + "\n" for row in rows))
    return path


def test_a_column_with_texts_and_lists_of_solutions_is_refused_and_not_dropped(tmp_path):
    file = write_rows(tmp_path / "f.jsonl", {"solution": "First.\nThen."}, {"solution": ["First."]})
    with pytest.raises(DataError, match=r"line 2, column 'solution': expected a text, got .*; map a list"):
        list(read_source(file))


def test_columns_that_are_empty_are_not_chosen(tmp_path):
    row = {"question": " ", "problem": "q?", "steps": [], "solution": "First.\n\nSo 3.", "answer": "3"}
    (tmp_path / "f.jsonl").write_text(json.dumps(row) + "\n")
    [found] = read_source(tmp_path / "f.jsonl")
    assert (found.question, len(found.steps)) == ("q?", 2)


@pytest.mark.parametrize("bad", [False, float("nan"), None, {"v": 7}, ["30"]], ids=repr)
def test_a_bad_answer_is_refused_or_skipped_and_does_not_replace_the_column(tmp_path, bad):
    boxed = {"solution": "So \\boxed{3}."}
    file = write_rows(tmp_path / "f.jsonl", boxed, {"question": "q2?", "answer": bad} | boxed)
    with pytest.raises(DataError, match=r"line 2: no answer \(.* 'answer', got .*; fix the row, or skip"):
        list(read_source(file))
    [found] = read_source(file, changes={"leave_out": ("no_answer",)})
    assert found.answer == "1"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"question": 7, "problem": "another"}, r"no question \(column 'question' is 7\)"),
        ({"question": "q2?", "solution": False}, "column 'solution': expected a text, got False"),
        ({"question": "q2?", "answer": "7"}, "no answer .*must end in a line '#### number', got '7'"),
    ],
    ids=["question", "solution", "gsm8k"],
)
def test_no_bad_value_replaces_a_column(tmp_path, row, complaint):
    first = {"answer": "6+1=7\n#### 7"} if "answer" in row else {"problem": "p?", "solution": "First."}
    file = write_rows(tmp_path / "f.jsonl", first, row)
    with pytest.raises(DataError, match=rf"line 2.*{complaint}"):
        list(read_source(file))


def test_answers_below_the_rows_that_were_looked_at_are_refused(tmp_path):
    rows = [{"question": f"{n}?", "answer": "", "solution": f"So \\boxed{{{n}}}."} for n in range(21)]
    file = write_rows(tmp_path / "f.jsonl", *rows)
    assert [each.answer for each in read_source(file)] == [str(n) for n in range(21)]
    write_rows(file, *rows[:-1], rows[-1] | {"answer": "7"})
    with pytest.raises(DataError, match=r'line 21: column \'answer\' has a value, but .* --map "question='):
        list(read_source(file))


@pytest.mark.parametrize(("value", "part"), [(["7"], "answer[0]"), ({"v": 7}, "answer.KEY")])
def test_the_way_to_a_part_of_a_column_is_proposed(tmp_path, value, part):
    with pytest.raises(DataError, match=re.escape(f"--map answer={part} takes a part of it")):
        list(read_source(write_rows(tmp_path / "f.jsonl", {"answer": value})))


def test_steps_that_would_have_to_be_cut_are_refused_without_a_traceback(tmp_path, capsys):
    file = write_rows(tmp_path / "f.jsonl", {"solution": ["First.", "Then."]})
    assert prepare(file, "--out", tmp_path / "out", "--set", "max_steps=5") == 2
    assert "f.jsonl: max_steps is for solutions that are cut here, but 'solution'" in capsys.readouterr().err


def test_a_separator_is_refused_where_no_list_of_steps_is_found(tmp_path):
    changes = {"separator": " "}
    [found] = read_source(write_rows(tmp_path / "a.jsonl", {"solution": ["1.", "2."]}), changes=changes)
    assert found.steps == ("1. ", "2.")
    text = write_rows(tmp_path / "b.jsonl", {"solution": "1."})
    with pytest.raises(ConfigError, match="separator has no effect without a list of steps"):
        list(read_source(text, changes=changes))


def test_what_was_found_is_said_and_recorded(serve, tmp_path, capsys):
    file = write_rows(tmp_path / "f.jsonl", {"solution": ["First.", "Then."]})
    assert prepare(file, "--out", tmp_path / "steps") == 0
    output = capsys.readouterr().out
    assert "  columns: question=question answer=answer steps=solution; none for level (use --map" in output
    assert "warning" not in output
    serve({("owner/name", None, "train"): [{"problem": "q?", "answer": "7"}]})
    assert prepare("hf://owner/name", "--out", tmp_path) == 0
    output = capsys.readouterr().out
    assert "  columns: question=problem answer=answer; none for solution and level (use --map" in output
    assert "warning: no problem here has a possible hint" in output and "method=grpo" in output
    entry = json.loads((tmp_path / "manifest.json").read_text())["splits"]["train"]
    assert entry["columns"] == {"question": "problem", "answer": "answer"}
    file = write_rows(tmp_path / "f.jsonl", {"answer": None, "solution": "So \\boxed{3}."})
    assert prepare(file, "--out", tmp_path / "box") == 0
    said = "columns: question=question answer=last box of solution solution=solution; none for level"
    assert said in capsys.readouterr().out
    entry = json.loads((tmp_path / "box" / "manifest.json").read_text())["splits"]["train"]
    assert entry["columns"]["answer"] == "last box of solution"


def test_what_is_mapped_is_not_looked_for_and_nothing_is_added_to_it(serve):
    row = {"problem": "q?", "answer": "8", "gold": "7", "solution": "So \\boxed{8}."}
    serve({("owner/name", None, "train"): [row]})
    [problem] = read_source("hf://owner/name", columns={"answer": "gold"})
    assert (problem.question, problem.answer, problem.steps) == ("q?", "7", ())


def test_columns_that_cannot_be_mapped_are_named_with_what_there_is(serve, tmp_path, capsys):
    serve({("owner/name", None, "train"): [{"frage": "q?", "antwort": "7", "meta": {"gold": "7"}}]})
    assert prepare("hf://owner/name", "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "no column 'question' (for question), 'answer' (for answer) in" in error and error.count("\n") == 1
    assert "this row has ['frage', 'antwort', 'meta', 'meta.gold']" in error
    assert '--map "question=COLUMN answer=COLUMN' in error
    assert not (tmp_path / "out").exists()


# Configurations, access


def test_without_a_name_all_configurations_are_read(serve):
    tables = {
        ("owner/name", config, "train"): [{"question": f"{config}?", "answer": "7"}] for config in ("a", "b")
    }
    serve(tables)
    assert [each.question for each in read_source("hf://owner/name")] == ["a?", "b?"]
    assert [each.question for each in read_source("hf://owner/name?config=b")] == ["b?"]
    opened = open_configs(HubSource("owner/name", "train", "main"), (), instead="")
    assert [source.config for _, source in opened] == ["a", "b"]


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("hf://owner/name?config=c", r"no configuration 'c'.*config=NAME"),
        ("hf://owner/name?config=a&split=trian", 'Unknown split "trian"'),
        ("hf://owner/other", r"cannot be accessed\. If owner/other is gated or private: .*HF_TOKEN"),
    ],
)
def test_what_cannot_be_had_is_named_before_anything_is_written(
    serve, tmp_path, capsys, reference, complaint
):
    serve({("owner/name", "a", "train"): [{"question": "q?", "answer": "7"}]})
    assert prepare(reference, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(complaint, error)
    assert not (tmp_path / "out").exists()
