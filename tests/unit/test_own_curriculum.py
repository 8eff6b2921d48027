"""A curriculum and a selection of one's own: named by their file, checked before a run, blamed for faults."""

import pytest

from seele.config import CurriculumConfig, SeeleConfig, SelectionConfig
from seele.config.settings import HintConfig
from seele.curriculum import build_curriculum, check_curriculum, check_selection
from seele.curriculum.planner import StepPlanner
from seele.curriculum.selection import build_selection
from seele.errors import CheckpointError, ConfigError, PluginError

CURRICULUM = """
import numpy as np
from seele.curriculum import EpochCurriculum


class HardestFirst(EpochCurriculum):
    def __init__(self, rows, *, columns, seed, sign=-1):
        (column,) = columns
        order = np.argsort([sign * row[column] for row in rows], kind="stable")
        super().__init__(len(rows), lambda epoch: order)
"""

SELECTION = """
from seele.curriculum import NoSelection


class Halves(NoSelection):
    def __init__(self, *, low=0.25):
        self.low = low

    def select(self, pass_rates, *, epoch):
        return [name for name, rate in pass_rates.items() if self.low <= rate <= 1 - self.low]
"""
ROWS = [{"level": 1 + index % 4} for index in range(8)]


@pytest.fixture
def own(tmp_path):
    def write(source, name, *changes):
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        file = tmp_path / f"own_{len(list(tmp_path.iterdir()))}.py"
        file.write_text(source)
        return f"{file}:{name}"

    return write


def curriculum(name, **settings):
    return CurriculumConfig(name=name, settings=settings)


def selection(name, **settings):
    return SelectionConfig(name=name, settings=settings)


def test_a_curriculum_of_ones_own_orders_the_problems_and_goes_on_from_its_state(own):
    config = curriculum(own(CURRICULUM, "HardestFirst"))
    check_curriculum(config, ROWS, seed=0, num_problems=4)
    drawn = build_curriculum(config, ROWS, seed=0)
    assert drawn.draw(4) == [3, 7, 2, 6] and drawn.name == "HardestFirst"
    again = build_curriculum(config, ROWS, seed=0)
    again.load_state_dict(drawn.state_dict())
    assert again.draw(4) == drawn.draw(4) == [1, 5, 0, 4]
    assert again.epochs == 1.0 and again.metrics() == {"epoch": 1.0}
    easiest = build_curriculum(curriculum(config.name, sign=1), ROWS, seed=0)
    assert easiest.draw(2) == [0, 4]
    with pytest.raises(CheckpointError, match="'HardestFirst'"):
        again.load_state_dict(build_curriculum(CurriculumConfig(), ROWS, seed=0).state_dict())


DRAW = """
    def draw(self, num_problems, *, postponed=(), pruned=()):
        return %s
"""


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[0] * num_problems", r"draw\(2\) returned 2 problems, first \[0, 0\]"),
        ("[7, 8]", r"first \[7, 8\]; allowed are 2 different problems from 0 to 7"),
        ("[1]", "returned 1 problems"),
        ("[0.5, 1]", r"first \[0.5, 1\]"),
        ("None", r"draw\(2\): TypeError"),
        ("[*postponed, 0][:num_problems]", "none of them postponed"),
    ],
)
def test_problems_that_cannot_be_rolled_out_are_refused(own, returned, message):
    config = curriculum(own(CURRICULUM + DRAW % returned, "HardestFirst"))
    drawn = build_curriculum(config, ROWS, seed=0)
    with pytest.raises(PluginError, match=rf"seele.curriculum.name: .*own_0.py:6: .*{message}"):
        drawn.draw(2, postponed=[4, 5])


def test_a_curriculum_that_does_not_come_back_is_refused_before_the_run(own):
    forgets = "    def state_dict(self):\n        return {'name': self.name}\n"
    name = own(CURRICULUM + forgets, "HardestFirst")
    with pytest.raises(CheckpointError, match=r"expected .*'HardestFirst'"):
        check_curriculum(curriculum(name), ROWS, seed=0, num_problems=2)
    forgets += "\n    def load_state_dict(self, state):\n        pass\n"
    name = own(CURRICULUM + forgets, "HardestFirst")
    with pytest.raises(ConfigError, match="restored from its state, it chooses"):
        check_curriculum(curriculum(name), ROWS, seed=0, num_problems=2)


def test_a_selection_of_ones_own_keeps_the_groups_that_it_names(own):
    config = selection(own(SELECTION, "Halves"))
    check_selection(config, seed=0)
    rates = {"a": 0.0, "b": 0.25, "c": 1.0, "d": 0.5}
    assert build_selection(config, 0).select(rates, epoch=0.0) == ["b", "d"]
    assert build_selection(selection(config.name, low=0.5), 0).select(rates, epoch=0.0) == ["d"]
    seele = SeeleConfig(method="grpo", hints=HintConfig(controller="none", rounds=1), selection=config)
    planner = StepPlanner(seele, ROWS, instance_ids=list("abcdefgh"), batch_size=4, replays=False)
    state = planner.state_dict()
    assert state["selection"] == {"selection": "Halves", "version": 1}
    planner.load_state_dict(state)


def test_groups_that_the_step_does_not_have_are_refused(own):
    config = selection(own(SELECTION, "Halves", ("[name for", "['x'] + [name for")))
    with pytest.raises(PluginError, match=r"seele.selection.name: .*own_0.py:5: select returned problem 'x'"):
        build_selection(config, 0).select({"a": 0.5}, epoch=0.0)


def test_what_a_part_lacks_or_does_not_take_is_named(own):
    with pytest.raises(ConfigError, match=r"own_0.py:2 lacks \['name', 'state_dict', .*'draw', 'observe'\]"):
        build_curriculum(
            curriculum(own("\nclass A:\n    def __init__(self, rows):\n        pass\n", "A")), ROWS, seed=0
        )
    with pytest.raises(ConfigError, match=r"own_1.py:5: building it: TypeError: .*'high'"):
        build_selection(selection(own(SELECTION, "Halves"), high=1), 0)
    with pytest.raises(ConfigError, match=r"seele.curriculum.name: unknown name 'sce'; allowed are"):
        build_curriculum(curriculum("sce"), ROWS, seed=0)
    with pytest.raises(ConfigError, match=r"seele.selection.name: unknown name 'lez'; allowed are"):
        build_selection(selection("lez"), 0)


def test_settings_are_for_parts_of_ones_own():
    with pytest.raises(ConfigError, match=r"seele.curriculum.settings: got {'x': 1}, but .*=sec takes"):
        build_curriculum(curriculum("sec", x=1), ROWS, seed=0)
    with pytest.raises(ConfigError, match=r"seele.selection.settings: got {'x': 1}, but .*=lze takes"):
        build_selection(selection("lze", x=1), 0)
