"""Off-policy sources: what the built-in ones say of themselves, and one of a user's own."""

from dataclasses import replace

import numpy as np
import pytest

from seele.config import AdvantageConfig, HintConfig, ImitationConfig, OffPolicyConfig, SeeleConfig
from seele.errors import ConfigError, PluginError
from seele.methods import check_method
from seele.methods.advantage import group_advantages
from seele.methods.baselines import group_of
from seele.methods.sources import SOURCES, OffPolicySource, build_source
from seele.records import Instance

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
"""
INSTANCE = Instance(instance_id="i", data_source="x", question="?", steps=("a", "b"), answer="b")


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


def settings(method, source, *, rounds=1, baseline="pooled", **off_policy):
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


def test_only_given_rollouts_have_a_loss_of_their_own():
    for loss, expected in {"shaped": {"trace", "replay"}, "surrogate": set()}.items():
        sources = {name: build_source(OffPolicyConfig(source=name, loss=loss)) for name in SOURCES}
        assert {name for name, source in sources.items() if source.has_own_loss} == expected
        assert {name for name, source in sources.items() if source.marks_tokens} == {*SOURCES} - {"none"}


def test_an_unknown_source_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"seele.off_policy.source: unknown name 'teacher'; .*'trace'"):
        build_source(OffPolicyConfig(source="teacher"))


def test_a_source_of_the_users_own_goes_with_any_method_without_a_critic(own):
    for method in ("grpo", "luffy", "rloo"):
        assert check_method(settings(method, f"{own}:Teacher")).name == method
    with pytest.raises(ConfigError, match=r"method ppo has 'none', got '.*own.py:Teacher'"):
        check_method(settings("ppo", f"{own}:Teacher"))


def test_its_settings_are_checked_as_those_of_others(own):
    with pytest.raises(ConfigError, match=r"off_policy.source '.*Teacher' needs hints.rounds=1"):
        check_method(settings("grpo", f"{own}:Teacher", rounds=2))
    with pytest.raises(ConfigError, match=r"seele.advantage.baseline must be 'pooled' with off-policy rows"):
        check_method(settings("grpo", f"{own}:Teacher", baseline="per_round"))


def test_what_a_source_lacks_is_named_with_file_and_line(own):
    with pytest.raises(ConfigError, match=r"own.py:16 lacks \['advantages', .*'given'"):
        build_source(OffPolicyConfig(source=f"{own}:Incomplete"))
    with pytest.raises(ConfigError, match=r"own.py:23: building it: OSError: no such file .*own.py:25\)"):
        build_source(OffPolicyConfig(source=f"{own}:Broken"))


def test_a_source_offers_no_more_than_its_base():
    public = {name for name in dir(OffPolicySource) if not name.startswith("_")}
    for source in SOURCES.values():
        assert {name for name in dir(source) if not name.startswith("_")} == public


def test_advantages_of_a_source_that_do_not_fit_are_a_fault(own):
    group = group_of("problem-7", [], penalties=[], target_accuracy=0.5)
    group = replace(group, graded_G=np.ones(2), penalties_G=np.zeros(2))
    source = build_source(OffPolicyConfig(source=f"{own}:Unequal"))
    message = r"own.py:9: advantages, problem 'problem-7': ValueError: .*shape \(2,\), got \(1,\)"
    with pytest.raises(PluginError, match=message):
        group_advantages(group, source=source, baseline=lambda group: group.rewards_G)
