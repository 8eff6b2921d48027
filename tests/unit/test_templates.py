"""Prompts: training, validation and evaluation see the same bytes."""

import pytest

from seele.errors import ConfigError
from seele.rollout.templates import encode_prompt, encode_steps, render_prompt


class Characters:
    """A tokenizer of code points, with 1 at the start of a sequence."""

    def encode(self, text, *, add_special_tokens):
        return [1] * add_special_tokens + [ord(character) for character in text]

    def apply_chat_template(self, conversation, *, tokenize, add_generation_prompt):
        assert not tokenize and add_generation_prompt
        return f"<{conversation[0]['role']}>{conversation[0]['content']}<assistant>"


def text_of(ids):
    return "".join(map(chr, ids))


def test_plain_is_the_question_and_a_line_end():
    assert render_prompt("7+5", "plain") == "7+5\n"


def test_r1_zero_ends_where_the_assistant_begins_to_think():
    prompt = render_prompt("What is {x}?", "r1_zero")
    assert prompt.endswith("Assistant: <think>\n")
    assert "User: What is {x}?\n" in prompt and "\\boxed{}" in prompt


def test_prompts_begin_with_what_the_model_expects_at_the_start():
    assert encode_prompt(Characters(), "7+5", "plain") == [1, *map(ord, "7+5\n")]


def test_chat_is_rendered_by_the_tokenizer():
    assert text_of(encode_prompt(Characters(), "7+5", "chat")) == "<user>7+5<assistant>"


def test_a_longer_hint_begins_with_the_tokens_of_a_shorter_one():
    steps = encode_steps(Characters(), ("7+5=2\n", "2-3=9\n"))
    assert [text_of(ids) for ids in steps] == ["7+5=2\n", "2-3=9\n"]


def test_an_unknown_template_is_named_with_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"unknown prompt template 'qwen'; allowed are \['chat', 'plain', 'r1_zero'\]"
    ):
        render_prompt("q", "qwen")
