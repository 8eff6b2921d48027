"""Prompts of an evaluation as token ids, and what is refused before the engine is loaded."""

import shutil

import pytest

from seele.errors import ConfigError, DataError
from seele.records import Chat
from seele_eval.prompts import Request, begins_thinking, encode_requests

CONTEXT_TOKENS = 32


def request(question, template="plain", **changes):
    return Request(question=question, template=template, temperature=0.0, seed=0, **changes)


def test_a_prompt_is_the_templates_text_and_nothing_else(bytes_model):
    prompts = encode_requests(bytes_model, [request("1+1"), request("12+1")], max_tokens=8)
    # One token a byte, and the template's line end.
    assert [len(prompt.token_ids) for prompt in prompts] == [4, 5]


def test_a_hint_follows_the_prompt_step_by_step(bytes_model):
    bare, hinted = encode_requests(
        bytes_model, [request("1+1"), request("1+1", steps=("ab", "c", "d"), hint_steps=2)], max_tokens=8
    )
    assert hinted.token_ids[: len(bare.token_ids)] == bare.token_ids
    assert len(hinted.token_ids) == len(bare.token_ids) + 3


def test_a_prompt_and_response_that_do_not_fit_the_context_are_refused_with_what_would(bytes_model):
    assert encode_requests(bytes_model, [request("1+1")], max_tokens=CONTEXT_TOKENS - 4)
    with pytest.raises(ConfigError, match="choose at most 28"):
        encode_requests(bytes_model, [request("1+1")], max_tokens=CONTEXT_TOKENS - 3)
    with pytest.raises(ConfigError, match=r"longest prompt \(34 tokens\) does not fit"):
        encode_requests(bytes_model, [request("1" * 33)], max_tokens=1)


def test_the_context_of_a_model_that_also_sees_is_that_of_its_text(bytes_model, tmp_path):
    from transformers import Gemma3Config

    folder = shutil.copytree(bytes_model, tmp_path / "sees")
    Gemma3Config(text_config={"max_position_embeddings": 16}).save_pretrained(folder)
    with pytest.raises(ConfigError, match="choose at most 12"):
        encode_requests(folder, [request("1+1")], max_tokens=13)


def test_an_unknown_template_is_refused(bytes_model):
    with pytest.raises(ConfigError, match="unknown prompt template 'plane'"):
        encode_requests(bytes_model, [request("1+1", template="plane")], max_tokens=8)


def test_a_model_without_a_chat_template_cannot_chat(bytes_model):
    with pytest.raises(ConfigError, match="has no chat template; name another"):
        encode_requests(bytes_model, [request("1+1", template="chat")], max_tokens=8)


def test_a_prompt_may_leave_the_model_within_its_thoughts(bytes_model, tmp_path):
    written = "{{ messages[0].content + '<a>' + ('' if quiet else '<think>\\n') }}"
    folder = shutil.copytree(bytes_model, tmp_path / "thinks")
    (folder / "chat_template.jinja").write_text(written)
    (tmp_path / "mine.txt").write_text("{question} <think>")
    for template in ("r1_zero", "luffy", str(tmp_path / "mine.txt")):
        assert begins_thinking(template, Chat(), None)
    for template in ("qwen", "prime", "plain"):
        assert not begins_thinking(template, Chat(), None)
    assert begins_thinking("chat", Chat(), folder)
    assert not begins_thinking("chat", Chat(None, {"quiet": True}), folder)
    assert not begins_thinking("chat", Chat(), None), "a server's prompts are not known"


def test_a_folder_without_model_is_refused(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="not a model folder"):
        encode_requests(tmp_path, [request("1+1")], max_tokens=8)
