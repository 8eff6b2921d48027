"""What a method's files set."""

import json

import pytest

pytest.importorskip("omegaconf", reason="omegaconf is not installed")

from omegaconf import OmegaConf

from seele_verl.checks.method_defaults import main, method_defaults
from seele_verl.train import compose


def test_a_method_adds_to_what_it_builds_on():
    luffy, exgrpo = method_defaults("luffy"), method_defaults("exgrpo")
    assert luffy["seele.off_policy.source"] == "trace"
    # From drgrpo, which luffy builds on, and from grpo, which that builds on.
    assert luffy["actor_rollout_ref.actor.loss_agg_mode"] == "seq-mean-token-sum-norm"
    assert luffy["seele.hints.controller"] == "none"
    assert exgrpo["seele.method"] == "exgrpo" and luffy["seele.method"] == "luffy"


def test_settings_of_all_methods_are_there_and_those_that_follow_from_others_are_not():
    defaults = method_defaults("seele")
    assert defaults["seele.hints.unit"] == "step"
    assert not [key for key, value in defaults.items() if "${" in str(value) or value == "???"]
    assert defaults["seele.curriculum.name"] == "uniform" and "seele.reward.format_score" not in defaults


def test_they_are_those_that_a_run_gets():
    composed = compose(["method=uft"])
    defaults = method_defaults("uft")
    # The tiny model sets the first two, the hardware the last.
    by_others = {"seele.prompt.template", "seele.reward.truncated_is_wrong", "seele.reward.num_workers"}
    differing = {
        key
        for key, value in defaults.items()
        if key.startswith(("seele.", "actor_rollout_ref.actor.", "algorithm."))
        and OmegaConf.select(composed, key) != value
    }
    assert differing <= by_others


def test_an_unknown_method_is_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["trpo"])
    assert "unknown method 'trpo'; allowed are ['dapo'" in capsys.readouterr().err
    main(["grpo"])
    assert json.loads(capsys.readouterr().out)["seele.method"] == "grpo"
