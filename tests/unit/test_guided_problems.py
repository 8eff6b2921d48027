"""Guided copies of problems, from a made-up model."""

from dataclasses import replace

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import pyarrow as pa

from helpers.hint_search import MadeUpModel, drawer
from seele.data.storage.parquet import set_column
from seele.data.storage.schema import content_id, read_columns, read_problems
from seele.errors import ConfigError
from seele.records import Instance, Milestone
from seele_eval import guided_problems
from seele_eval.guided_problems import guided_copy, steps_within

NAMES = ("easy", "one", "two", "never", "blunt")
# Ten characters a step: a quarter is two of eight steps, and none of three.
STEPS = {name: tuple(f"Step {i} is\n"[:10] for i in range(3 if name == "blunt" else 8)) for name in NAMES}


def instance(name):
    return Instance(
        instance_id=name, data_source="made", question=f"{name}?", steps=STEPS[name], answer="7", level=2
    )


class Model(MadeUpModel):
    """Sees the steps in the question."""

    def __init__(self, **steps_needed):
        super().__init__(**{"blunt": 9, "never": 9, **steps_needed})

    def read(self, request):
        assert (request.steps, request.hint_steps) == ((), 0), "the assistant's turn has no hint"
        name, _, said = request.question.partition("?")
        return name, said.count("Step")


@pytest.fixture
def draw(tmp_path, monkeypatch):
    return drawer(guided_problems, map(instance, NAMES), tmp_path / "guided.parquet", monkeypatch)


def test_a_quarter_of_the_characters_is_the_most():
    assert steps_within(STEPS["one"], 0.25) == 2
    assert steps_within(STEPS["one"], 0.249) == 1
    assert steps_within(STEPS["blunt"], 0.25) == 0
    assert steps_within(("long, long step\n", "7"), 1.0) == 1, "the whole solution is no hint"
    assert steps_within((), 0.25) == 0


def test_what_is_not_solved_has_a_copy_with_as_short_a_hint_as_it_needs(draw):
    model = Model(easy=0, one=1, two=2)
    said, out = draw(model)
    assert [*dict.fromkeys(model.asked)] == [
        *((name, 0) for name in NAMES),
        *((name, 1) for name in ("one", "two", "never")),
        *((name, 2) for name in ("two", "never")),
    ]
    problems = read_problems(out)
    assert [each for each in problems if each.instance_id in NAMES] == [*map(instance, NAMES)]
    guides = [row["guided_by"] for row in read_columns(out, ["guided_by"])]
    assert guides == [0, 0, 1, 0, 2, 0, 2, 0]
    assert "5 problems, 3 of them with a guided copy" in said
    assert "2 with the shortest hint that had a right sample, 1 with the longest, as none had" in said
    assert (
        "without one, 1 solved without a hint, 0 without a solution of several steps, and 1 whose first "
        "step is more than 25% of the solution" in said
    )


def test_a_copy_has_the_further_columns_of_its_problem(draw, tmp_path):
    file = tmp_path / "problems.parquet"
    set_column(file, file, pa.field("topic", pa.string()), NAMES)
    _, out = draw(Model(easy=0, one=1, two=2))
    topics = [row["topic"] for row in read_columns(out, ["topic"])]
    assert topics == ["easy", "one", "one", "two", "two", "never", "never", "blunt"]


def test_a_copy_differs_in_question_and_id(draw):
    _, out = draw(Model(easy=0, one=1, two=2), "--request", "{question} Know {hint}!")
    copy = read_problems(out)[2]
    assert copy.question == "one? Know Step 0 is!"
    assert (copy.steps, copy.answer, copy.level) == (STEPS["one"], "7", 2)
    assert copy.instance_id == content_id("made", copy.question, copy.steps, copy.answer)
    assert copy == guided_copy(instance("one"), 1, "{question} Know {hint}!")


def test_a_copy_has_the_milestones_that_its_question_does_not_state():
    own = (Milestone("4", 9), Milestone("5", 20), Milestone("7", 80))
    copy = guided_copy(replace(instance("one"), milestones=own), 1, "{question} Know {hint}!")
    assert copy.milestones == own[1:]
    assert guided_copy(instance("one"), 1, "{question} Know {hint}!").milestones == (Milestone("7", 80),)


def test_a_copy_has_steps_of_the_solution_where_the_file_has_tiers_too():
    with_tiers = replace(instance("one"), tiers=("concept",))
    request = "{question} Know {hint}!"
    assert guided_copy(with_tiers, 2, request).question == guided_copy(instance("one"), 2, request).question


def test_a_killed_command_goes_on_and_other_conditions_are_refused(draw, tmp_path):
    needed = {"easy": 0, "one": 1, "two": 2}
    _, out = draw(Model(**needed))
    first, ledger = out.read_bytes(), tmp_path / "guided.parquet.samples.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    # All of the first round, and half a line of the second.
    ledger.write_text("".join(lines[:6]) + lines[6][:5])
    model = Model(**needed)
    draw(model)
    assert out.read_bytes() == first
    assert {hint for _, hint in model.asked} == {1, 2}
    with pytest.raises(ConfigError, match="were drawn with other longest, request; name another --out"):
        draw(model, "--longest", "0.5", "--request", "{question} {hint}")
    done = Model(**needed)
    draw(done)
    assert done.asked == []


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--longest", "0", "must be above 0 and at most 1, got 0"),
        ("--request", "{hint}", "must contain {question}, and {hint} exactly once"),
        ("--request", "{question}{hint}{hint}", "must contain {question}, and {hint} exactly once"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_drawn(draw, capsys, option, value, message):
    model = Model()
    with pytest.raises(SystemExit):
        draw(model, option, value)
    assert message in capsys.readouterr().err and model.asked == []


def test_the_command_hands_its_options_on(monkeypatch):
    from seele.cli import data_hint_search
    from seele.cli.main import main

    ran = []
    monkeypatch.setattr(data_hint_search, "run_sampler", lambda *given: ran.append(given))
    command = ["data", "guide", "a.parquet", "--model", "m", "--out", "b.parquet", "--", "--longest", "0.1"]
    with pytest.raises(SystemExit):
        main(command)
    arguments = ["a.parquet", "--model", "m", "--out", "b.parquet", "--longest", "0.1"]
    assert ran == [("seele_eval.guided_problems", arguments)]
