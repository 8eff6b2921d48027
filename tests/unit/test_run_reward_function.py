"""A run's own reward function: verl's keys, and what is refused before Ray starts."""

from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele.errors import ConfigError, PluginError
from seele.records import Instance
from seele_verl import train
from seele_verl.checks.preflight import check_settings
from seele_verl.checks.without_effect import check_part_is_used
from seele_verl.reward_function import VERL_KEYS, adopt_reward_function, check_reward_function
from seele_verl.settings import read_settings

COMMON = ["method=grpo", "hardware=cpu"]
INSTANCE = Instance(instance_id="1", data_source="chains", question="1+1", steps=("2",), answer="2")
FUNCTIONS = """
def compute_score(data_source, solution_str, ground_truth, extra_info, bonus=0.0):
    return bonus + (solution_str == ground_truth) / 2

def raises(data_source, solution_str, ground_truth, extra_info):
    return float(solution_str.split()[-1])
"""


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "own.py").write_text(FUNCTIONS)
    return tmp_path / "own.py"


def adopted(*overrides: str):
    typed = [*COMMON, *overrides]
    config = adopt_reward_function(train.compose(typed), typed)
    check_settings(config, typed)
    return config


@pytest.mark.parametrize("section", VERL_KEYS)
def test_verls_keys_name_a_reward_function(file, section):
    config = adopted(f"{section}.path={file}", f"+{section}.reward_kwargs.bonus=0.25")
    reward = read_settings(config).reward
    assert (reward.grader, dict(reward.kwargs)) == (f"{file}:compute_score", {"bonus": 0.25})
    check_reward_function(read_settings(config), INSTANCE)
    named = read_settings(adopted(f"{section}.path=pkg://a.b", f"{section}.name=mine")).reward
    assert named.grader == "a.b:mine"


def test_a_recipes_grader_gives_way_to_it(file):
    recipe = "recipe=luffy_qwen2.5-math-7b"
    assert read_settings(adopted("method=luffy", recipe)).reward.grader == "math_verify"
    own = adopted("method=luffy", recipe, f"reward.custom_reward_function.path={file}")
    assert read_settings(own).reward.grader == f"{file}:compute_score"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("{verl}.path=a.py seele.reward.grader=mathruler", "so does 'seele.reward.grader=mathruler'"),
        ("{verl}.path=a.py custom_reward_function.path=b.py", "so does 'custom_reward_function'"),
        ("+{verl}.reward_kwargs.bonus=1", "reward_kwargs: has no effect without"),
        ("seele.reward.correct_from=0.5", "it is for a reward function of your own"),
        ("seele.reward.grader=a.py:f seele.reward.format_score=0.1", "your own reward function gives"),
        ("seele.reward.grader=a.py:f seele.reward.isolation=none seele.reward.memory_limit_mb=9", "is none"),
    ],
)
def test_settings_that_contradict_a_reward_function_are_refused(overrides, message):
    typed = overrides.format(verl=VERL_KEYS[0]).split()
    with pytest.raises(ConfigError) as error:
        check_part_is_used(typed, read_settings(adopted(*typed)))
    assert message in str(error.value)


def test_a_function_that_fails_on_an_empty_response_is_named_before_the_run(file):
    settings = read_settings(adopted(f"seele.reward.grader={file}:raises"))
    with pytest.raises(PluginError) as error:
        check_reward_function(settings, INSTANCE)
    assert f"raised IndexError: list index out of range ({file}:6)" in str(error.value)
