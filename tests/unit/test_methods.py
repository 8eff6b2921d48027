"""Methods refuse settings under which a run would be something else."""

import pytest

from seele.config import AdvantageConfig, HintConfig, ImitationConfig, OffPolicyConfig, SeeleConfig
from seele.errors import ConfigError
from seele.methods import METHODS, check_method
from seele.methods.advantage import group_advantages
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Rollout

NO_HINTS = HintConfig(controller="none", rounds=1)
NO_IMITATION = ImitationConfig(coefficient=0.0)


def test_each_method_stands_under_its_own_name():
    assert all(method.name == name for name, method in METHODS.items())


def test_sound_settings_pass():
    assert check_method(SeeleConfig(method="seele")).reveals_hints
    grpo = SeeleConfig(method="grpo", hints=NO_HINTS, imitation=NO_IMITATION)
    assert not check_method(grpo).reveals_hints


def test_an_unknown_method_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown method 'remax'; allowed are \['dapo', 'drgrpo', "):
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
    with pytest.raises(ConfigError, match=r"method uft has hints of its own, got 'bayes'; .*'uft'"):
        check_method(SeeleConfig(method="uft"))


def test_grpo_refuses_an_imitation_term():
    with pytest.raises(ConfigError, match=r"seele.imitation.coefficient: .*got 0.001; allowed is 0"):
        check_method(SeeleConfig(method="grpo", hints=NO_HINTS))


@pytest.mark.parametrize(("method", "estimator"), [("ppo", "gae"), ("rloo", "rloo")])
def test_a_method_with_advantages_of_its_own_refuses_another_baseline(method, estimator):
    settings = {"method": method, "hints": NO_HINTS, "imitation": NO_IMITATION}
    assert check_method(SeeleConfig(**settings)).estimator == estimator
    with pytest.raises(ConfigError, match=rf"advantage.baseline: .*\(.*={estimator}\), got 'per_round'"):
        check_method(SeeleConfig(**settings, advantage=AdvantageConfig(baseline="per_round")))


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


def advantages(rollouts, **settings):
    config = SeeleConfig(method="seele", advantage=AdvantageConfig(**settings))
    both = group_advantages(rollouts, config, divide_by_std=False)
    assert all(advantage.generated == advantage.off_policy for advantage in both)
    return [advantage.generated for advantage in both]


def test_pooled_advantages_are_left_to_the_trainer():
    rollouts = rollouts_of((0.5, None, [1, 0]))
    assert group_advantages(rollouts, SeeleConfig(method="seele"), divide_by_std=False) == [None, None]


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


def test_without_a_prediction_the_target_accuracy_stands_in():
    (seen,) = advantages(rollouts_of((0.5, None, [1])), baseline="hint_conditional")
    assert seen == 0.5


@pytest.mark.parametrize("settings", [{"baseline": "mean"}, {"prior_rollouts": -1.0}])
def test_a_baseline_that_does_not_exist_is_refused(settings):
    with pytest.raises(ValueError, match=r"must be"):
        AdvantageConfig(**settings)
