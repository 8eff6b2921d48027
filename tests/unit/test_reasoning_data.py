"""Problems of the reasoning tasks: levels, splits, worked steps, questions, files."""

import dataclasses
import importlib.metadata
import os
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")

from helpers.commands import exit_status
from seele.config.build import from_mapping
from seele.config.settings import CurriculumConfig
from seele.curriculum import build_curriculum
from seele.data.storage.schema import read_columns, read_problems, write_problems
from seele.data.tasks import reasoning_tasks
from seele.data.tasks.reasoning import CONFIGS, PRESETS, generate_splits
from seele.data.tasks.reasoning_tasks import TASKS, Values, countdown_steps
from seele.errors import ConfigError, DataError, DependencyError
from seele.maths.arithmetic import evaluate, parse
from seele.reward.reasoning import CHECKERS, check_reference

FEW = {"num_train": 4, "num_heldout": 2, "num_harder": 2}


def config_of(task, preset="small", **settings):
    # Two and three houses: larger ones take seconds to draw.
    levels = {"train_levels": (1, 2), "harder_levels": (3,)} if task == "zebra" else {}
    return from_mapping(CONFIGS[task], {**PRESETS[preset][task], **FEW, **levels, **settings}, task)


@pytest.fixture(scope="module")
def splits():
    return {task: generate_splits(task, config_of(task)) for task in TASKS}


def all_of(splits):
    return [instance for instances in splits.values() for instance in instances]


@pytest.mark.parametrize("task", TASKS)
def test_levels_take_turns_and_harder_ones_are_apart(splits, task):
    levels = {split: [instance.level for instance in instances] for split, instances in splits[task].items()}
    trained = [1, 2] if task == "zebra" else [1, 2, 3]
    assert levels == {
        "train": trained * 4,
        "heldout": trained * 2,
        "harder": [len(trained) + 1] * 2,
    }


@pytest.mark.parametrize("task", TASKS)
def test_no_problem_occurs_twice_and_every_reference_answer_is_right(splits, task):
    instances = all_of(splits[task])
    assert len({instance.instance_id for instance in instances}) == len(instances)
    assert len({instance.question for instance in instances}) == len(instances)
    assert {instance.data_source for instance in instances} == {task} <= set(CHECKERS)
    for instance in instances:
        check_reference(instance)


def test_a_countdown_game_occurs_once_whatever_the_order_of_its_numbers():
    drawn = all_of(generate_splits("countdown", config_of("countdown", num_train=40)))
    games = Counter(
        (tuple(sorted(numbers.split())), target)
        for numbers, target in (instance.question.split(" = ") for instance in drawn)
    )
    assert max(games.values()) == 1


SIZES = [
    *(("countdown", 1, 3), ("countdown", 4, 6), ("zebra", 1, 3), ("zebra", 2, 4)),
    *(("arc_1d", 1, 10), ("arc_1d", 2, 20), ("arc_1d", 3, 30), ("arc_1d", 4, 40)),
]


@pytest.mark.parametrize(("task", "level", "size"), SIZES)
def test_a_levels_size_is_secs(task, level, size):
    config = CONFIGS[task]()
    assert config.size_of(level) == size
    puzzle = TASKS[task](7, size=size, values=config.values, compact=False)
    match task:
        case "countdown":
            numbers, target = re.findall(r"\[(.*?)\] into an expression that equals (\d+)", puzzle.question)[
                0
            ]
            assert len(numbers.split(", ")) == size
            assert 100 <= int(target) <= 999 and evaluate(parse(puzzle.answer)) == int(target)
        case "zebra":
            assert f"There are {size} houses" in puzzle.question
            assert len(re.findall(r"^ - ", puzzle.question, re.M)) == size
            assert puzzle.answer in puzzle.question.casefold()
        case _:
            rows = re.findall(r"(?:Input|Output): +(.*)", puzzle.question)
            assert [len(row.split()) for row in rows] == [size] * 7
            assert len(puzzle.answer.split()) == size


@pytest.mark.parametrize("task", TASKS)
def test_a_question_says_where_the_answer_goes_and_has_no_template_around_it(task):
    question = TASKS[task](3, size=10 if task == "arc_1d" else 3, values=Values(), compact=False).question
    assert r"\boxed{}" in question
    assert not re.search("assistant|User:|<think>", question)


def test_compact_questions_are_short(splits):
    longest = {task: max(len(each.question) for each in all_of(splits[task])) for task in TASKS}
    assert longest["countdown"] < 20
    assert longest["arc_1d"] < 180
    for instance in all_of(splits["countdown"]):
        assert len("".join(instance.steps)) < 120


def test_secs_numbers_are_the_default():
    for task, config_class in CONFIGS.items():
        config = config_class(**PRESETS["sec"][task])
        assert (config.num_train, config.num_heldout, config.num_harder) == (10_000, 200, 200)
        assert (config.train_levels, config.harder_levels) == ((1, 2, 3), (4,))
        assert config.num_problems == 3 * 10_200 + 200


STEP = re.compile(r"(-?\d+) ([-+*/]) \(?(-?\d+)\)? = (-?\d+)\. Left: (.*)\.\n")


def test_a_worked_countdown():
    steps = countdown_steps(parse("2 * (5 - 17) + 91 / 7"), [5, 17, 91, 2, 7], compact=False)
    assert steps == (
        "5 - 17 = -12. Left: 91, 2, 7, -12.\n",
        "2 * (-12) = -24. Left: 91, 7, -24.\n",
        "91 / 7 = 13. Left: -24, 13.\n",
        "-24 + 13 = -11. Left: -11.\n",
        r"\boxed{2 * (5 - 17) + 91 / 7}",
    )
    with pytest.raises(ValueError, match="not in list"):
        countdown_steps(parse("2 + 2"), [2, 3], compact=False)


def test_every_countdown_step_follows_from_the_numbers_left_before_it():
    instances = generate_splits("countdown", config_of("countdown", preset="sec"))["train"]
    for instance in instances:
        numbers, target = re.findall(r"\[(.*?)\] into an expression that equals (\d+)", instance.question)[0]
        left = Counter(numbers.split(", "))
        for step in instance.steps[:-1]:
            one, sign, other, value, stated = STEP.fullmatch(step).groups()
            left.subtract([one, other])
            assert min(left.values()) >= 0
            left[value] += 1
            assert evaluate(parse(f"({one}) {sign} ({other})")) == Fraction(value)
            assert Counter(stated.split(", ")) == +left
        assert +left == Counter([target])
        assert instance.steps[-1] == rf"\boxed{{{instance.answer}}}"
        assert len(instance.steps) == len(numbers.split(", ")), "one operation a step, then the expression"
        assert instance.answer not in "".join(instance.steps[:-1])


def test_problems_depend_on_the_seed_and_heldout_ones_not_on_how_many_are_trained_on(splits):
    again = generate_splits("countdown", config_of("countdown", num_train=9))
    assert again["heldout"] == splits["countdown"]["heldout"]
    assert again["harder"] == splits["countdown"]["harder"]
    assert again["train"][:12] == splits["countdown"]["train"]
    other = generate_splits("countdown", config_of("countdown", seed=1))
    assert other["train"] != splits["countdown"]["train"]


def test_bytes_depend_neither_on_the_processes_nor_on_their_hashes(splits, tmp_path):
    """Zebra puzzles are drawn from sets, whose order follows Python's random hashes."""
    settings = [f"--set={name}={value}" for name, value in FEW.items()]
    levels = ["--set=train_levels=[1,2]", "--set=harder_levels=[3]"]
    command = [*("data", "prepare", "zebra", "--preset", "small"), *settings, *levels]
    assert exit_status(*command, "--workers", 1, "--out", tmp_path / "here") == 0
    subprocess.run(
        [sys.executable, "-m", "seele.cli.main", *command, "--workers", "2", "--out", tmp_path / "there"],
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )
    here, there = ((tmp_path / name / "manifest.json").read_bytes() for name in ("here", "there"))
    assert here == there
    assert read_problems(tmp_path / "here" / "train.parquet") == splits["zebra"]["train"]


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("countdown", {"num_train": 0}, "num_train must be >= 1"),
        ("countdown", {"train_levels": (1, 1)}, "distinct numbers"),
        ("countdown", {"harder_levels": (3,)}, "harder_levels must not be training levels"),
        ("countdown", {"harder_levels": (40,)}, "sizes from 2 to 9 can be drawn"),
        ("countdown", {"max_value": 0}, "min_value must be from 1 to max_value"),
        ("zebra", {"first_size": 6}, "sizes from 2 to 7 can be drawn"),
        ("zebra", {"max_value": 9}, "unknown key 'max_value'"),
        ("arc_1d", {"first_size": 4}, "sizes from 8 to 100 can be drawn"),
    ],
)
def test_settings_that_cannot_work_are_refused(task, settings, message):
    with pytest.raises(ConfigError, match=message):
        config_of(task, **settings)


def test_a_level_without_enough_different_problems_is_an_error_that_says_so():
    narrow = config_of("countdown", max_value=2, max_target=4)
    with pytest.raises(DataError, match=r"countdown, level 1: found \d different problems"):
        generate_splits("countdown", dataclasses.replace(narrow, num_train=40))


def test_another_version_of_the_library_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")
    with pytest.raises(DependencyError, match=r"found 9\.9; run: pip install reasoning-gym=="):
        generate_splits("countdown", config_of("countdown"))


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("5 - 17 + 91", "5 - 17 + 91"),
        ("-17 + 5 + 91", "5 - 17 + 91"),
        ("5 + 91 - 18", None),
        ("5 + 91", None),
        ("91 + 17 + 5", None),
    ],
)
def test_an_expression_of_the_library_is_checked_before_it_is_trusted(monkeypatch, expression, answer):
    item = {"metadata": {"numbers": [17, 5, 91], "target": 79, "expression": expression}}
    monkeypatch.setattr(reasoning_tasks, "_dataset", lambda *_: {0: item})
    puzzle = reasoning_tasks.draw_countdown(0, size=3, values=Values(), compact=False)
    assert (puzzle and puzzle.answer) == answer


def test_an_unknown_preset_is_refused(tmp_path, capsys):
    assert exit_status("data", "prepare", "arc_1d", "--out", tmp_path, "--preset", "big") == 2
    assert "allowed are ['sec', 'small']" in capsys.readouterr().err


def test_an_arm_for_each_task_and_level_of_a_mixed_file(splits, tmp_path):
    """SEC-2D: what a step learns from one arm's problems draws more of that arm's problems."""
    mixed = [instance for task in TASKS for instance in splits[task]["train"]]
    write_problems(tmp_path / "train.parquet", mixed, split="train")
    settings = CurriculumConfig(name="sec", columns=("data_source", "level"), temperature=0.05)
    rows = read_columns(tmp_path / "train.parquet", settings.columns)
    curriculum = build_curriculum(settings, rows, seed=0)
    arms = {f"data_source={task},level={level}" for task in TASKS for level in (1, 2, 3)}
    arms.remove("data_source=zebra,level=3")
    names = [name.removeprefix("q/") for name in curriculum.metrics() if name.startswith("q/")]
    assert set(names) == arms and len(names) == 8
    hard = [
        problem for problem, row in enumerate(rows) if (row["data_source"], row["level"]) == ("arc_1d", 3)
    ]
    curriculum.observe(dict.fromkeys(hard, 0.9))
    drawn = curriculum.draw(4)
    assert set(drawn) == set(hard)
