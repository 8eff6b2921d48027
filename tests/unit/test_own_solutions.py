"""Worked solutions in a model's own words, from a made-up model."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import pyarrow as pa
import pyarrow.parquet as pq

from helpers.hint_search import MadeUpModel, drawer
from seele.data.own_solutions import continued
from seele.data.steps.hint_units import most_hint_steps
from seele.data.storage.files import file_sha256
from seele.data.storage.parquet import set_column
from seele.data.storage.schema import read_problems, write_problems
from seele.errors import CheckpointError, ConfigError
from seele.records import Instance
from seele_eval import hint_search, own_solutions


def instance(name, answer="7"):
    steps = ("So 3.\n", "And 4.\n", f"All in all \\boxed{{{answer}}}.")
    return Instance(
        instance_id=name, data_source="made", question=f"{name}?", steps=steps, answer=answer, level=2
    )


class Model(MadeUpModel):
    right = "I say 3 + 4.\nSo \\boxed{7}."


@pytest.fixture
def draw(tmp_path, monkeypatch):
    problems = [instance(name) for name in ("easy", "mid", "never")]
    return drawer(own_solutions, problems, tmp_path / "own.parquet", monkeypatch)


def test_a_hint_ends_before_the_only_box():
    early = ("The answer is \\boxed{5}.\n", "Let us see.\n", "So it is.")
    assert most_hint_steps(early) == 0
    assert most_hint_steps(("a.\n", "b.\n", "c: \\boxed{5}.\n", "Remark.")) == 2
    assert most_hint_steps(("a.\n", "b.")) == 1 and most_hint_steps(()) == 0


def test_a_blank_that_the_response_begins_with_is_not_doubled():
    steps = continued(("We get 5. ",), " Then 6. So \\boxed{11}.")
    assert steps[0] == "We get 5." and "".join(steps) == "We get 5. Then 6. So \\boxed{11}."
    assert continued(("One.\n",), "\nTwo.") == ("One.\n", "\nTwo.")


def test_each_problem_is_asked_behind_as_short_a_hint_as_it_needs(draw):
    model = Model(easy=0, mid=2, never=9)
    said, out = draw(model)
    assert "3 problems, 2 with the model's own solution, 1 of them without a hint" in said
    asked = [*dict.fromkeys(model.asked)]
    assert asked == [
        *(("easy", 0), ("mid", 0), ("never", 0)),
        *(("mid", 1), ("never", 1)),
        *(("mid", 2), ("never", 2)),
    ]
    easy, mid, never = read_problems(out)
    assert easy.steps == ("I say 3 + 4.\n", "So \\boxed{7}.")
    assert mid.steps == ("So 3.\n", "And 4.\n", "I say 3 + 4.\n", "So \\boxed{7}.")
    assert never == instance("never")
    # Another solution is another problem for a controller that remembers.
    assert len({"easy", "mid", easy.instance_id, mid.instance_id}) == 4
    shares = pq.read_table(out).column(own_solutions.OWN_SHARE).to_pylist()
    own, hint = len("I say 3 + 4.\nSo \\boxed{7}."), len("So 3.\nAnd 4.\n")
    assert shares == pytest.approx([1.0, own / (own + hint), 0.0])
    assert f"{sum(shares) / 3:.1%}" in said


def test_two_problems_that_get_the_same_solution_stay_two(draw, tmp_path):
    twins = [replace(instance("easy"), instance_id=name) for name in ("one", "two")]
    write_problems(tmp_path / "problems.parquet", twins, split="train")
    first, second = read_problems(draw(Model(easy=0))[1])
    assert second == replace(first, instance_id=f"{first.instance_id}-2")


def test_further_columns_stay(draw, tmp_path):
    file = tmp_path / "problems.parquet"
    topics, sources = ["sums", None, "sets"], [{"page": 1}, {"page": 2}, None]
    set_column(file, file, pa.field("topic", pa.string()), topics)
    set_column(file, file, pa.field("source", pa.struct([("page", pa.int64())])), sources)
    _, out = draw(Model(easy=0, mid=2, never=9))
    table = pq.read_table(out)
    assert table.column("topic").to_pylist() == topics and table.column("source").to_pylist() == sources
    assert read_problems(out)[0].steps == ("I say 3 + 4.\n", "So \\boxed{7}.")


def test_the_grader_decides_which_response_is_right(draw, tmp_path):
    problem = replace(instance("easy", "x \\in [1,2]"), instance_id="easy")
    write_problems(tmp_path / "problems.parquet", [problem], split="train")

    class Interval(Model):
        right = "Mine: \\boxed{[1,2]}."

    assert "0 with the model's own solution" in draw(Interval(easy=0))[0]
    (tmp_path / "own.parquet.samples.jsonl").unlink()
    said, out = draw(Interval(easy=0), "--grader", "strict+")
    assert "1 with the model's own solution" in said
    assert read_problems(out)[0].steps == ("Mine: \\boxed{[1,2]}.",)


def test_several_copies_of_the_model_draw_more_at_a_time(draw, monkeypatch):
    model, started = Model(easy=0, mid=0, never=0), []
    monkeypatch.setattr(hint_search, "AT_A_TIME", 1)
    monkeypatch.setattr(hint_search, "visible_gpus", lambda: ["0", "1", "2", "3"])

    def completion(folder, settings, *, copies):
        def complete(requests):
            started.append((copies, settings.tensor_parallel, len(requests)))
            return model(requests)

        return complete

    monkeypatch.setattr(hint_search, "completion", completion)
    draw(None, "--tensor-parallel", "2", "--samples", "5")
    assert started == [(2, 2, 10), (2, 2, 5)], "two problems, then the third"


def test_a_killed_command_goes_on_and_other_conditions_are_refused(draw, tmp_path):
    _, out = draw(Model(easy=0, mid=2, never=9))
    first, ledger = out.read_bytes(), tmp_path / "own.parquet.samples.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    # All of the first round, and half a line of the second.
    ledger.write_text("".join(lines[:4]) + lines[4][:5])
    model = Model(easy=0, mid=2, never=9)
    draw(model)
    assert out.read_bytes() == first
    assert {hint for _, hint in model.asked} == {1, 2}
    with pytest.raises(ConfigError, match="were drawn with other seed, temperature; name another --out"):
        draw(model, "--seed", "1", "--temperature", "0.5")
    with pytest.raises(ConfigError, match="were drawn with other grader; name another --out"):
        draw(model, "--grader", "strict+")
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "another"}')
    with pytest.raises(ConfigError, match="were drawn with other files; name another --out"):
        draw(model)
    (tmp_path / "tokenizer_config.json").unlink()
    done = Model(easy=0, mid=2, never=9)
    draw(done)
    assert done.asked == []
    # Older ledgers record less.
    head, *others = ledger.read_text().splitlines(keepends=True)
    conditions = json.loads(head)
    assert (conditions.pop("files"), conditions.pop("template_text")) == ({}, "{question}\n")
    assert conditions.pop("grader") == "mathruler"
    ledger.write_text("".join([json.dumps(conditions) + "\n", *others]))
    draw(done)
    assert done.asked == []
    # A template's file may have another text.
    ledger.write_text("".join([json.dumps(conditions | {"template_text": "Q: {question}"}) + "\n", *others]))
    with pytest.raises(ConfigError, match="were drawn with other template_text; name another --out"):
        draw(done)
    # The path does not decide, unless the text is unknown.
    (tmp_path / "mine.txt").write_text("Q: {question}")
    named = {"template": "elsewhere.txt", "template_text": "Q: {question}"}
    ledger.write_text("".join([json.dumps(conditions | named) + "\n", *others]))
    draw(done, "--template", str(tmp_path / "mine.txt"))
    ledger.write_text("".join([json.dumps(conditions | {"template": "elsewhere.txt"}) + "\n", *others]))
    with pytest.raises(ConfigError, match="were drawn with other template, template_text; name another"):
        draw(done, "--template", str(tmp_path / "mine.txt"))
    ledger.write_text("".join([head, "{\n", *others]))
    with pytest.raises(CheckpointError, match=r"own.parquet.samples.jsonl: is damaged .*; remove"):
        draw(done)


@pytest.mark.parametrize("seed", ["-1", "4294967296"])
def test_a_seed_is_one_that_the_engine_takes(draw, seed, capsys):
    with pytest.raises(SystemExit):
        draw(Model(), "--seed", seed)
    assert "--seed: must be from 0 to 4294967295" in capsys.readouterr().err


def test_greedy_samples_that_would_be_the_same_are_refused(draw):
    with pytest.raises(ConfigError, match="--temperature 0 gives one sample, not 2; set --samples 1"):
        draw(Model(), "--temperature", "0")


@pytest.mark.parametrize("temperature", ["nan", "-1"])
def test_a_temperature_is_a_finite_number(draw, temperature, capsys):
    with pytest.raises(SystemExit):
        draw(Model(), "--temperature", temperature)
    assert "--temperature: must be 0 (greedy) or above" in capsys.readouterr().err


def test_samples_of_the_filter_come_first(draw, tmp_path):
    folder = tmp_path / "samples"
    folder.mkdir()
    sample = {
        "benchmark": "problems",
        "temperature": 0.6,
        "level": 2,
        "question": "q",
        "answer": "7",
        "extracted": "7",
        "finish": "stop",
        "response_tokens": 3,
    }
    rows = [
        {**sample, "instance_id": "easy", "sample": 0, "text": "no", "correct": False, "reason": "wrong"},
        {
            **sample,
            "instance_id": "easy",
            "sample": 1,
            "text": "Mine: \\boxed{7}.",
            "correct": True,
            "reason": "correct",
        },
        {**sample, "instance_id": "mid", "sample": 0, "text": "no", "correct": False, "reason": "wrong"},
        {**sample, "instance_id": "other", "sample": 0, "text": "7", "correct": True, "reason": "correct"},
    ]

    def write(**conditions):
        lines = [json.dumps(each) for each in ({"conditions": conditions}, *rows)]
        (folder / "predictions.jsonl").write_text("\n".join(lines) + "\n")

    model = Model(easy=0, mid=1, never=9)
    drawn_here = {
        "weights_sha256": {"model.safetensors": file_sha256(tmp_path / "weights")},
        "template": "plain",
        "template_text": "{question}\n",
        "stop": [],
        "chat": {"system": None, "kwargs": {}},
        "answers": "box",
        "grader": "mathruler",
        "temperature": 0.6,
    }
    for difference, said in (
        ({"weights_sha256": {"model.safetensors": "other"}}, r"weights was \['other'\] and is \['"),
        (
            {"template": "mine.txt", "template_text": "Q: {question}"},
            r"template was 'Q: \{question\}' and is",
        ),
        ({"template": "chat", "template_text": None}, "template was 'chat' and is"),
        ({"chat": {"system": "Be brief.", "kwargs": {}}}, "chat was .*Be brief"),
        ({"stop": ["User:"]}, r"stop was \['User:'\] and is \[\]"),
        ({"answers": "box-or-last"}, "answers was 'box-or-last' and is 'box'"),
        ({"grader": "strict+"}, r"grader was 'strict\+' and is 'mathruler'"),
    ):
        write(**drawn_here | difference)
        with pytest.raises(ConfigError, match=f"samples drawn otherwise: {said}"):
            draw(model, "--samples-dir", str(folder))
    assert model.asked == [] and not (tmp_path / "own.parquet.samples.jsonl").exists()
    write(**drawn_here)
    said, out = draw(model, "--samples-dir", str(folder))
    assert "3 problems, 2 with the model's own solution, 1 of them without a hint" in said
    assert [*dict.fromkeys(model.asked)] == [("never", 0), ("mid", 1), ("never", 1), ("never", 2)]
    assert read_problems(out)[0].steps == ("Mine: \\boxed{7}.",)
    # A killed search has the later hints in its ledger, not the filter's samples.
    ledger = out.with_name("own.parquet.samples.jsonl")
    whole, before = ledger.read_text(), out.read_bytes()
    lines = whole.splitlines(keepends=True)
    first = next(place for place, line in enumerate(lines) if line.startswith('["mid", 1'))
    ledger.write_text("".join(lines[:first]) + '["mid", 1, null]\n')
    later = Model(easy=0, mid=2, never=9)
    draw(later, "--samples-dir", str(folder))
    assert [*dict.fromkeys(later.asked)] == [("never", 1), ("mid", 2), ("never", 2)]
    ledger.write_text(whole)
    out.write_bytes(before)
    # Samples from before anything was recorded.
    write()
    _, again = draw(Model(easy=0, mid=1, never=9), "--samples-dir", str(folder))
    assert again.read_bytes() == out.read_bytes()
