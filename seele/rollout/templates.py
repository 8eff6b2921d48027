"""Prompt templates: the text around the question before the assistant's first token.

The hint is placed directly after the prompt, as the beginning of the assistant's turn, so a prompt without a
hint is the baseline's prompt byte for byte. Training and evaluation render with the same function.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from seele.errors import ConfigError
from seele.maths.boxed import BOX
from seele.plugins import absolute, find_part, installed_names, is_import_path
from seele.records import Chat

CHAT = "chat"
"""The template in the model's tokenizer."""

NO_CHAT = Chat()

OPEN_THOUGHTS, CLOSED_THOUGHTS = "<think>", "</think>"

# A text that no chat template contains.
_ANSWER = "the answer in its turn"

QUESTION = "{question}"
"""The placeholder for the question in a template's text."""

HINT = "{hint}"
"""The placeholder for the hint in a request with a hint."""

_R1_ZERO = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves "
    "it. The assistant first thinks about the reasoning process in the mind and then provides the user "
    "with the answer. The reasoning process and answer are enclosed within <think> </think> and "
    "<answer> </answer> tags, respectively, i.e., <think> reasoning process here </think> "
    "<answer> answer here </answer>. User: "
)

TEMPLATES = {
    "plain": "{question}\n",
    # The template of DeepSeek-R1-Zero (arXiv:2501.12948, table 1), which the SEELE paper trains with, plus
    # the request for \boxed{} that its reward needs.
    "r1_zero": _R1_ZERO + "{question}\nPut your final answer within \\boxed{}. Assistant: <think>\n",
    # SEC's form (arXiv:2505.14970, appendix C) in our words: a dialogue in which the assistant's answer has
    # begun. The question says what goes into \boxed{}.
    "sec": (
        "This is a dialogue between a User and an Assistant. The User poses a problem. The Assistant thinks "
        "it through first and gives the answer then.\nUser: {question}\nAssistant: I will work this out step "
        "by step.\n"
    ),
    # SEC's for MATH, whose questions do not specify the answer's form.
    "sec_math": (
        "This is a dialogue between a User and an Assistant. The User poses a problem. The Assistant thinks "
        "it through first and gives the answer then.\nUser: {question}\nPut your final answer within "
        "\\boxed{}.\nAssistant: I will work this out step by step.\n"
    ),
    # Three from LUFFY's evaluation (arXiv:2504.14945, eval_scripts/generate_vllm.py): Qwen2.5-Math's own;
    "qwen": (
        "<|im_start|>system\n"
        "Please reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    ),
    # the one that LUFFY trains with (there "own"), its system prompt as in LUFFY's parquet files;
    "luffy": (
        "Your task is to follow a systematic, thorough reasoning process before providing the final "
        "solution. This involves analyzing, summarizing, exploring, reassessing, and refining your thought "
        "process through multiple iterations. Structure your response into two sections: Thought and "
        "Solution. In the Thought section, present your reasoning using the format: "
        '"<think>\n {thoughts} </think>\n". Each thought should include detailed analysis, brainstorming, '
        "verification, and refinement of ideas. After "
        '"</think>\n," in the Solution section, provide the final, logical, and accurate answer, clearly '
        "derived from the exploration in the Thought section. If applicable, include the answer in "
        "\\boxed{} for closed-form results like multiple choices or mathematical solutions.\n\n"
        "User: This is the problem:\n{question}\nAssistant: <think>\n"
    ),
    # that of PRIME.
    "prime": _R1_ZERO + "{question}\n\nPresent the answer in LaTex format: \\boxed{Your answer}. Assistant:",
}
"""Text by name; ``{question}`` is the question, other braces are literal."""

ENTRY_POINTS = "templates"
"""Installed packages name templates in this group of ``seele.plugins``."""

# SimpleRL's evaluation stops at these under prompts in the style of DeepSeek-R1, and at <|im_end|> under all.
# An answer between the tags precedes the closing one, so that no box is lost.
_R1_STOP = ("User:", "Assistant:", "</answer>", "<|im_end|>")

STOP_STRINGS = {
    "qwen": ("<|im_end|>", "<|im_start|>"),
    **dict.fromkeys(("r1_zero", "sec", "sec_math", "luffy", "prime"), _R1_STOP),
}
"""The strings that begin the next turn of a template, by its name. A response in evaluation ends there. A
template that is not listed, such as ``plain`` or a user's own, has no known turns.
"""


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that prompts need."""

    eos_token_id: int
    """The token that ends a response."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of ``text``; with special tokens, also those that the model expects at its start."""
        ...

    def __call__(
        self, text: str, *, add_special_tokens: bool, return_offsets_mapping: bool
    ) -> Mapping[str, Any]:
        """``input_ids`` of ``text``, and in ``offset_mapping`` where each token starts and ends in it."""
        ...

    def decode(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        """The text of tokens."""
        ...

    def apply_chat_template(
        self,
        conversation: Sequence[dict[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        **kwargs: Any,
    ) -> Any:
        """The conversation as text, ending where the assistant's turn begins."""
        ...

    def __hash__(self) -> int:
        """Tokenizers must be hashable, because results about them are cached."""
        ...


@functools.cache  # a file is read once, however many prompts use it
def template_text(template: str) -> str:
    """The text of a template.

    Args:
        template: Its name, the file that holds it, or the import path of a text (``seele.plugins``).

    Raises:
        ConfigError: For ``chat``, whose text only the tokenizer has, for anything else that is not one of
            these, and for a text that is not UTF-8 or lacks ``{question}``.
    """
    if template in TEMPLATES:
        return TEMPLATES[template]
    text = _text_of_part(template) if _is_part(template) else _text_of_file(template)
    if QUESTION not in text:
        raise ConfigError(f"{template}: a prompt template needs {QUESTION} where the question goes")
    return text


def absolute_template(template: str) -> str:
    """The same template, found from any working folder."""
    file = template_file(template)
    return absolute(template) if file is None else str(file)


def template_file(template: str) -> Path | None:
    """The text file that holds the template; None for a name and an import path."""
    is_file = template not in TEMPLATES and template != CHAT and not _is_part(template)
    return Path(template).resolve() if is_file else None


def _is_part(template: str) -> bool:
    if template in installed_names(ENTRY_POINTS):
        return True
    return is_import_path(template) and not os.path.isfile(template)


def _text_of_part(template: str) -> str:
    text = find_part(template, key="seele.prompt.template", group=ENTRY_POINTS, built_in={})
    if not isinstance(text, str):
        raise ConfigError(f"{template}: a prompt template must be a text, got {type(text).__name__}")
    return text


def _text_of_file(template: str) -> str:
    # Path.is_file raises if a whole template's text is passed, which is too long for a file name.
    if template == CHAT or not os.path.isfile(template):
        known = sorted([*TEMPLATES, CHAT, *installed_names(ENTRY_POINTS)])
        raise ConfigError(
            f"unknown prompt template {template[:80]!r}; allowed are {known}, "
            f"package.module:NAME, path/to/file.py:NAME and a text file with {QUESTION} in it"
        )
    try:
        return Path(template).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{template}: a prompt template must be a text in UTF-8 ({error})") from error


def check_template(template: str) -> None:
    """Raise ``ConfigError`` unless ``template`` is known."""
    if template != CHAT:
        template_text(template)


def render_prompt(question: str, template: str) -> str:
    """The prompt's text, for every template but ``chat``, which only a tokenizer can render.

    Raises:
        ConfigError: As in ``template_text``.
    """
    return template_text(template).replace(QUESTION, question)


def ask_with_hint(hint_request: str, question: str, hint: str) -> str:
    """The user's turn for a problem with a hint: ``seele.hints.request`` filled in."""
    before, _, behind = hint_request.partition(HINT)
    return f"{before.replace(QUESTION, question)}{hint.strip()}{behind.replace(QUESTION, question)}"


def asks_for_box(template: str, chat: Chat) -> bool:
    """Return True if the text around every question asks for a box.

    Raises:
        ConfigError: As in ``template_text``.
    """
    around = f"{chat.system or ''}{chat.ask}" if template == CHAT else template_text(template)
    return BOX in around


def box_templates() -> list[str]:
    """Names of the built-in templates with a text that asks for a box."""
    return sorted(name for name, text in TEMPLATES.items() if BOX in text)


def chat_messages(question: str, chat: Chat) -> list[dict[str, str]]:
    """The conversation before the assistant's turn."""
    system = [] if chat.system is None else [{"role": "system", "content": chat.system}]
    return [*system, {"role": "user", "content": question + box_request(question, chat)}]


def box_request(question: str, chat: Chat) -> str:
    """The text behind the question that asks for a box; empty if the question or the system message does."""
    return f"\n{chat.ask}" if chat.ask and BOX not in f"{chat.system or ''}{question}" else ""


def prompt_text(tokenizer: Tokenizer, question: str, template: str, chat: Chat = NO_CHAT) -> str:
    """The prompt's text, for every template; ``chat`` is used with the template of that name.

    Raises:
        ConfigError: If the template is unknown, or closes the thoughts that ``chat`` wants open.
    """
    if template == CHAT:
        text: str = tokenizer.apply_chat_template(
            chat_messages(question, chat), tokenize=False, add_generation_prompt=True, **chat.kwargs
        )
        return _with_open_thoughts(text) if chat.open_thinking else text
    return render_prompt(question, template)


def _with_open_thoughts(prompt: str) -> str:
    """The prompt with ``<think>`` at its end, as a thinking model begins its turn."""
    if prompt.rstrip().endswith(CLOSED_THOUGHTS):
        raise ConfigError(
            "open_thinking: true, but the chat template ends the prompt with closed thoughts, as with "
            "enable_thinking=false (data.apply_chat_template_kwargs); switch one of the two"
        )
    return prompt if prompt.rstrip().endswith(OPEN_THOUGHTS) else f"{prompt}{OPEN_THOUGHTS}\n"


def encode_text(tokenizer: Tokenizer, prompt: str, template: str) -> list[int]:
    """Token ids of a prompt's text; a chat template itself adds the start of the sequence."""
    return tokenizer.encode(prompt, add_special_tokens=template != CHAT)


def stop_strings(template: str, tokenizer: Tokenizer | None) -> tuple[str, ...]:
    """The strings that end a response under ``template``; empty if only the end of the sequence does.

    For ``chat`` it is the text that the tokenizer's template writes after an answer. Without a tokenizer it
    is empty: a chat server ends its own turns.
    """
    if template != CHAT:
        return STOP_STRINGS.get(template, ())
    if tokenizer is None:
        return ()
    turns = [{"role": "user", "content": "question"}, {"role": "assistant", "content": _ANSWER}]
    text: str = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=False)
    _, found, behind = text.rpartition(_ANSWER)
    return (behind.strip(),) if found and behind.strip() else ()


def encode_prompt(tokenizer: Tokenizer, question: str, template: str, chat: Chat = NO_CHAT) -> list[int]:
    """Token ids of the prompt, ending just before the assistant's first token.

    Raises:
        ConfigError: If the template is unknown.
    """
    return encode_text(tokenizer, prompt_text(tokenizer, question, template, chat), template)
