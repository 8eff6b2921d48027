"""Rollouts on disk: only the request that was answered finds its answer. tests/integration replays a step."""

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele.errors import ConfigError, DataError
from seele.records import Completion, Finish
from seele_verl.rollout_cache import RolloutCache, check_rollout_cache
from seele_verl.settings import read_settings
from seele_verl.train import compose

REQUEST = {"prompt_ids": [1, 2], "sampling_params": {"temperature": 1.0}, "max_tokens": 8, "seeds": [5, 6]}


def completion(*tokens, finish=Finish.STOP):
    log_probs = tuple(-1 / (token + 3) for token in tokens)
    return Completion(text="x", token_ids=tokens, log_probs=log_probs, finish=finish, cached_prompt_tokens=1)


# A quorum's part and the stragglers', from different weights.
PARTS = [({1: completion(7, 8)}, 2), ({0: completion(9, finish=Finish.LENGTH)}, 3)]


def test_an_answer_comes_back_as_it_came(tmp_path):
    RolloutCache(tmp_path / "new", model="m").keep(4, REQUEST, PARTS)
    assert RolloutCache(tmp_path / "new", model="m").find(4, dict(reversed(REQUEST.items()))) == PARTS


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_ids": [1, 2, 3]},
        {"sampling_params": {"temperature": 0.5}},
        {"max_tokens": 9},
        {"seeds": [5, 7]},
        {"seeds": [5]},
    ],
    ids=str,
)
def test_another_request_finds_nothing(tmp_path, change):
    cache = RolloutCache(tmp_path, model="m")
    cache.keep(4, REQUEST, PARTS)
    assert cache.find(4, REQUEST | change) is None
    assert cache.find(5, REQUEST) is None
    assert RolloutCache(tmp_path, model="another").find(4, REQUEST) is None


@pytest.mark.parametrize("text", ["", "[", '[{"version": 1}]', '[{"version": 1, "completions": {"a": 1}}]'])
def test_a_broken_file_is_named(tmp_path, text):
    cache = RolloutCache(tmp_path, model="m")
    cache.keep(4, REQUEST, PARTS)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(text)
    with pytest.raises(DataError, match=f"{path.name}: not a cached round .*; remove the file"):
        cache.find(4, REQUEST)


@pytest.mark.parametrize("name", ["rollout", "rollout_tq", "async_rollout"])
def test_verls_own_cache_is_refused(name):
    config = compose(["hardware=cpu", "job=tiny", f"skip.{name}.enable=true"])
    with pytest.raises(ConfigError, match=f"skip.{name}.enable: true, .*set seele.rollout_cache to a folder"):
        check_rollout_cache(config, read_settings(config))


def test_the_cache_is_a_folder(tmp_path):
    (tmp_path / "file").touch()
    for name in ("null", tmp_path, tmp_path / "new"):
        config = compose(["hardware=cpu", "job=tiny", f"seele.rollout_cache={name}"])
        check_rollout_cache(config, read_settings(config))
    config = compose(["hardware=cpu", "job=tiny", f"seele.rollout_cache={tmp_path}/file"])
    with pytest.raises(ConfigError, match="expected a folder, got the file"):
        check_rollout_cache(config, read_settings(config))
