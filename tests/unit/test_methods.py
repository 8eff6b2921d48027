"""Methods refuse settings under which a run would be something else."""

import pytest

from seele.config import HintConfig, ImitationConfig, SeeleConfig
from seele.errors import ConfigError
from seele.methods import METHODS, check_method

NO_HINTS = HintConfig(controller="none", rounds=1)
NO_IMITATION = ImitationConfig(coefficient=0.0)


def test_each_method_stands_under_its_own_name():
    assert all(method.name == name for name, method in METHODS.items())


def test_sound_settings_pass():
    assert check_method(SeeleConfig(method="seele")).reveals_hints
    grpo = SeeleConfig(method="grpo", hints=NO_HINTS, imitation=NO_IMITATION)
    assert not check_method(grpo).reveals_hints


def test_an_unknown_method_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown method 'ppo'; allowed are \['grpo', 'seele'\]"):
        check_method(SeeleConfig(method="ppo"))


def test_grpo_refuses_a_controller_that_reveals_hints():
    with pytest.raises(
        ConfigError, match=r"seele.hints.controller: method grpo trains without hints, got 'paper'"
    ):
        check_method(SeeleConfig(method="grpo", imitation=NO_IMITATION))


def test_grpo_refuses_an_imitation_term():
    with pytest.raises(ConfigError, match=r"seele.imitation.coefficient: .*got 0.001; allowed is 0"):
        check_method(SeeleConfig(method="grpo", hints=NO_HINTS))
