"""Prompt templates: what stands around the question before the assistant's first token.

The hint is placed directly after the prompt, as the beginning of the assistant's turn, so a prompt without
hint is the baseline's prompt byte for byte. Training and evaluation render through the same function.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from seele.errors import ConfigError

CHAT = "chat"

TEMPLATES = {
    "plain": "{question}\n",
    # The template of DeepSeek-R1-Zero (arXiv:2501.12948, table 1), which the SEELE paper trains with, plus
    # the request for \boxed{} that its reward needs.
    "r1_zero": (
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves "
        "it. The assistant first thinks about the reasoning process in the mind and then provides the user "
        "with the answer. The reasoning process and answer are enclosed within <think> </think> and "
        "<answer> </answer> tags, respectively, i.e., <think> reasoning process here </think> "
        "<answer> answer here </answer>. User: {question}\nPut your final answer within \\boxed{{}}. "
        "Assistant: <think>\n"
    ),
}


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that prompts need."""

    eos_token_id: int
    """What ends a response."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of ``text``; with special tokens, what the model expects at the start of a sequence."""
        ...

    def apply_chat_template(
        self, conversation: Sequence[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> Any:
        """The conversation as text, ending where the assistant's turn begins."""
        ...


def check_template(template: str) -> None:
    """Raise ``ConfigError`` unless ``template`` is known."""
    if template != CHAT and template not in TEMPLATES:
        raise ConfigError(f"unknown prompt template {template!r}; allowed are {sorted([*TEMPLATES, CHAT])}")


def render_prompt(question: str, template: str) -> str:
    """The prompt's text, for every template but ``chat``, which only a tokenizer can render."""
    check_template(template)
    return TEMPLATES[template].format(question=question)


def encode_prompt(tokenizer: Tokenizer, question: str, template: str) -> list[int]:
    """Token ids of the prompt, ending where the assistant's first token stands.

    Raises:
        ConfigError: If the template is unknown.
    """
    if template == CHAT:
        messages = [{"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return tokenizer.encode(text, add_special_tokens=False)
    return tokenizer.encode(render_prompt(question, template), add_special_tokens=True)


def encode_steps(tokenizer: Tokenizer, steps: Sequence[str]) -> list[list[int]]:
    """Token ids of each solution step by itself.

    Step by step, so that the tokens of a longer hint begin with those of every shorter one: the engine's
    prefix cache then serves all rounds of a problem.
    """
    return [tokenizer.encode(step, add_special_tokens=False) for step in steps]


def encode_solution(tokenizer: Tokenizer, steps: Sequence[str]) -> list[int]:
    """Token ids of a worked solution as a whole response: those of its steps, then the end of the text."""
    step_ids = encode_steps(tokenizer, steps)
    return [*(token for ids in step_ids for token in ids), tokenizer.eos_token_id]
