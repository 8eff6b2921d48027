"""Settings: what is accepted, and what methods refuse."""

import dataclasses
import math

import pytest

from seele.config import (
    AdvantageConfig,
    HintConfig,
    ImitationConfig,
    OffPolicyConfig,
    SeeleConfig,
    SftConfig,
    from_mapping,
)
from seele.errors import ConfigError, PluginError
from seele.methods import METHODS, check_method
from seele.methods.advantage import group_advantages
from seele.methods.baselines import build_baseline, group_of
from seele.methods.sources import build_source
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Rollout

# --- Settings: what is accepted, and how a mistake is named


def build(**sections):
    return from_mapping(SeeleConfig, {"method": "seele"} | sections, "seele")


def test_defaults_are_the_numbers_of_the_paper():
    config = build()
    assert (config.hints.rounds, config.hints.rollouts_of_rounds[0], config.hints.rollouts_per_prompt) == (
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
    # Also where there may be none.
    assert type(build(save_every_minutes=30).save_every_minutes) is float
    assert build(save_every_minutes=None).save_every_minutes is None


def test_controller_settings_pass_through():
    assert build(hints={"settings": {"store_rate": "last_used"}}).hints.settings == {
        "store_rate": "last_used"
    }


BAD = [
    ({"hints": {"settings": {"rounds": 2}}}, "seele.hints: settings: ['rounds'] belong to the run"),
    (
        {"hints": {"target_acuracy": 0.5}},
        "seele.hints: unknown key 'target_acuracy' (did you mean 'target_accuracy'?); allowed keys are",
    ),
    ({"hints": {"target_accuracy": "half"}}, "seele.hints.target_accuracy: expected a number, got 'half'"),
    ({"hints": {"target_accuracy": 1.0}}, "seele.hints: target_accuracy must lie in (0, 1), got 1.0"),
    ({"hints": {"rounds": 0}}, "seele.hints: rounds must be at least 1, got 0"),
    ({"hints": {"rounds": 3}}, "rollouts_per_prompt (32) must be a positive multiple of rounds (3)"),
    ({"hints": {"round_quorum": 0.0}}, "seele.hints: round_quorum must lie in (0, 1], got 0.0"),
    ({"hints": {"rounds": True}}, "seele.hints.rounds: expected a whole number, got True"),
    ({"hints": 4}, "seele.hints: expected a section with the keys ["),
    ({"credit": "milestones"}, "got 'milestones'; write seele.credit.name=milestones"),
    (
        {"credit": {"stop": True}, "reward": {"format_score": 0.1}},
        "reward.format_score=0.1; set reward.format_score=0",
    ),
    ({"hints": {"settings": {1: 2}}}, "seele.hints: settings: keys must be names of settings, got [1]"),
    ({"hints": {"settings": 4}}, "seele.hints.settings: expected keys with values, got 4"),
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
    ({"selection": {"noise": 10**400}}, "seele.selection.noise: expected a number, got a whole number that"),
    (
        {"imitation": {"form": "sum"}},
        "form must be one of ['logprob_mean', 'logprob_sum', 'token_mean', 'prob'], got 'sum'",
    ),
    ({"rollout_correction": "is"}, "rollout_correction must be one of ['none', 'tis', 'mis'], got 'is'"),
    ({"rollout_correction_level": "row"}, "must be one of ['token', 'sequence'], got 'row'"),
    ({"rollout_correction_threshold": 1}, "must be finite and above 1, got 1.0"),
    ({"rollout_correction_threshold": math.inf}, "must be finite and above 1, got inf"),
    ({"rollout_cache": 4}, "seele.rollout_cache: expected a text"),
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


# --- Methods refuse settings under which a run would be something else


NO_HINTS = HintConfig(controller="none", rounds=1)
NO_IMITATION = ImitationConfig(coefficient=0.0)


def test_sound_settings_pass():
    check_method(SeeleConfig(method="seele"))
    check_method(SeeleConfig(method="grpo", hints=NO_HINTS, imitation=NO_IMITATION))


def test_an_unknown_method_is_named_with_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"unknown method 'remax'; allowed are \['adaback', 'adaprefix', .*'drgrpo', "
    ):
        check_method(SeeleConfig(method="remax"))


def test_grpo_refuses_a_controller_that_reveals_hints():
    with pytest.raises(
        ConfigError, match=r"seele.hints.controller: method grpo trains without hints, got 'bayes'"
    ):
        check_method(SeeleConfig(method="grpo", imitation=NO_IMITATION))


def test_a_method_refuses_off_policy_rows_that_are_not_its_own():
    settings = SeeleConfig(
        method="grpo", hints=NO_HINTS, imitation=NO_IMITATION, off_policy=OffPolicyConfig(source="trace")
    )
    with pytest.raises(ConfigError, match=r"seele.off_policy.source: method grpo has 'none', got 'trace'"):
        check_method(settings)


def test_uft_keeps_its_own_schedule():
    with pytest.raises(ConfigError, match=r"method uft has its own hints, got 'bayes'; .*'uft'"):
        check_method(SeeleConfig(method="uft"))


def test_grpo_refuses_an_imitation_term():
    with pytest.raises(ConfigError, match=r"seele.imitation.coefficient: .*got 0.001; allowed is 0"):
        check_method(SeeleConfig(method="grpo", hints=NO_HINTS))


def test_a_method_with_advantages_of_its_own_refuses_another_baseline():
    settings = {"method": "ppo", "hints": NO_HINTS, "imitation": NO_IMITATION}
    assert check_method(SeeleConfig(**settings)).estimator == "gae"
    with pytest.raises(ConfigError, match=r"advantage.baseline: .*\(.*=gae\), got 'per_round'"):
        check_method(SeeleConfig(**settings, advantage=AdvantageConfig(baseline="per_round")))


def test_rloo_takes_any_baseline():
    settings = {"method": "rloo", "hints": NO_HINTS, "imitation": NO_IMITATION}
    for baseline in ("pooled", "per_round", "hint_conditional"):
        chosen = SeeleConfig(**settings, advantage=AdvantageConfig(baseline=baseline))
        assert check_method(chosen).leaves_one_out


def test_only_ppo_has_a_critic():
    assert [name for name, method in METHODS.items() if method.has_critic] == ["ppo"]


def rollouts_of(*rounds):
    """Rollouts from (hint ratio, predicted accuracy, rewards) of each round."""
    rollouts = []
    for round_index, (ratio, predicted, rewards) in enumerate(rounds):
        share = HintShare(ratio, len(rewards), predicted_accuracy=predicted)
        for reward in rewards:
            grade = Grade(bool(reward), GradeReason.CORRECT if reward else GradeReason.WRONG)
            completion = Completion(text="", token_ids=(1,), log_probs=(), finish=Finish.STOP)
            rollouts.append(
                Rollout(
                    round_index=round_index,
                    rollout_index=len(rollouts),
                    share=share,
                    hint_steps=0,
                    completion=completion,
                    grade=grade,
                )
            )
    return rollouts


def advantages(rollouts, *, penalties=None, leave_one_out=False, divide_by_std=False, **settings):
    config = SeeleConfig(method="seele", advantage=AdvantageConfig(**settings))
    target = config.hints.target_accuracy
    penalties = penalties or [0.0] * len(rollouts)
    group = group_of("i", rollouts, penalties=penalties, target_accuracy=target)
    baseline = build_baseline(config, leave_one_out=leave_one_out, divide_by_std=divide_by_std)
    both = group_advantages(group, source=build_source(config.off_policy), baseline=baseline)
    assert all(advantage.generated == advantage.off_policy for advantage in both)
    return [advantage.generated for advantage in both]


def test_pooled_advantages_are_rewards_minus_their_mean_over_all_rounds():
    rollouts = rollouts_of((0.75, None, [1, 1]), (0.25, None, [1, 0]))
    assert advantages(rollouts) == [0.25, 0.25, 0.25, -0.75]
    assert advantages(rollouts, divide_by_std=True) == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-5)
    assert advantages(rollouts, leave_one_out=True) == pytest.approx([1 / 3, 1 / 3, 1 / 3, -1])
    assert advantages(rollouts, leave_one_out=True, divide_by_std=True) == advantages(
        rollouts, leave_one_out=True
    ), "RLOO divides by no deviation"


def test_per_round_advantages_do_not_look_at_other_rounds():
    rollouts = rollouts_of((0.75, None, [1, 1]), (0.25, None, [1, 0]))
    assert advantages(rollouts, baseline="per_round") == [0.0, 0.0, 0.5, -0.5]


def test_hint_conditional_advantages_take_each_round_by_itself():
    # The same hint in both rounds; a baseline over both would let the first round's rewards into the second.
    rollouts = rollouts_of((0.5, 0.75, [1, 0]), (0.5, 0.25, [0, 0]))
    # (other's reward + 2 predicted) / 3: .5 and 5/6 in the first round, 1/6 in the second.
    expected = [1 - 0.5, 0 - 5 / 6, -1 / 6, -1 / 6]
    seen = advantages(rollouts, baseline="hint_conditional", prior_rollouts=2.0)
    assert seen == pytest.approx(expected)


def test_a_penalty_is_part_of_the_reward_but_not_of_the_accuracy_behind_a_deviation():
    rollouts = rollouts_of((0.5, 0.5, [1, 0]))
    both = {"baseline": "hint_conditional", "prior_rollouts": 1.0, "divide_by_std": True}
    # Baselines without penalty 1/4 and 3/4: accuracies (2/4 + 1) / 4 and (6/4 + 1) / 4.
    deviation = (3 / 8 * 5 / 8) ** 0.5
    assert advantages(rollouts, **both) == pytest.approx([0.75 / deviation, -0.75 / deviation])
    # The second loses 1: the first one's baseline falls by 1/2, the second one's reward by 1.
    penalised = advantages(rollouts, penalties=[0.0, -1.0], **both)
    assert penalised == pytest.approx([1.25 / deviation, -1.75 / deviation])


def test_without_a_prediction_the_target_accuracy_stands_in():
    (seen,) = advantages(rollouts_of((0.5, None, [1])), baseline="hint_conditional")
    assert seen == 0.5


def test_a_baseline_that_does_not_exist_is_refused():
    with pytest.raises(
        ConfigError, match=r"seele.advantage.baseline: unknown name 'mean'; allowed are .*'pooled'"
    ):
        check_method(SeeleConfig(method="seele", advantage=AdvantageConfig(baseline="mean")))
    with pytest.raises(ValueError, match=r"must be"):
        AdvantageConfig(prior_rollouts=-1.0)


OWN = """
import numpy as np


def centred(group):
    return group.rewards_G - group.rewards_G[group.on_policy_G].mean()


def short(group):
    return group.rewards_G[1:]


def nan(group):
    return group.rewards_G * np.nan


def broken(group):
    return group.no_such_array


def two(group, more):
    return group.rewards_G
"""


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


def test_a_baseline_may_be_the_users_own(own):
    rollouts = rollouts_of((0.75, None, [1, 1]), (0.25, None, [1, 0]))
    assert advantages(rollouts, baseline=f"{own}:centred") == [0.25, 0.25, 0.25, -0.75]
    settings = SeeleConfig(method="seele", advantage=AdvantageConfig(baseline=f"{own}:centred"))
    assert check_method(settings).name == "seele"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("short", r"own.py:9: problem 'i': .*advantages must have shape \(2,\), got \(1,\)"),
        ("nan", r"own.py:13: problem 'i': .*advantages must be finite, got \[nan, nan\]"),
        ("broken", r"own.py:17: problem 'i': AttributeError: .*no_such_array.*own.py:18\)"),
    ],
)
def test_a_fault_of_the_users_baseline_names_file_line_and_problem(own, name, message):
    with pytest.raises(PluginError, match=message):
        advantages(rollouts_of((0.5, None, [1, 0])), baseline=f"{own}:{name}")


def test_a_baseline_that_takes_no_group_is_refused_before_the_run(own):
    settings = SeeleConfig(method="seele", advantage=AdvantageConfig(baseline=f"{own}:two"))
    with pytest.raises(ConfigError, match=r"seele.advantage.baseline: .*own.py:21 must be a function of one"):
        check_method(settings)


# --- Settings of supervised fine-tuning, and which others a supervised method refuses


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
    with pytest.raises(ConfigError, match=r"leaves no problems for its RL stage, got 1\.0; allowed is a"):
        check_method(dataclasses.replace(both, sft=SftConfig()))


def test_settings_of_rollouts_are_the_second_stages_only():
    advantage = AdvantageConfig(baseline="per_round")
    check_method(dataclasses.replace(SFT, method="sft_rl", sft=SftConfig(share=0.5), advantage=advantage))
    with pytest.raises(
        ConfigError, match=r"seele.advantage.baseline: .* got 'per_round'; allowed is 'pooled'"
    ):
        check_method(dataclasses.replace(SFT, advantage=advantage))
