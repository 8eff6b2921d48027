"""Callbacks of a user's own: what they hear, add, save, and what becomes of their mistakes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from seele.callbacks import Callback, Callbacks
from seele.errors import ConfigError, PluginError

CLASSES = """
from seele.callbacks import Callback

class Best(Callback):
    def __init__(self):
        self.best, self.heard = 0.0, []

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

class Text(Callback):
    def on_step_end(self, step, metrics):
        return {"said": "a"}

class Raises(Callback):
    def on_step_end(self, step, metrics):
        return {"x": metrics["no such metric"]}

class Unsaveable(Callback):
    def state_dict(self):
        return {"what": {1, 2}}

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
    assert new.on_step_end(3, {"reward/mean": 0.0}) == {"best/reward": 0.0}


@pytest.mark.parametrize(
    ("name", "message", "line"),
    [
        ("Taken", "on_step_end at step 4: ValueError: the name 'reward/mean' is taken", "class Taken"),
        ("Text", "'said' is 'a'; return finite numbers", "class Text"),
        ("Raises", "on_step_end at step 4: KeyError: 'no such metric'", '"no such metric"'),
    ],
)
def test_a_callbacks_mistake_ends_the_run_with_file_and_line(named, name, message, line):
    with pytest.raises(PluginError) as error:
        Callbacks(named(name)).on_step_end(4, {"reward/mean": 0.5})
    assert message in str(error.value) and f"own.py:{line_of(line)}" in str(error.value)


def test_a_state_that_cannot_be_saved_is_the_callbacks_mistake(named):
    with pytest.raises(PluginError, match="state_dict: TypeError: Object of type set"):
        Callbacks(named("Unsaveable")).state_dict()


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
    trainer.callbacks = Callbacks(named("Best"))
    trainer.global_steps, trainer.run, trainer._training = 3, tmp_path, True
    trainer._visits, trainer._advantages, trainer._carried, trainer._checkpoints_to_keep = {}, {}, [], None
    nothing = SimpleNamespace(remote=dict)
    trainer.controller = SimpleNamespace(state_dict=nothing)
    trainer.planner = SimpleNamespace(state_dict=dict)
    trainer.log = SimpleNamespace(count=lambda metrics: {}, write_rollouts=lambda step, rows: None)
    trainer._measure = lambda batch: {"reward/mean": 0.5}
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
