"""Parts of a user's own: how they are named, what they are asked, and what their faults end in."""

import json
import pickle
import sys
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.controllers import end_visit, next_hint, observe
from seele import plugins
from seele.callbacks import Callback, Callbacks
from seele.cli.main import app
from seele.config import (
    AdvantageConfig,
    CurriculumConfig,
    HintConfig,
    ImitationConfig,
    OffPolicyConfig,
    SeeleConfig,
    SelectionConfig,
)
from seele.curriculum import build_curriculum, check_curriculum, check_selection
from seele.curriculum.planner import StepPlanner
from seele.curriculum.selection import build_selection
from seele.errors import CheckpointError, ConfigError, PluginError
from seele.hints import CONTROLLERS, aims_at_target, build_controller, check_controller
from seele.hints.conditions import with_conditions
from seele.methods import check_method
from seele.methods.advantage import group_advantages
from seele.methods.baselines import group_of
from seele.methods.sources import SOURCES, OffPolicySource, build_source
from seele.records import Instance, RoundRequest

# --- Parts by name, import path and file, and errors that say where a part stands


BUILT_IN = {"own": int}


def find(spec):
    return plugins.find_part(spec, key="seele.some.key", group="parts", built_in=BUILT_IN)


@pytest.fixture
def module(tmp_path):
    """Write a module of the user's and return its path."""

    def write(text):
        file = tmp_path / "my_part.py"
        file.write_text(text)
        return file

    return write


def test_built_in_names_import_paths_and_files_are_found(module, monkeypatch):
    file = module("class Part:\n    class Inner:\n        pass\n\n\ndef function():\n    return 7\n")
    assert find("own") is int
    assert find("collections:OrderedDict").__name__ == "OrderedDict"
    assert find(f"{file}:function")() == 7
    assert find(f"{file}:Part.Inner").__qualname__ == "Part.Inner"
    monkeypatch.chdir(file.parent)
    assert find("my_part.py:Part") is find(f"{file}:Part"), "a file is loaded once"


def test_an_entry_point_of_an_installed_package_is_found(monkeypatch):
    point = EntryPoint("theirs", "collections:Counter", "seele.parts")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == "seele.parts" else [])
    assert find("theirs").__name__ == "Counter"
    with pytest.raises(
        ConfigError, match=r"unknown name 'other' .*; allowed are \['own', 'theirs'\], package"
    ):
        find("other")


def test_a_part_depends_on_the_file_that_is_named_and_on_the_one_that_defines_it(module, tmp_path):
    (tmp_path / "far.py").write_text("def function(size):\n    return size\n")
    far = find(f"{tmp_path}/far.py:function")
    file = module("class Part:\n    pass\n\n\npart, other = Part(), None\n")
    assert plugins.files_of(f"{file}:part", find(f"{file}:part")) == [file]
    assert plugins.files_of(f"{file}:other", partial(far, 3)) == [file, tmp_path / "far.py"]
    assert plugins.files_of("far:function", far) == [tmp_path / "far.py"]
    assert plugins.files_of("builtins:len", len) == []


def test_a_part_of_a_file_can_be_pickled(module):
    file = module("class Part:\n    def __init__(self):\n        self.value = 3\n")
    assert pickle.loads(pickle.dumps(find(f"{file}:Part")())).value == 3


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("x = 1\ny = 1 / 0\n", "x", r"ZeroDivisionError: division by zero \(.*my_part.py:2\)"),
        ("x = 1\ndef f(:\n", "f", r"SyntaxError: .* \(/.*my_part.py:2\)"),
        (
            "x = 1\nopen('no/such/table.json')\n",
            "x",
            r"cannot import .*No such file or directory: 'no/such/table.json' \(.*my_part.py:2\)",
        ),
        ("import sys\nsys.exit(0)\n", "f", r"SystemExit: 0 \(.*my_part.py:2\); put .* `if __name__ =="),
        ("import no_such_module\n", "f", r"No module named 'no_such_module' \(.*my_part.py:1\)"),
        (
            "import json\nfrom math import isclose\nfrom pathlib import Path\n"
            "other = Path()\ndef another(): pass\n",
            "f",
            r"my_part.py has no 'f'; it has \['another', 'other'\]",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_line(module, text, name, message):
    file = module(text)
    before = set(sys.modules)
    for _ in range(2):  # a module that failed is not there the second time
        with pytest.raises(ConfigError, match=f"seele.some.key: .*{message}"):
            find(f"{file}:{name}")
    assert (
        not any(each.startswith("seele_plugin_") for each in sys.modules.keys() - before) or "other" in text
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no/such/file.py:f", "no file .*/no/such/file.py .*a relative path begins in the folder where"),
        ("no_such_package.module:f", "No module named 'no_such_package'"),
        ("collections:no_such_name", "no_such_name"),
        ("file.py", "'file.py' lacks a name; expected file.py:NAME"),
        ("file.py:", "'file.py:' lacks a name; expected file.py:NAME"),
    ],
)
def test_what_is_not_there_is_said(spec, message):
    with pytest.raises(ConfigError, match=message):
        find(spec)


def test_a_file_is_found_from_any_folder(module, monkeypatch, tmp_path):
    file = module("def f(): pass\n")
    monkeypatch.chdir(tmp_path)
    assert plugins.absolute("my_part.py:f") == f"{file}:f"
    assert plugins.absolute("package.module:f") == "package.module:f"
    assert plugins.absolute("bayes") == "bayes"


def test_a_missing_method_is_named_with_file_and_line(module):
    file = module("\n\nclass Part:\n    def there(self): pass\n")
    with pytest.raises(ConfigError, match=rf"key: {file}:3 lacks \['absent'\]"):
        plugins.require_members(find(f"{file}:Part"), ["there", "absent"], key="key")


def test_where_an_error_was_raised_is_the_innermost_line(module):
    file = module("def f():\n    raise ValueError")
    part = find(f"{file}:f")
    with pytest.raises(ValueError) as raised:
        part()
    assert plugins.where_raised(raised.value).endswith("my_part.py:2")
    assert Path(plugins.where(part).rpartition(":")[0]).name == "my_part.py"


def test_a_mistake_is_looked_for_in_the_parts_own_file(module):
    file = module("import json\n\n\ndef f(text):\n    return json.loads(text)\n")
    part = find(f"{file}:f")
    with pytest.raises(ValueError) as raised:
        part("{")
    assert plugins.where_in(part, raised.value) == f"{file}:5"
    with pytest.raises(TypeError) as raised:
        part()
    assert plugins.where_in(part, raised.value) == f"{file}:4"
    assert plugins.where_in(partial(partial(part)), raised.value) == f"{file}:4"
    assert plugins.where(partial(part)) == f"{file}:4"
    assert plugins.where_in(partial(len), raised.value) == "builtins.len", "written in C"


def test_addresses_and_texts_are_no_import_paths():
    assert all(map(plugins.is_import_path, ["a.b:C", "a/b.py:C.d", "/a b/c.py:D"]))
    assert not any(map(plugins.is_import_path, ["a", "hf://a/b", "http://a:8000/v1", "Question: {question}"]))


# --- Callbacks of a user's own: what they hear, add, save, and what becomes of their mistakes


CLASSES = """
from seele.callbacks import Callback

class Best(Callback):
    def __init__(self):
        self.best, self.heard = float("-inf"), []

    def on_step_end(self, step, metrics):
        self.best = max(self.best, metrics["reward/mean"])
        return {"best/reward": self.best}

    def on_validation_end(self, step, metrics):
        self.heard.append(("validated", step, metrics["val/accuracy"]))

    def on_checkpoint_saved(self, step, folder):
        self.heard.append(("saved", step, folder.name))

    def state_dict(self):
        return {"best": self.best}

    def load_state_dict(self, state):
        self.best = state["best"]

class Silent(Callback):
    pass

class Taken(Callback):
    def on_step_end(self, step, metrics):
        return {"reward/mean": 1.0}

class Ours(Callback):
    def on_step_end(self, step, metrics):
        return {"step": 999}

class Text(Callback):
    def on_step_end(self, step, metrics):
        return {"said": "a"}

class Raises(Callback):
    def on_step_end(self, step, metrics):
        return {"x": metrics["no such metric"]}

class Later(Callback):
    def on_step_end(self, step, metrics):
        return {"critic/score/mean": 1.0}

class Unsaveable(Callback):
    def state_dict(self):
        return {"what": {1, 2}}

class ByNumber(Callback):
    def state_dict(self):
        return {"best": {1: 0.5}}

class Forgets(Callback):
    def load_state_dict(self, state):
        self.best = state["best"]

class Needs(Callback):
    def __init__(self, what):
        pass

class Half:
    def on_step_end(self, step, metrics):
        pass
"""


@pytest.fixture
def named(tmp_path):
    (tmp_path / "own.py").write_text(CLASSES)
    return lambda *names: [f"{tmp_path}/own.py:{name}" for name in names]


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(CLASSES.splitlines(), 1) if text in line)


def test_numbers_of_callbacks_join_the_steps_and_their_state_comes_back(named):
    callbacks = Callbacks(named("Best", "Silent"))
    assert callbacks.on_step_end(1, {"reward/mean": 0.5}) == {"best/reward": 0.5}
    assert callbacks.on_step_end(2, {"reward/mean": 0.25}) == {"best/reward": 0.5}
    resumed = Callbacks(named("Silent", "Best"))
    resumed.load_state_dict(callbacks.state_dict())
    assert resumed.on_step_end(3, {"reward/mean": 0.0}) == {"best/reward": 0.5}
    new = Callbacks(named("Best"))
    new.load_state_dict({"Gone": {}})
    assert new.on_step_end(3, {"reward/mean": -1.0}) == {"best/reward": -1.0}


@pytest.mark.parametrize(
    ("name", "message", "line"),
    [
        ("Taken", "on_step_end at step 4: ValueError: the name 'reward/mean' is taken", "class Taken"),
        ("Ours", "on_step_end at step 4: ValueError: the name 'step' is taken", "class Ours"),
        ("Later", "the name 'critic/score/mean' is taken (docs/metrics.md)", "class Later"),
        ("Text", "'said' is 'a'; return finite numbers", "class Text"),
        ("Raises", "on_step_end at step 4: KeyError: 'no such metric'", '"no such metric"'),
    ],
)
def test_a_callbacks_mistake_ends_the_run_with_file_and_line(named, name, message, line):
    with pytest.raises(PluginError) as error:
        Callbacks(named(name)).on_step_end(4, {"reward/mean": 0.5})
    assert message in str(error.value) and f"own.py:{line_of(line)}" in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Unsaveable", "state_dict: TypeError: Object of type set"),
        ("ByNumber", "state_dict: ValueError: a key is not a text, and JSON would make it one"),
        ("Forgets", "load_state_dict: KeyError: 'best'"),
    ],
)
def test_a_state_that_cannot_be_saved_or_restored_is_found_before_the_run(named, name, message):
    with pytest.raises(PluginError, match=message):
        Callbacks(named(name))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["Needs"], "cannot be built without arguments: TypeError"),
        (["Half"], "lacks ['on_validation_end', 'on_checkpoint_saved', 'state_dict', 'load_state_dict']"),
        (["Silent", "Silent"], "two callbacks are called 'Silent'"),
        (["NoSuch"], "has no 'NoSuch'"),
    ],
)
def test_what_is_no_callback_is_refused_before_the_run(named, names, message):
    with pytest.raises(ConfigError) as error:
        Callbacks(named(*names))
    assert message in str(error.value)


def test_the_trainer_tells_callbacks_of_steps_validations_and_checkpoints(named, monkeypatch, tmp_path):
    """On verl's trainer with its parts taken out: in this order verl calls it."""
    module = pytest.importorskip("seele_verl.trainer", reason="verl is not installed")
    base = module.PPOTrainerSync
    monkeypatch.setattr(base, "step", lambda self, metrics, timing: None)
    monkeypatch.setattr(base, "_validate", lambda self: {"val/accuracy": 0.75})
    monkeypatch.setattr(base, "_save_checkpoint", lambda self: None)
    monkeypatch.setattr(module.ray, "get", lambda value: value)
    trainer = object.__new__(module.SeeleTrainer)
    trainer.credit = trainer.failed = None
    trainer.seele = SeeleConfig(method="grpo")
    rollout = SimpleNamespace(val_kwargs=SimpleNamespace(n=1))
    trainer.config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
    trainer.val_dataset, trainer._validated_texts = ["problem"], ["response"]
    trainer.callbacks = Callbacks(named("Best"))
    trainer.global_steps, trainer.run, trainer._training = 3, tmp_path, True
    trainer.current, trainer._carried, trainer._checkpoints_to_keep = module.StepRecord(), [], None
    nothing = SimpleNamespace(remote=dict)
    trainer.controller = SimpleNamespace(state_dict=nothing)
    trainer.planner = SimpleNamespace(state_dict=dict)
    trainer.logger = SimpleNamespace(logger={})
    trainer.log = SimpleNamespace(count=lambda metrics: {}, write_rollouts=lambda step, rows: None)
    trainer._measure = lambda batch: {"reward/mean": 0.5}
    trainer._looked_at = {"step"}
    metrics: dict = {}
    trainer.step(metrics, {})
    trainer._save_checkpoint()
    trainer._validate()
    assert metrics["best/reward"] == trainer._line["best/reward"] == 0.5
    assert trainer.callbacks._by_name["Best"].heard == [
        ("saved", 3, "global_step_3"),
        ("validated", 3, 0.75),
    ]
    saved = module.load_part(module.step_folder(tmp_path, 3), "callbacks")
    assert saved == {"Best": {"best": 0.5}}


def test_the_base_class_does_nothing():
    callback = Callback()
    assert callback.on_step_end(1, {}) is None and callback.state_dict() == {}
    callback.on_validation_end(0, {})
    callback.on_checkpoint_saved(1, Path())
    callback.load_state_dict({})


# --- A hint controller of one's own: named by its file, checked before a run, and blamed for its faults


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


def write_part(folder, source, name, *changes):
    """Write a file with this source, changed, and return the name of a part in it."""
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    file = folder / f"own_{len(list(folder.glob('*.py')))}.py"
    file.write_text(source)
    return f"{file}:{name}"


@pytest.fixture
def own(tmp_path):
    """The name of a controller with this source, whose class is ``Stairs``."""
    return lambda source=GOOD, **changes: write_part(tmp_path, source, "Stairs", *changes.values())


def build(name, **settings):
    return build_controller(name, rounds=2, rollouts_per_round=4, **settings)


def settings(name, **hints):
    return SeeleConfig(method="seele", hints=HintConfig(controller=name, **hints))


def test_a_controller_of_ones_own_learns_saves_and_goes_on(own):
    name = own()
    check_controller(settings(name))
    controller = build(name, step=0.5)
    assert next_hint(controller, "p", round_index=0, legal_ratios=LEGAL) == 0.5
    observe(controller, "p", hint_ratio=0.5, num_correct=4, num_rollouts=4)
    end_visit(controller, "p")
    assert next_hint(controller, "p", round_index=0, legal_ratios=LEGAL) == 0.0
    assert controller.name == "Stairs" and controller.curves() == [] and controller.metrics() == {}
    state = json.loads(json.dumps(controller.state_dict()))
    again = build(name)
    again.load_state_dict(state)
    assert again.state_dict() == state == {"controller": "Stairs", "version": 1, "rates": {"p": 0.0}}
    with pytest.raises(CheckpointError, match=r"expected .*'Stairs'.*got .*'paper'"):
        again.load_state_dict(build("paper").state_dict())


EVERY_HINT = """
from seele.hints import Controller
from seele.records import HintShare


class EveryHint(Controller):
    def plan_rounds(self, requests, *, num_rollouts):
        return [self.plan(request, num_rollouts) for request in requests]

    def plan(self, request, num_rollouts):
        if request.round_index == 0:
            return (HintShare(0.0, num_rollouts),)
        return tuple(HintShare(ratio, 1) for ratio in request.legal_ratios[1:])

    def observe_rounds(self, outcomes):
        pass
"""


def test_a_controller_of_ones_own_may_rescue(tmp_path):
    (tmp_path / "own.py").write_text(EVERY_HINT)
    rescue = {"when": "rescue", "rounds": 2, "rollouts_per_prompt": 8}
    check_controller(settings(f"{tmp_path}/own.py:EveryHint", **rescue))


def test_its_settings_are_its_own_and_checked(own):
    with pytest.raises(ConfigError, match=r"unknown setting 'stp' of .*; allowed are \['step'\]"):
        build(own(), stp=1)
    with pytest.raises(ConfigError, match=r"own_1.py:5: building it: ZeroDivisionError: .*own_1.py:7"):
        build(own(a=("self.target,", "1 / 0\n        self.target,")))


PREDICTS = """
    def predicted_accuracy(self, instance_id, hint_ratios):
        return [0.25 + ratio for ratio in hint_ratios]
"""


def test_what_it_predicts_holds_for_rollouts_that_lose_their_hint(own):
    name = own(GOOD + PREDICTS)
    (plan,) = with_conditions(build(name), dropout=0.5).plan_rounds(
        [RoundRequest("p", 0, LEGAL)], num_rollouts=20
    )
    assert {(share.hint_ratio, share.predicted_accuracy) for share in plan} == {(0.5, 0.75), (0.0, 0.25)}
    assert build(own()).predicted_accuracy("p", [0.0]) is None
    wrong = build(own(GOOD + PREDICTS, a=("0.25 + ratio", "1.25")))
    with pytest.raises(PluginError, match=r"predicted_accuracy, problem 'p': expected 1 numbers in \[0, 1\]"):
        wrong.predicted_accuracy("p", [0.0])
    broken = build(own(GOOD + PREDICTS, a=("0.25 + ratio", "ratio / 0")))
    with pytest.raises(PluginError, match=r"own_\d.py:\d+: predicted_accuracy, .*ZeroDivisionError"):
        broken.predicted_accuracy("p", [0.0])


def test_capabilities_are_class_attributes(own):
    name = own(a=("    def __init__", "    aims_at_target = False\n\n    def __init__"))
    assert not aims_at_target(name) and aims_at_target(own())
    assert {name for name in CONTROLLERS if not aims_at_target(name)} == {
        *("none", "fixed", "uniform", "uft", "prefix_rft", "next_milestone"),
        *("adaback", "adhint", "bread", "each", "ladder", "mfc", "prefix_rl", "trapo"),
    }
    with pytest.raises(
        ConfigError, match=r"seele.hints.round_quorum: got 0.5, but a value below 1 needs a controller"
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
    with pytest.raises(ConfigError, match=r"own_1.py:2 gives a Stairs, which is not derived from seele"):
        build(own("\nclass Stairs:\n    name = 'x'\n"))
    with pytest.raises(ConfigError, match=r"own_2.py:2 gives a NoneType, which is not derived from seele"):
        build(own("\ndef Stairs(): pass\n"))
    with pytest.raises(ConfigError, match=r"has \['next_hint_ratios'\], which a run would never call"):
        build(own(a=("    def observe", "    def next_hint_ratios(self, requests): ...\n\n    def observe")))
    of_many = "\nfrom seele.hints.paper import PaperController\nclass Stairs(PaperController):\n"
    with pytest.raises(ConfigError, match=r"has \['observe'\], which a run would never call"):
        build(own(f"{of_many}    def observe(self, instance_id, **outcome): ...\n"))
    with pytest.raises(ConfigError, match="is 3; expected a class"):
        build(own("Stairs = 3"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"rates": dict(self.rates)', '"rates": {}', "restored from its state, the controller plans"),
        ('dict(state["rates"])', "{}", "load_state_dict does not restore what state_dict returned"),
        ('dict(state["rates"])', 'state["rate"]', r"load_state_dict: KeyError: 'rate' \(.*own_0.py:21\)"),
        ('"rates": dict(self.rates)', '"rates": {1, 2}', "state_dict, which must be JSON: TypeError"),
        (
            "        is_hard",
            "        self.rates[0] = self.rates.get(0, 0) + 1\n        is_hard",
            "after a further step, the restored controller has the state",
        ),
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
        ("[(HintShare(0.5, 3),)]", "the shares have 3 rollouts in total, allowed are 4 or 8"),
        ("[(HintShare(0.5, 4), HintShare(0.0, 0))]", "needs at least one rollout, got 0"),
        ("[(HintShare(0.5, 4, False, 1.5),)]", r"must be None or lie in \[0, 1\], got 1.5"),
        ("[(0.5,)]", "a share must be a HintShare, got 0.5"),
        ("[()]", "the shares have 0 rollouts in total"),
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
    with pytest.raises(
        PluginError, match=r"own_0.py:5: observe_rounds, problem 'p': RuntimeError: no \(.*:13\)"
    ):
        observe(controller, "p", hint_ratio=0.5, num_correct=1, num_rollouts=4)
    raises = "from seele.errors import DataError\n        raise DataError('no')\n        is_hard = "
    with pytest.raises(PluginError, match=r"observe_rounds, problem 'p': DataError: no"):
        observe(build(own(a=("is_hard = ", raises))), "p", hint_ratio=0.5, num_correct=1, num_rollouts=4)


def test_the_simulator_takes_it_by_its_file(own):
    name = own()
    typed = ["--controller", f"{name}:step=0.5", "--controller", name, "--problems", "20", "--rounds", "2"]
    result = CliRunner().invoke(app, ["simulate", *typed, "--world", "easy", "--json"])
    assert result.exit_code == 0, result.output
    assert {f"{name}:step=0.5", name} <= set(str(result.output).replace('"', " ").split())
    result = CliRunner().invoke(app, ["simulate", "--controller", f"{name}:step"])
    assert isinstance(result.exception, ConfigError)
    assert "expected NAME or NAME:key=value,key=value, got 'step'" in str(result.exception)


# --- A curriculum and a selection of one's own: named by their file, checked before a run, blamed for
# faults


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
def own_curriculum(tmp_path):
    return partial(write_part, tmp_path)


def curriculum(name, **settings):
    return CurriculumConfig(name=name, settings=settings)


def selection(name, **settings):
    return SelectionConfig(name=name, settings=settings)


def test_a_curriculum_of_ones_own_orders_the_problems_and_goes_on_from_its_state(own_curriculum):
    config = curriculum(own_curriculum(CURRICULUM, "HardestFirst"))
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
def test_problems_that_cannot_be_rolled_out_are_refused(own_curriculum, returned, message):
    config = curriculum(own_curriculum(CURRICULUM + DRAW % returned, "HardestFirst"))
    drawn = build_curriculum(config, ROWS, seed=0)
    with pytest.raises(PluginError, match=rf"seele.curriculum.name: .*own_0.py:6: .*{message}"):
        drawn.draw(2, postponed=[4, 5])


def test_a_curriculum_that_does_not_come_back_is_refused_before_the_run(own_curriculum):
    forgets = "    def state_dict(self):\n        return {'name': self.name}\n"
    name = own_curriculum(CURRICULUM + forgets, "HardestFirst")
    with pytest.raises(CheckpointError, match=r"expected .*'HardestFirst'"):
        check_curriculum(curriculum(name), ROWS, seed=0, num_problems=2)
    forgets += "\n    def load_state_dict(self, state):\n        pass\n"
    name = own_curriculum(CURRICULUM + forgets, "HardestFirst")
    with pytest.raises(ConfigError, match="restored from its state, it chooses"):
        check_curriculum(curriculum(name), ROWS, seed=0, num_problems=2)


def test_a_selection_of_ones_own_keeps_the_groups_that_it_names(own_curriculum):
    config = selection(own_curriculum(SELECTION, "Halves"))
    check_selection(config, seed=0, instance_ids=["a"])
    rates = {"a": 0.0, "b": 0.25, "c": 1.0, "d": 0.5}
    assert build_selection(config, 0).select(rates, epoch=0.0) == ["b", "d"]
    assert build_selection(selection(config.name, low=0.5), 0).select(rates, epoch=0.0) == ["d"]
    seele = SeeleConfig(method="grpo", hints=HintConfig(controller="none", rounds=1), selection=config)
    planner = StepPlanner(seele, ROWS, instance_ids=list("abcdefgh"), batch_size=4, replays=False)
    state = planner.state_dict()
    assert state["selection"] == {"selection": "Halves", "version": 1}
    planner.load_state_dict(state)


def test_metrics_that_only_a_run_would_read_are_tried_before_it(own_curriculum, own):
    broken = "\n    def metrics(self):\n        return {'label': 'hard'}\n"
    message = "metrics, which must be names and numbers: ValueError: .*'hard'"
    with pytest.raises(PluginError, match=message):
        config = selection(own_curriculum(SELECTION + broken, "Halves"))
        check_selection(config, seed=0, instance_ids=["a"])
    with pytest.raises(PluginError, match=message):
        config = curriculum(own_curriculum(CURRICULUM + broken, "HardestFirst"))
        check_curriculum(config, ROWS, seed=0, num_problems=2)
    with pytest.raises(PluginError, match=message):
        check_controller(settings(own(GOOD + broken)))


def test_a_selection_is_tried_on_the_runs_own_problems(own_curriculum):
    looks_up = ("[name for", "[{'a': 1, 'b': 2}[name] and name for")
    config = selection(own_curriculum(SELECTION, "Halves", looks_up))
    check_selection(config, seed=0, instance_ids=["a", "b"])
    with pytest.raises(PluginError, match="select: KeyError: 'c'"):
        check_selection(config, seed=0, instance_ids=["b", "c"])


def test_groups_that_the_step_does_not_have_are_refused(own_curriculum):
    config = selection(own_curriculum(SELECTION, "Halves", ("[name for", "['x'] + [name for")))
    with pytest.raises(PluginError, match=r"seele.selection.name: .*own_0.py:5: select returned problem 'x'"):
        build_selection(config, 0).select({"a": 0.5}, epoch=0.0)


def test_what_a_part_lacks_or_does_not_take_is_named(own_curriculum):
    with pytest.raises(ConfigError, match=r"own_0.py:2 lacks \['draw', 'epochs', .*'state_dict'\]"):
        build_curriculum(
            curriculum(own_curriculum("\nclass A:\n    def __init__(self, rows):\n        pass\n", "A")),
            ROWS,
            seed=0,
        )
    with pytest.raises(ConfigError, match=r"own_1.py:5: building it: TypeError: .*'high'"):
        build_selection(selection(own_curriculum(SELECTION, "Halves"), high=1), 0)
    with pytest.raises(
        ConfigError, match=r"seele.curriculum.name: unknown name 'sce' .*'sec'\?\); allowed are"
    ):
        build_curriculum(curriculum("sce"), ROWS, seed=0)
    with pytest.raises(
        ConfigError, match=r"seele.selection.name: unknown name 'lez' .*'lze'\?\); allowed are"
    ):
        build_selection(selection("lez"), 0)


def test_settings_are_for_parts_of_ones_own():
    with pytest.raises(ConfigError, match=r"seele.curriculum.settings: got {'x': 1}, but .*=sec takes"):
        build_curriculum(curriculum("sec", x=1), ROWS, seed=0)
    with pytest.raises(ConfigError, match=r"seele.selection.settings: got {'x': 1}, but .*=lze takes"):
        build_selection(selection("lze", x=1), 0)


# --- Off-policy sources: what the built-in ones say of themselves, and one of a user's own


OWN = """
from seele.methods.sources import OffPolicySource


class Teacher(OffPolicySource):
    adds_rollouts = True


class Unequal(OffPolicySource):
    adds_rollouts = True

    def advantages(self, group):
        return group.rewards_G, group.rewards_G[1:]


class Incomplete:
    adds_rollouts = True

    def __init__(self, settings):
        pass


class Broken(OffPolicySource):
    def __init__(self, settings):
        raise OSError("no such file")


class Prefix(OffPolicySource):
    in_response = True
"""
INSTANCE = Instance(instance_id="i", data_source="x", question="?", steps=("a", "b"), answer="b")


@pytest.fixture
def own_source(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


def source_settings(method, source, *, rounds=1, baseline="pooled", **off_policy):
    return SeeleConfig(
        method=method,
        hints=HintConfig(controller="none", rounds=rounds),
        imitation=ImitationConfig(coefficient=0.0),
        advantage=AdvantageConfig(baseline=baseline),
        off_policy=OffPolicyConfig(source=str(source), **off_policy),
    )


def test_a_source_that_marks_no_token_gives_nothing_and_leaves_advantages_to_the_baseline():
    source = build_source(OffPolicyConfig())
    assert not source.marks_tokens and not source.has_own_loss
    assert source.given(INSTANCE, None, None) == [] and source.advantages(None) is None
    assert source.response_tokens(INSTANCE, None, None) == 0


def test_only_given_rollouts_and_expert_prefixes_have_a_loss_of_their_own():
    always = {"expert_prefix"}
    shaped = {"trace", "replay", "successes"} | always
    for loss, expected in {"shaped": shaped, "surrogate": always}.items():
        sources = {name: build_source(OffPolicyConfig(source=name, loss=loss)) for name in SOURCES}
        assert {name for name, source in sources.items() if source.has_own_loss} == expected
        assert {name for name, source in sources.items() if source.marks_tokens} == {*SOURCES} - {"none"}


def test_an_unknown_source_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"seele.off_policy.source: unknown name 'teacher' .*'trace'\]"):
        build_source(OffPolicyConfig(source="teacher"))


def test_a_source_of_the_users_own_goes_with_any_method_without_a_critic(own_source):
    for method in ("grpo", "luffy", "rloo"):
        assert check_method(source_settings(method, f"{own_source}:Teacher")).name == method
    with pytest.raises(ConfigError, match=r"method ppo has 'none', got '.*own.py:Teacher'"):
        check_method(source_settings("ppo", f"{own_source}:Teacher"))


def test_its_settings_are_checked_as_those_of_others(own_source):
    with pytest.raises(ConfigError, match=r"off_policy.source '.*Teacher' needs hints.rounds=1"):
        check_method(source_settings("grpo", f"{own_source}:Teacher", rounds=2))
    with pytest.raises(ConfigError, match=r"seele.advantage.baseline must be 'pooled' with off-policy rows"):
        check_method(source_settings("grpo", f"{own_source}:Teacher", baseline="per_round"))
    with pytest.raises(ConfigError, match=r"own.py:\d+: in_response needs has_log_probs = False"):
        check_method(source_settings("grpo", f"{own_source}:Prefix"))


def test_what_a_source_lacks_is_named_with_file_and_line(own_source):
    with pytest.raises(ConfigError, match=r"own.py:16 lacks \['advantages', .*'given'"):
        build_source(OffPolicyConfig(source=f"{own_source}:Incomplete"))
    with pytest.raises(ConfigError, match=r"own.py:23: building it: OSError: no such file .*own.py:25\)"):
        build_source(OffPolicyConfig(source=f"{own_source}:Broken"))


def test_a_source_offers_no_more_than_its_base():
    public = {name for name in dir(OffPolicySource) if not name.startswith("_")}
    for source in SOURCES.values():
        assert {name for name in dir(source) if not name.startswith("_")} == public


def test_advantages_of_a_source_that_do_not_fit_are_a_fault(own_source):
    group = group_of("problem-7", [], penalties=[], target_accuracy=0.5)
    group = replace(group, graded_G=np.ones(2), penalties_G=np.zeros(2))
    source = build_source(OffPolicyConfig(source=f"{own_source}:Unequal"))
    message = r"own.py:9: advantages, problem 'problem-7': ValueError: .*shape \(2,\), got \(1,\)"
    with pytest.raises(PluginError, match=message):
        group_advantages(group, source=source, baseline=lambda group: group.rewards_G)
