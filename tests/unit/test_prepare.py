"""Prepared folders: manifests, files that are complete or absent, the same bytes after a kill."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seele.cli.main import main
from seele.data.prepare import Split, prepare
from seele.data.storage import parquet
from seele.data.storage.files import PartialFile, file_sha256, write_atomically
from seele.data.storage.parquet import copy_rows
from seele.data.storage.schema import content_id, read_problems, write_problems
from seele.errors import DataError
from seele.records import Instance


def problem(number: int, **changes) -> Instance:
    return Instance(
        **{
            "instance_id": f"toy-{number}",
            "data_source": "toy",
            "question": f"What is {number}+1?",
            "steps": (f"Add one to {number}.\n", f"So \\boxed{{{number + 1}}}."),
            "answer": str(number + 1),
        }
        | changes
    )


def run(*arguments: object) -> int:
    """Exit status of ``seele data prepare ARGUMENTS``."""
    with pytest.raises(SystemExit) as ended:
        main(["data", "prepare", *map(str, arguments)])
    return int(ended.value.code or 0)


def write_source(path: Path, count: int) -> Path:
    rows = (
        {
            "problem": f"What is {n}+1?",
            "proof": f"Add one to {n}.\nSo it is \\boxed{{{n + 1}}}.",
            "hard": n % 5,
        }
        for n in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


MAPPED = ("--map", "question=problem answer= solution=proof", "--map", "level=hard")


def test_a_file_is_prepared_with_a_manifest_that_says_all(tmp_path, capsys):
    source = write_source(tmp_path / "mine.jsonl", 4)
    source.write_text(source.read_text() + '{"problem": "?", "proof": "no box"}\n')
    arguments = (source, "--out", tmp_path / "out", *MAPPED, "--set", 'leave_out=["no_answer"]')
    assert run(*arguments, "--set", "licence=mine", "--set", "data_source=sums") == 0
    assert "4 problems of 5 rows, 0 without a possible hint; left out: 1 no_answer" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {key: manifest[key] for key in ("source", "licence", "reference", "schema")} == {
        "source": "sums",
        "licence": "mine",
        "reference": "mine.jsonl",
        "schema": 1,
    }
    entry = manifest["splits"]["train"]
    assert entry["origin"] == {"files": {"mine.jsonl": file_sha256(source)}}
    assert (entry["rows_read"], entry["problems"], entry["left_out"]) == (5, 4, {"no_answer": 1})
    assert entry["sha256"] == file_sha256(tmp_path / "out" / "train.parquet")
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [(each.answer, each.level) for each in problems] == [("1", 0), ("2", 1), ("3", 2), ("4", 3)]
    assert all(each.instance_id.startswith("sums-") and each.revealed_at is not None for each in problems)


def test_splits_are_named_by_the_user(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("train", "test"):
        write_source(tmp_path / "in" / f"{name}.jsonl", 2)
    splits = ("--split", "train=train", "--split", "heldout=test")
    assert run(tmp_path / "in", "--out", tmp_path / "out", *MAPPED, *splits) == 0
    assert list(json.loads((tmp_path / "out" / "manifest.json").read_text())["splits"]) == [
        "train",
        "heldout",
    ]


def test_splits_of_the_same_rows_are_refused(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    write_source(tmp_path / "in" / "train.jsonl", 2)
    splits = ("--split", "train=train", "--split", "heldout=test")
    assert run(tmp_path / "in", "--out", tmp_path / "out", *MAPPED, *splits) == 2
    assert "'train' and 'heldout' would be the same rows" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train.parquet", "manifest.json"])
def test_the_source_is_not_overwritten(tmp_path, capsys, name):
    assert run(write_source(tmp_path / "mine.jsonl", 3), "--out", tmp_path / "out", *MAPPED) == 0
    source = tmp_path / "out" / name
    before = source.read_bytes()
    assert run(source, "--out", tmp_path / "out" / ".." / "out") == 2
    assert f"{name}, which is read, would be overwritten; name another folder" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_a_folder_that_cannot_be_made_ends_with_one_line(tmp_path, capsys):
    source = write_source(tmp_path / "mine.jsonl", 3)
    assert run(source, "--out", source / "below", *MAPPED) == 2
    error = capsys.readouterr().err
    assert str(source) in error and error.count("\n") == 1


def test_a_part_of_the_training_problems_is_held_out_whatever_their_order(tmp_path, capsys):
    source = write_source(tmp_path / "in.jsonl", 400)
    share = ("--set", "heldout_share=0.1")
    assert run(source, "--out", tmp_path / "out", *MAPPED, *share) == 0
    parts = {name: read_problems(tmp_path / "out" / f"{name}.parquet") for name in ("train", "heldout")}
    ids = {name: [each.instance_id for each in problems] for name, problems in parts.items()}
    assert len({*ids["train"], *ids["heldout"]}) == 400 and 25 < len(ids["heldout"]) < 60
    source.write_text("".join(f"{line}\n" for line in reversed(source.read_text().splitlines())))
    assert run(source, "--out", tmp_path / "again", *MAPPED, *share) == 0
    again = read_problems(tmp_path / "again" / "heldout.parquet")
    assert [each.instance_id for each in again] == ids["heldout"][::-1]
    assert run(source, "--out", tmp_path / "out", *MAPPED, *share, "--split", "heldout=train") == 2
    assert "heldout_share takes 'heldout' out of 'train'" in capsys.readouterr().err


def test_a_bad_row_leaves_what_was_there(tmp_path, capsys):
    out = tmp_path / "out"
    assert run(write_source(tmp_path / "a.jsonl", 3), "--out", out, *MAPPED) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    source = write_source(tmp_path / "a.jsonl", 3)
    source.write_text(source.read_text() + '{"problem": " ", "proof": "\\\\boxed{1}", "hard": 1}\n')
    assert run(source, "--out", out, *MAPPED) == 2
    assert "a.jsonl: line 4: no question" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_source_without_problems_is_refused(tmp_path):
    with pytest.raises(DataError, match="train: no problems"):
        prepare(tmp_path / "out", {"train": Split(instances=[])}, about={})
    assert list((tmp_path / "out").iterdir()) == []


def test_early_answers_are_marked_and_counted_where_nobody_has(tmp_path):
    early = problem(1, steps=("It is \\boxed{2}, I know.\n", "Add one.\n", "So \\boxed{2}."))
    told = problem(2, revealed_at=1)
    manifest = prepare(tmp_path, {"train": Split(instances=[early, told, problem(3, steps=())])}, about={})
    assert [each.revealed_at for each in read_problems(tmp_path / "train.parquet")] == [1, 1, None]
    entry = manifest["splits"]["train"]
    assert (entry["revealed_early"], entry["unhintable"]) == (2, 1)


def test_a_bad_instance_is_named_with_its_row_and_nothing_is_written(tmp_path):
    for bad, complaint in (
        (problem(1, answer=" "), "column 'answer'"),
        (problem(0), "already stands in row 0"),
        (problem(1, revealed_at=3), "'revealed_at': expected an integer from 0 to 2"),
        (problem(1, question="a \ud800"), "column 'question': expected text in valid Unicode"),
    ):
        with pytest.raises(DataError, match=rf"train: row 1 \(counted from 0\).*{complaint}"):
            write_problems(tmp_path / "f", [problem(0), bad], split="train")
    assert list(tmp_path.iterdir()) == []


def test_row_groups_end_by_rows_and_by_size_and_any_way_of_giving_rows_gives_the_same_bytes(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(parquet, "MAX_GROUP_ROWS", 3)
    monkeypatch.setattr(parquet, "MAX_GROUP_CHARS", 200)
    instances = [problem(n) for n in range(7)] + [problem(7, question="long " * 100)]
    write_problems(tmp_path / "list", instances, split="train")
    write_problems(tmp_path / "generator", (each for each in instances), split="train")
    assert file_sha256(tmp_path / "list") == file_sha256(tmp_path / "generator")
    metadata = parquet.pq.ParquetFile(tmp_path / "list").metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [3, 3, 2]
    assert read_problems(tmp_path / "list") == instances


def test_rows_are_copied_with_all_their_columns(tmp_path):
    instances = [problem(n) for n in range(5)]
    write_problems(tmp_path / "all", instances, split="train")
    copy_rows(tmp_path / "all", tmp_path / "some", [True, False, True, False, False])
    assert read_problems(tmp_path / "some") == [instances[0], instances[2]]
    copied = parquet.pq.read_table(tmp_path / "some")
    assert copied.schema == parquet.pq.read_schema(tmp_path / "all")
    assert [row["index"] for row in copied["extra_info"].to_pylist()] == [0, 2]


def test_ids_are_made_of_the_content_and_parts_do_not_run_into_each_other():
    made = content_id("toy", "q", ("a", "b"), "1")
    assert made == content_id("toy", "q", ["a", "b"], "1") and made.startswith("toy-") and len(made) == 20
    others = [
        ("toy", "q", ("ab",), "1"),
        ("toy", "q", ("a", "b"), "2"),
        ("toy", "qa", ("b",), "1"),
        ("x", "q", ("a", "b"), "1"),
    ]
    assert len({made, *(content_id(*other) for other in others)}) == 5


# Tokens


def test_problems_of_too_many_tokens_are_left_out_and_counted(tmp_path, bytes_model):
    # A byte is a token: "What is 9+1?" and a line end, "Add one to 9.\nSo it is \\boxed{10}.", and the end.
    source = write_source(tmp_path / "mine.jsonl", 11)
    limit = ("--tokenizer", bytes_model, "--template", "plain", "--max-tokens")
    assert run(source, "--out", tmp_path / "out", *MAPPED, *limit, 13 + 34 + 1) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    entry = manifest["splits"]["train"]
    assert (entry["rows_read"], entry["problems"], entry["left_out"]) == (11, 10, {"too_many_tokens": 1})
    assert manifest["token_limit"] == {"max_tokens": 48, "tokenizer": bytes_model.name, "template": "plain"}
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [each.answer for each in problems] == [str(n + 1) for n in range(10)]
    assert run(source, "--out", tmp_path / "out", *MAPPED, *limit, 47) == 0
    assert len(read_problems(tmp_path / "out" / "train.parquet")) == 9


def test_gsm8k_takes_a_limit_of_tokens_too(tmp_path, bytes_model, capsys):
    for split in ("train", "test"):
        rows = [{"question": f"{n} boxes?", "answer": f"{n}\n#### {n}"} for n in (7, 70)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ("gsm8k", "--source", tmp_path, "--out", tmp_path / "out", "--template", "plain")
    assert run(*arguments, "--tokenizer", bytes_model, "--max-tokens", 9 + 2 + 24 + 1) == 0
    assert "1 problems of 2 rows" in capsys.readouterr().out
    assert [each.answer for each in read_problems(tmp_path / "out" / "heldout.parquet")] == ["7"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--max-tokens", 9), "give both, or neither"),
        (("--tokenizer", "x"), "give both, or neither"),
        (
            ("--max-tokens", 9, "--tokenizer", "MODEL", "--template", "plane"),
            "template 'plane'",
        ),
        (("--max-tokens", 9, "--tokenizer", "MODEL", "--template", "chat"), "has no chat template"),
        (("--max-tokens", 9, "--tokenizer", "/no/such/model"), "no tokenizer there"),
    ],
)
def test_a_limit_of_tokens_needs_a_tokenizer(tmp_path, bytes_model, capsys, options, complaint):
    source = write_source(tmp_path / "mine.jsonl", 3)
    given = (bytes_model if option == "MODEL" else option for option in options)
    assert run(source, "--out", tmp_path / "out", *MAPPED, *given) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


# Killed


def test_what_a_killed_writer_left_is_removed_and_a_living_ones_is_not(tmp_path):
    (tmp_path / ".file.dead.partial").write_text("half")
    living = PartialFile(tmp_path / "file")
    write_atomically(tmp_path / "file", "whole")
    living.stream.write(b"later")
    living.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "later"


def test_a_preparation_killed_anywhere_and_run_again_gives_the_same_bytes(tmp_path):
    source = write_source(tmp_path / "mine.jsonl", 3000)
    command = [sys.executable, "-m", "seele.cli.main", "data", "prepare", str(source), *MAPPED, "--out"]
    for folder in ("first", "whole"):  # the first may wait for a disk
        start = time.monotonic()
        subprocess.run([*command, str(tmp_path / folder)], check=True, capture_output=True)
        duration_s = time.monotonic() - start
    expected = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    out, rng, killed = tmp_path / "out", random.Random(0), 0
    for attempt in range(6):
        process = subprocess.Popen([*command, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Half of the moments lie where the files are written and change places.
        time.sleep(duration_s * (rng.random() if attempt % 2 else rng.uniform(0.7, 1.0)))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        for path in out.glob("[!.]*"):
            # Whatever has its name is complete.
            assert path.read_bytes() == expected[path.name]
    assert killed
    subprocess.run([*command, str(out)], check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == expected


def test_the_ten_rows_that_are_shipped_are_the_quickstarts_first(tmp_path):
    sample = Path(__file__).parents[2] / "data" / "samples" / "chains.jsonl"
    mapped = ("--map", "steps=steps level=level")
    assert run(sample, "--out", tmp_path / "sample", *mapped) == 0
    assert run("chains", "--out", tmp_path / "chains") == 0
    ours, first = (
        [
            (problem.question, problem.steps, problem.answer, problem.level)
            for problem in read_problems(tmp_path / name / "train.parquet")[:10]
        ]
        for name in ("sample", "chains")
    )
    assert len(ours) == 10 and ours == first
