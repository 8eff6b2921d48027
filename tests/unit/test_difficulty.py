"""Counts of correct samples: drawn from a stand-in server, kept, and filtered by any band."""

import json
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.cli.main import main
from seele.data.difficulty import Band, Count, filter_file, problem_key, read_counts, write_counts
from seele.data.storage.files import file_sha256
from seele.data.storage.schema import read_problems, write_problems
from seele.errors import ConfigError, DataError
from seele.records import Instance
from seele_eval.difficulty import parse, sample

SAMPLES = 4


def problem(number, **changes):
    made = Instance(
        instance_id=f"sums-{number}",
        data_source="sums",
        question=f"What is {number} + 1?",
        steps=("Add.\n", f"\\boxed{{{number + 1}}}"),
        answer=str(number + 1),
    )
    return replace(made, **changes)


PROBLEMS = [problem(number) for number in range(10)]


def run(*arguments):
    """Exit status of ``seele ARGUMENTS``."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def file(tmp_path):
    """A file of ten problems, of which number n has n % 5 correct samples, and its counts."""
    path = tmp_path / "in.parquet"
    write_problems(path, PROBLEMS, split="train")
    counts = [
        Count(
            problem=problem_key(each.question, each.answer),
            instance_id=each.instance_id,
            correct=number % 5,
            truncated=SAMPLES if number == 5 else 0,
        )
        for number, each in enumerate(PROBLEMS)
    ]
    write_counts(tmp_path / "counts.jsonl", counts, samples=SAMPLES, conditions={"temperature": 0.6})
    return path


def kept(path):
    return [int(each.answer) - 1 for each in read_problems(path)]


@pytest.mark.parametrize(
    ("band", "numbers"),
    [("0:0", [0, 5]), ("4:4", [4, 9]), ("1:3", [1, 2, 3, 6, 7, 8]), ("0:4", list(range(10)))],
)
def test_a_band_keeps_both_its_ends_and_the_order(file, tmp_path, band, numbers):
    filter_file(file, tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band.parse(band))
    assert kept(tmp_path / "out.parquet") == numbers


def test_the_manifest_says_what_was_kept_and_under_which_conditions(file, tmp_path):
    said = filter_file(file, tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 0))
    assert "2 of 10 problems have 0 to 0 correct of 4" in said
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert manifest["by_correct_samples"] == {"0": 2, "1": 2, "2": 2, "3": 2, "4": 2}
    assert (manifest["problems"], manifest["kept"], manifest["samples"]) == (10, 2, 4)
    assert manifest["kept_with_all_samples_truncated"] == 1
    assert manifest["conditions"] == {"temperature": 0.6}
    assert manifest["sha256"] == file_sha256(tmp_path / "out.parquet")
    assert manifest["source"]["sha256"] == file_sha256(file)


def test_all_columns_stay_and_the_same_band_gives_the_same_bytes(file, tmp_path):
    table = pq.read_table(file)
    table = table.append_column("topic", pa.array([f"topic {n}" for n in range(10)]))
    pq.write_table(table, file)
    for out in ("a", "b"):
        filter_file(file, tmp_path / f"{out}.parquet", tmp_path / "counts.jsonl", Band(0, 0))
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == table.take([0, 5]).to_pylist()
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_counts_hold_for_the_problem_with_any_solution(file, tmp_path):
    annotated = [replace(each, instance_id=f"new-{each.instance_id}", steps=("Other.",)) for each in PROBLEMS]
    write_problems(tmp_path / "annotated.parquet", annotated[3:], split="train")
    filter_file(
        tmp_path / "annotated.parquet", tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 1)
    )
    assert kept(tmp_path / "out.parquet") == [5, 6]


def test_a_problem_without_samples_is_an_error(file, tmp_path):
    write_problems(tmp_path / "more.parquet", [*PROBLEMS, problem(11)], split="train")
    with pytest.raises(DataError, match=r"1 problems, the first of them 'sums-11', have no samples"):
        filter_file(
            tmp_path / "more.parquet", tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 0)
        )
    assert not (tmp_path / "out.parquet").exists()


def test_an_empty_band_is_an_error_that_shows_where_the_problems_are(tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS[:1], split="train")
    key = problem_key(PROBLEMS[0].question, PROBLEMS[0].answer)
    count = Count(problem=key, instance_id="sums-0", correct=2, truncated=0)
    write_counts(tmp_path / "counts.jsonl", [count], samples=2, conditions={})
    with pytest.raises(DataError, match="0: 0, 1: 0, 2: 1"):
        filter_file(tmp_path / "in.parquet", tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 1))


@pytest.mark.parametrize("text", ["", "0", "1:0", "-1:2", "a:b", "0:1:2", "0.5:1"])
def test_a_band_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="expected LEAST:MOST"):
        Band.parse(text)


def test_a_band_beyond_the_samples_is_refused(file, tmp_path):
    with pytest.raises(ConfigError, match="4 samples of each problem"):
        filter_file(file, tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 5))


@pytest.mark.parametrize("line", ["[]", "{", '{"problem": "p"}', "null"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_damaged_counts_file_is_named(file, tmp_path, line, place):
    path = tmp_path / "counts.jsonl"
    lines = path.read_text().splitlines()
    lines[place] = line
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=f"counts.jsonl: line {place + 1}"):
        read_counts(path)


@given(st.text(), st.text(), st.text(), st.text())
def test_problems_that_differ_have_different_keys(question, answer, other_question, other_answer):
    are_equal = (question, answer) == (other_question, other_answer)
    keys = problem_key(question, answer), problem_key(other_question, other_answer)
    assert (keys[0] == keys[1]) is are_equal
    assert problem_key(question + "1", "2") != problem_key(question, "12")


# Sampling


def answer_some(prompt, seed):
    """Right for even numbers whatever the seed, and for the others about every second time."""
    number = int(re.search(r"What is (\d+)", prompt)[1])
    return f"\\boxed{{{number + 1 if number % 2 == 0 or seed % 2 else -1}}}"


def sampler_arguments(server, folder, *more):
    return [
        *(str(folder / "in.parquet"), "--out", str(folder / "samples"), "--model", "stand-in"),
        *("--server", server.url, "--template", "plain", *more),
    ]


def test_only_boxes_count_for_a_filter_as_in_training_whatever_the_template():
    argv = ["in.parquet", "--out", "out", "--model", "m", "--template", "chat"]
    assert parse(argv)[1].answers == "box"
    assert parse([*argv, "--answers", "box-or-last"])[1].answers == "box-or-last"


def test_samples_are_counted_with_their_conditions(server, tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    server.answer = answer_some
    sample(*parse(sampler_arguments(server, tmp_path)))
    counts = read_counts(tmp_path / "samples" / "counts.jsonl")
    assert counts.samples == 8 and len(server.asked) == 80
    assert {each["temperature"] for each in server.asked} == {0.6}
    assert {each["max_tokens"] for each in server.asked} == {2048}
    assert counts.conditions["temperature"] == 0.6 and counts.conditions["max_tokens"] == 2048
    by_id = {count.instance_id: count.correct for count in counts.by_problem.values()}
    assert all(by_id[f"sums-{number}"] == 8 for number in range(0, 10, 2))
    odd = {each["prompt"]: 0 for each in server.asked}
    for each in server.asked:
        odd[each["prompt"]] += each["seed"] % 2
    assert all(by_id[f"sums-{number}"] == odd[f"What is {number} + 1?\n"] for number in range(1, 10, 2))
    assert any(0 < by_id[f"sums-{number}"] < 8 for number in range(1, 10, 2))


def test_more_samples_and_problems_cost_only_themselves(server, tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS[:5], split="train")
    sample(*parse(sampler_arguments(server, tmp_path, "--samples", "2")))
    sample(*parse(sampler_arguments(server, tmp_path, "--samples", "2")))
    assert len(server.asked) == 10
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    sample(*parse(sampler_arguments(server, tmp_path, "--samples", "3")))
    assert len(server.asked) == 30
    fewer = parse(sampler_arguments(server, tmp_path, "--samples", "1"))
    sample(*fewer)
    assert len(server.asked) == 30
    assert read_counts(tmp_path / "samples" / "counts.jsonl").samples == 1


def test_counts_of_other_samples_do_not_outlive_them(server, tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS[:2], split="train")
    sample(*parse(sampler_arguments(server, tmp_path, "--samples", "1")))
    server.misbehave = lambda number: (400, "no more")
    with pytest.raises(ConfigError, match="no more"):
        sample(*parse(sampler_arguments(server, tmp_path, "--samples", "1", "--max-tokens", "9")))
    assert not (tmp_path / "samples" / "counts.jsonl").exists()
    assert (tmp_path / "samples" / "earlier_1" / "counts.jsonl").is_file()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--temperature", "0"), "gives one sample, not 8"),
        (("--limit", "3"), "the whole file and nothing else"),
        (("--benchmarks", "gsm8k"), "the whole file and nothing else"),
    ],
)
def test_what_is_no_sampling_of_a_file_is_refused(server, tmp_path, more, complaint):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    with pytest.raises(ConfigError, match=complaint):
        sample(*parse(sampler_arguments(server, tmp_path, *more)))
    assert server.asked == []


# The command


def test_one_command_samples_and_filters_and_another_band_samples_nothing(server, tmp_path, capfd):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    server.answer = lambda prompt, seed: answer_some(prompt, 0)
    command = ("data", "filter", tmp_path / "in.parquet", "--out", tmp_path / "hard.parquet")
    sampling = ("--model", "stand-in", "--samples", 2, "--", "--server", server.url, "--template", "plain")
    assert run(*command, *sampling) == 0
    assert kept(tmp_path / "hard.parquet") == [1, 3, 5, 7, 9]
    assert len(server.asked) == 20
    assert "5 of 10 problems have 0 to 0 correct of 2" in capfd.readouterr().out
    easy = ("data", "filter", tmp_path / "in.parquet", "--out", tmp_path / "easy.parquet", "--band", "1:2")
    assert run(*easy) == 0
    assert kept(tmp_path / "easy.parquet") == [0, 2, 4, 6, 8]
    assert len(server.asked) == 20


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ((), "no such file; name --model"),
        (("--samples", 4), "nothing is sampled without --model"),
        (("--", "--template", "plain"), "nothing is sampled without --model"),
        (("--model", "m", "--band", "0:9"), "8 samples of each problem"),
        (("--model", "m", "--band", "9"), "expected LEAST:MOST"),
    ],
)
def test_what_the_user_gets_wrong_ends_with_one_line(tmp_path, capsys, more, complaint):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    command = ("data", "filter", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    assert run(*command, *more) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1


def test_where_sampling_fails_nothing_is_filtered(tmp_path, capfd):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    command = ("data", "filter", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    assert run(*command, "--model", tmp_path / "absent") == 2
    assert "no such model folder" in capfd.readouterr().err
    assert not (tmp_path / "out.parquet").exists()
