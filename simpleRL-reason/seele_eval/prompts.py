"""What an engine is asked and what it answers: requests, prompts as token ids, responses."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seele.errors import ConfigError, DataError
from seele.records import Chat, Finish
from seele.reward.extract import opens_thoughts
from seele.rollout.solutions import encode_problem
from seele.rollout.stop import text_before_stop
from seele.rollout.templates import CHAT, NO_CHAT, Tokenizer, prompt_text, stop_strings, template_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One completion to draw."""

    question: str
    template: str
    temperature: float
    """0 is greedy."""
    seed: int
    steps: tuple[str, ...] = ()
    """The worked solution, of which the response goes on from ``hint_steps``. Evaluation proper has none."""
    hint_steps: int = 0
    stop: tuple[str, ...] = ()
    """Strings that end the response; they are no part of it."""
    chat: Chat = NO_CHAT
    """What the template ``chat`` is given beside the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request as token ids."""

    token_ids: list[int]
    temperature: float
    seed: int
    stop: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What came back for one request."""

    text: str
    num_tokens: int
    """As generated, also behind a stop string."""
    finish: Finish

    def before_stop(self, stop: Sequence[str]) -> "Response":
        """The response as it counts: nothing behind a stop string, whatever the engine made of it."""
        text = text_before_stop(self.text, stop)
        return self if text == self.text else replace(self, text=text, finish=Finish.STOP)


Responses = Iterator[tuple[int, Response]]
"""Responses as they come, each with the position of its request."""

Complete = Callable[[Sequence[Request]], Responses]
"""Anything that completes requests. It checks them when it is called, and loads what it needs with the first
``next()``.
"""


def encode_requests(model: Path, requests: Sequence[Request], *, max_tokens: int) -> list[Prompt]:
    """The requests' prompts, rendered and encoded as in training.

    Raises:
        DataError: If the folder holds no configuration or tokenizer that transformers can read.
        ConfigError: If a template is unknown or the model has none of its own to chat with, or the longest
            prompt plus ``max_tokens`` exceeds the context.
    """
    from transformers import AutoConfig

    tokenizer = _load_tokenizer(model, {request.template for request in requests})
    try:
        # A model that also sees has its context in a configuration of its own for text.
        context_limit = AutoConfig.from_pretrained(model).get_text_config().max_position_embeddings
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{model}: not a model folder that transformers can read: {error}") from error
    prompts = [
        Prompt(
            token_ids=_encode(tokenizer, request),
            temperature=request.temperature,
            seed=request.seed,
            stop=request.stop,
        )
        for request in requests
    ]
    _check_context(model, longest_prompt(prompts), max_tokens=max_tokens, context_limit=context_limit)
    return prompts


def stop_of(template: str, chosen: Sequence[str] | None, model: Path | None) -> tuple[str, ...]:
    """The strings that end a response: those chosen, else the template's.

    Args:
        template: Of the prompt.
        chosen: None for the template's, empty for none.
        model: Folder whose tokenizer is asked for the end of a turn under ``chat``; None for a server.

    Raises:
        DataError: If the tokenizer is needed and cannot be read.
        ConfigError: If it has no chat template.
    """
    if chosen is not None:
        return tuple(chosen)
    tokenizer = _load_tokenizer(model, {CHAT}) if template == CHAT and model else None
    return stop_strings(template, tokenizer)


def begins_thinking(template: str, chat: Chat, model: Path | None) -> bool:
    """Whether the prompt ends with ``<think>``, so that a response begins within the thoughts.

    Args:
        template: Of the prompt.
        chat: What ``chat`` is given.
        model: Folder whose tokenizer renders ``chat``; None for a server, whose prompts are not known.

    Raises:
        DataError, ConfigError: As ``stop_of``.
    """
    if template != CHAT:
        return opens_thoughts(template_text(template))
    if model is None:
        return False
    return opens_thoughts(prompt_text(_load_tokenizer(model, {CHAT}), "question", CHAT, chat))


def longest_prompt(prompts: Sequence[Prompt]) -> int:
    """Tokens of the longest prompt."""
    return max(len(prompt.token_ids) for prompt in prompts)


def _load_tokenizer(model: Path, templates: Set[str]) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{model}: not a model folder that transformers can read: {error}") from error
    if CHAT in templates and not tokenizer.chat_template:
        raise ConfigError(f"--template {CHAT}: the tokenizer of {model} has no chat template; name another")
    return tokenizer


def _check_context(model: Path, longest: int, *, max_tokens: int, context_limit: int) -> None:
    if longest >= context_limit:
        raise ConfigError(
            f"{model}: the longest prompt ({longest} tokens) does not fit the context of {context_limit}"
        )
    if longest + max_tokens > context_limit:
        raise ConfigError(
            f"--max-tokens {max_tokens} plus the longest prompt ({longest} tokens) exceed the model's "
            f"context of {context_limit}; choose at most {context_limit - longest}"
        )


def _encode(tokenizer: Tokenizer, request: Request) -> list[int]:
    encoded = encode_problem(tokenizer, request.question, request.steps, request.template, request.chat)
    return encoded.prompt_ids + encoded.hint(request.hint_steps)
