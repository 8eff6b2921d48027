"""Settings of supervised fine-tuning, and which others a supervised method refuses."""

import dataclasses

import pytest

from seele.config import AdvantageConfig, HintConfig, ImitationConfig, SeeleConfig, SftConfig, from_mapping
from seele.errors import ConfigError
from seele.methods import check_method

SFT = SeeleConfig(
    method="sft", hints=HintConfig(controller="none", rounds=1), imitation=ImitationConfig(coefficient=0.0)
)


def test_defaults_are_those_of_luffys_baseline():
    assert dataclasses.astuple(SftConfig()) == (3, 1.0, (), 64, 5e-5, 0.1, 0.1, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"share": 0.0}, r"share must lie in \(0, 1\], got 0.0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"warmup_ratio": 1.0}, r"warmup_ratio must lie in \[0, 1\), got 1.0"),
        ({"final_lr_ratio": 1.5}, r"final_lr_ratio must lie in \[0, 1\], got 1.5"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(settings, message):
    with pytest.raises(ConfigError, match=f"seele.sft: {message}"):
        from_mapping(SftConfig, settings, "seele.sft")


def test_one_stage_takes_all_problems_and_two_share_them():
    both = dataclasses.replace(SFT, method="sft_rl", sft=SftConfig(share=0.5))
    assert check_method(SFT).stages == ("sft",)
    assert check_method(both).stages == ("sft", "rl")
    with pytest.raises(ConfigError, match=r"method sft trains on all problems, got 0\.5; allowed is 1"):
        check_method(dataclasses.replace(SFT, sft=SftConfig(share=0.5)))
    with pytest.raises(ConfigError, match=r"leaves no problem to its RL stage, got 1\.0; allowed is a share"):
        check_method(dataclasses.replace(both, sft=SftConfig()))


def test_settings_of_rollouts_are_the_second_stages_only():
    advantage = AdvantageConfig(baseline="per_round")
    check_method(dataclasses.replace(SFT, method="sft_rl", sft=SftConfig(share=0.5), advantage=advantage))
    with pytest.raises(
        ConfigError, match=r"seele.advantage.baseline: .* got 'per_round'; allowed is 'pooled'"
    ):
        check_method(dataclasses.replace(SFT, advantage=advantage))
