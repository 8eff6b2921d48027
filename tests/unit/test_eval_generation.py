"""Prompts of an evaluation as token ids, and what is refused before the engine is loaded."""

import pytest

from seele.errors import ConfigError, DataError
from seele_eval.generation import Request, tokenize_prompts

CONTEXT_TOKENS = 32


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Configuration and byte-level tokenizer of a model without weights."""
    transformers = pytest.importorskip("transformers")
    from tokenizers.pre_tokenizers import ByteLevel

    folder = tmp_path_factory.mktemp("model")
    vocabulary = {symbol: index for index, symbol in enumerate([*sorted(ByteLevel.alphabet()), "<end>"])}
    tokenizer = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=[], unk_token="<end>", eos_token="<end>")
    tokenizer.save_pretrained(folder)
    transformers.Qwen2Config(max_position_embeddings=CONTEXT_TOKENS).save_pretrained(folder)
    return folder


def request(question, template="plain"):
    return Request(question=question, template=template, temperature=0.0, seed=0)


def test_a_prompt_is_the_templates_text_and_nothing_else(model):
    prompts = tokenize_prompts(model, [request("1+1"), request("12+1")], max_tokens=8)
    # One token a byte, and the template's line end.
    assert [len(ids) for ids in prompts.token_ids] == [4, 5]
    assert prompts.context_tokens == 5 + 8


def test_a_prompt_and_response_that_do_not_fit_the_context_are_refused_with_what_would(model):
    assert (
        tokenize_prompts(model, [request("1+1")], max_tokens=CONTEXT_TOKENS - 4).context_tokens
        == CONTEXT_TOKENS
    )
    with pytest.raises(ConfigError, match="choose at most 28"):
        tokenize_prompts(model, [request("1+1")], max_tokens=CONTEXT_TOKENS - 3)
    with pytest.raises(ConfigError, match=r"longest prompt \(34 tokens\) does not fit"):
        tokenize_prompts(model, [request("1" * 33)], max_tokens=1)


def test_an_unknown_template_is_refused(model):
    with pytest.raises(ConfigError, match="unknown prompt template 'plane'"):
        tokenize_prompts(model, [request("1+1", template="plane")], max_tokens=8)


def test_a_folder_without_model_is_refused(model, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="not a model folder"):
        tokenize_prompts(tmp_path, [request("1+1")], max_tokens=8)
