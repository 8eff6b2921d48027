"""A hint controller of one's own: named by its file, checked before a run, and blamed for its faults."""

import json

import pytest
from typer.testing import CliRunner

from seele.cli.main import app
from seele.config import HintConfig, SeeleConfig
from seele.errors import CheckpointError, ConfigError, PluginError
from seele.hints import CONTROLLERS, aims_at_target, build_controller, check_controller
from seele.records import RoundRequest

# As docs/extending.md shows one: state, settings and all in 25 lines.
GOOD = """
from seele.hints import SequentialController, nearest_legal


class Stairs(SequentialController):
    def __init__(self, *, target_accuracy, step=0.25):
        self.target, self.step, self.rates = target_accuracy, step, {}

    def next_hint_ratio(self, instance_id, *, round_index, legal_ratios):
        return nearest_legal(self.rates.get(instance_id, 0.5), legal_ratios)

    def observe(self, instance_id, *, hint_ratio, num_correct, num_rollouts):
        is_hard = num_correct / num_rollouts < self.target
        self.rates[instance_id] = hint_ratio + (self.step if is_hard else -self.step)

    def state_dict(self):
        return {**super().state_dict(), "rates": dict(self.rates)}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.rates = dict(state["rates"])
"""
LEGAL = (0.0, 0.25, 0.5, 0.75)


@pytest.fixture
def own(tmp_path):
    """The name of a controller with this source, whose class is ``Stairs``."""

    def write(source=GOOD, **changes):
        for old, new in changes.values():
            assert old in source
            source = source.replace(old, new)
        file = tmp_path / f"own_{len(list(tmp_path.iterdir()))}.py"
        file.write_text(source)
        return f"{file}:Stairs"

    return write


def build(name, **settings):
    return build_controller(name, rounds=2, rollouts_per_round=4, **settings)


def settings(name, **hints):
    return SeeleConfig(method="seele", hints=HintConfig(controller=name, **hints))


def test_a_controller_of_ones_own_learns_saves_and_goes_on(own):
    name = own()
    check_controller(settings(name))
    controller = build(name, step=0.5)
    assert controller.next_hint_ratio("p", round_index=0, legal_ratios=LEGAL) == 0.5
    controller.observe("p", hint_ratio=0.5, num_correct=4, num_rollouts=4)
    controller.end_visit("p")
    assert controller.next_hint_ratio("p", round_index=0, legal_ratios=LEGAL) == 0.0
    assert controller.name == "Stairs" and controller.curves() == [] and controller.metrics() == {}
    state = json.loads(json.dumps(controller.state_dict()))
    again = build(name)
    again.load_state_dict(state)
    assert again.state_dict() == state == {"controller": "Stairs", "version": 1, "rates": {"p": 0.0}}
    with pytest.raises(CheckpointError, match=r"expected .*'Stairs'.*got .*'paper'"):
        again.load_state_dict(build("paper").state_dict())


def test_its_settings_are_its_own_and_checked(own):
    with pytest.raises(ConfigError, match=r"unknown setting 'stp' of .*; allowed are \['step'\]"):
        build(own(), stp=1)
    with pytest.raises(ConfigError, match=r"own_1.py:5: building it: ZeroDivisionError: .*own_1.py:7"):
        build(own(a=("self.target,", "1 / 0\n        self.target,")))


def test_capabilities_are_class_attributes(own):
    name = own(a=("    def __init__", "    aims_at_target = False\n\n    def __init__"))
    assert not aims_at_target(name) and aims_at_target(own())
    assert {name for name in CONTROLLERS if not aims_at_target(name)} == {
        *("none", "fixed", "uniform", "uft", "prefix_rft")
    }
    with pytest.raises(
        ConfigError, match=r"seele.hints.round_quorum: got 0.5, but below 1 needs a controller"
    ):
        check_controller(settings(name, round_quorum=0.5))
    counts = own(a=("    def __init__", "    tolerates_partial_rounds = True\n\n    def __init__"))
    check_controller(settings(counts, round_quorum=0.5))
    check_controller(settings("bayes", round_quorum=0.5))
    with pytest.raises(ConfigError, match="round_quorum"):
        check_controller(settings("paper", round_quorum=0.5))


def test_what_it_lacks_is_named_with_its_place(own):
    with pytest.raises(ConfigError, match=r"seele.hints.controller: .*own_0.py:5 lacks \['observe'\]"):
        build(own(a=("def observe", "def notice")))
    with pytest.raises(ConfigError, match=r"own_1.py:2 lacks \['tolerates_partial_rounds', .*'plan_rounds'"):
        build(own("\nclass Stairs:\n    name = 'x'\n"))
    with pytest.raises(ConfigError, match="is 3; expected a class"):
        build(own("Stairs = 3"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"rates": dict(self.rates)', '"rates": {}', "restored from its state, the controller plans"),
        ('dict(state["rates"])', "{}", "load_state_dict does not restore what state_dict returned"),
        ('dict(state["rates"])', 'state["rate"]', r"load_state_dict: KeyError: 'rate' \(.*own_0.py:21\)"),
        ('"rates": dict(self.rates)', '"rates": {1, 2}', "state_dict, which must be JSON: TypeError"),
        ("nearest_legal(self", "__import__('random').random() or (self", "is not one of the legal ratios"),
    ],
)
def test_what_would_not_come_back_from_a_checkpoint_is_refused_before_the_run(own, old, new, message):
    with pytest.raises(
        (ConfigError, PluginError), match=rf"seele.hints.controller: .*own_0.py:5: .*{message}"
    ):
        check_controller(settings(own(a=(old, new))))


PLAN = """
    def plan_rounds(self, requests, *, num_rollouts):
        from seele.records import HintShare
        return %s
"""


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[(HintShare(0.3, num_rollouts),)]", r"0.3 is not one of the legal ratios \[0.0, 0.25, 0.5, 0.75\]"),
        ("[(HintShare('half', num_rollouts),)]", "'half' is not one of the legal ratios"),
        ("[(HintShare(float('nan'), num_rollouts),)]", "nan is not one of the legal ratios"),
        ("[(HintShare(0.5, 3),)]", "the shares have 3 rollouts together, allowed are 4 or 8"),
        ("[(HintShare(0.5, 4), HintShare(0.0, 0))]", "needs at least one rollout, got 0"),
        ("[(HintShare(0.5, 4, False, 1.5),)]", r"must be None or lie in \[0, 1\], got 1.5"),
        ("[(0.5,)]", "a share must be a HintShare, got 0.5"),
        ("[()]", "the shares have 0 rollouts together"),
        ("[]", "returned 0 values for 1 requests"),
        ("None", "TypeError"),
    ],
)
def test_a_plan_that_cannot_be_rolled_out_is_named_with_class_and_problem(own, returned, message):
    name = own(GOOD + PLAN % returned)
    request = RoundRequest("chains/7", 1, LEGAL, rollouts_left=8)
    with pytest.raises(PluginError, match=message) as error:
        build(name).plan_rounds([request], num_rollouts=4)
    assert f"{name.rpartition(':')[0]}:5" in str(error.value)
    assert "'chains/7'" in str(error.value) or "1 requests" in str(error.value)


def test_a_round_may_take_all_that_is_left(own):
    name = own(GOOD + PLAN % "[(HintShare(0.5, 8),)]")
    request = RoundRequest("p", 1, LEGAL, rollouts_left=8)
    assert sum(share.num_rollouts for share in build(name).plan_rounds([request], num_rollouts=4)[0]) == 8


def test_what_it_raises_is_named_with_line_and_problem(own):
    controller = build(own(a=("is_hard = ", "raise RuntimeError('no')\n        is_hard = ")))
    with pytest.raises(PluginError, match=r"own_0.py:5: observe, problem 'p': RuntimeError: no \(.*:13\)"):
        controller.observe("p", hint_ratio=0.5, num_correct=1, num_rollouts=4)


def test_the_simulator_takes_it_by_its_file(own):
    name = own()
    typed = ["--controller", f"{name}:step=0.5", "--controller", name, "--problems", "20", "--rounds", "2"]
    result = CliRunner().invoke(app, ["simulate", *typed, "--world", "easy", "--json"])
    assert result.exit_code == 0, result.output
    assert {f"{name}:step=0.5", name} <= set(str(result.output).replace('"', " ").split())
    result = CliRunner().invoke(app, ["simulate", "--controller", f"{name}:step"])
    assert isinstance(result.exception, ConfigError)
    assert "expected NAME or NAME:key=value,key=value, got 'step'" in str(result.exception)
