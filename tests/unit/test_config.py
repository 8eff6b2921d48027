"""Settings: what is accepted, and how a mistake is named."""

import math

import pytest

from seele.config import HintConfig, SeeleConfig, from_mapping
from seele.errors import ConfigError


def build(**sections):
    return from_mapping(SeeleConfig, {"method": "seele"} | sections, "seele")


def test_defaults_are_the_numbers_of_the_paper():
    config = build()
    assert (config.hints.rounds, config.hints.rollouts_per_round, config.hints.rollouts_per_prompt) == (
        4,
        8,
        32,
    )
    assert (config.hints.target_accuracy, config.imitation.coefficient) == (0.5, 0.001)
    assert (config.hints.controller, config.prompt.template, config.reward.grader) == (
        "bayes",
        "r1_zero",
        "mathruler",
    )


def test_whole_numbers_are_accepted_where_a_float_is_expected():
    assert build(imitation={"coefficient": 1}).imitation.coefficient == 1.0


def test_controller_settings_pass_through():
    assert build(hints={"settings": {"store_rate": "last_used"}}).hints.settings == {
        "store_rate": "last_used"
    }


BAD = [
    ({"hints": {"settings": {"rounds": 2}}}, "seele.hints: settings: ['rounds'] belong to the run"),
    ({"hints": {"target_acuracy": 0.5}}, "seele.hints: unknown key 'target_acuracy'; allowed keys are"),
    ({"hints": {"target_accuracy": "half"}}, "seele.hints.target_accuracy: expected float, got 'half'"),
    ({"hints": {"target_accuracy": 1.0}}, "seele.hints: target_accuracy must lie in (0, 1), got 1.0"),
    ({"hints": {"rounds": 0}}, "seele.hints: rounds must be at least 1, got 0"),
    ({"hints": {"rounds": 3}}, "rollouts_per_prompt (32) must be a positive multiple of rounds (3)"),
    ({"hints": {"round_quorum": 0.0}}, "seele.hints: round_quorum must lie in (0, 1], got 0.0"),
    ({"hints": {"rounds": True}}, "seele.hints.rounds: expected int, got True"),
    ({"hints": 4}, "seele.hints: expected a section with keys, got 4"),
    ({"hints": {"settings": {1: 2}}}, "seele.hints: settings: keys must be names of settings, got [1]"),
    ({"hints": {"settings": 4}}, "seele.hints.settings: expected Mapping, got 4"),
    (
        {"curriculum": {"spare_problems": -1}},
        "seele.curriculum: spare_problems must not be negative, got -1",
    ),
    ({"imitation": {"coefficient": -1.0}}, "coefficient must be finite and not negative, got -1.0"),
    ({"imitation": {"coefficient": math.inf}}, "coefficient must be finite and not negative, got inf"),
    ({"off_policy": {"coefficient": math.inf}}, "coefficient must be finite and not negative, got inf"),
    *(
        ({"selection": {name: math.inf}}, f"seele.selection: {name} must be finite and not negative, got inf")
        for name in ("warmup_epochs", "transition_epochs", "momentum", "noise")
    ),
    ({"selection": {"noise": 10**400}}, "seele.selection.noise: expected float, got a whole number that"),
    (
        {"imitation": {"form": "sum"}},
        "form must be one of ['logprob_mean', 'logprob_sum', 'token_mean', 'prob'], got 'sum'",
    ),
    ({"rollout_correction": "is"}, "rollout_correction must be one of ['none', 'tis', 'mis'], got 'is'"),
    ({"rollout_correction_level": "row"}, "must be one of ['token', 'sequence'], got 'row'"),
    ({"rollout_correction_threshold": 1}, "must be finite and above 1, got 1.0"),
    ({"rollout_correction_threshold": math.inf}, "must be finite and above 1, got inf"),
    ({"rollout_cache": 4}, "seele.rollout_cache: expected str"),
    ({"reward": {"time_limit_s": 0}}, "seele.reward: time_limit_s must be finite and positive, got 0.0"),
    ({"reward": {"time_limit_s": math.inf}}, "time_limit_s must be finite and positive, got inf"),
]


@pytest.mark.parametrize(("sections", "message"), BAD, ids=[message for _, message in BAD])
def test_a_mistake_is_named_with_its_key_and_what_is_allowed(sections, message):
    with pytest.raises(ConfigError) as error:
        build(**sections)
    assert message in str(error.value)


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError, match=r"seele: .*method"):
        from_mapping(SeeleConfig, {}, "seele")


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(AttributeError):
        HintConfig().rounds = 2  # type: ignore[misc]
