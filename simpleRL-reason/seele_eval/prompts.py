"""Requests, prompts as token ids, and responses of an engine."""

import sys
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seele.errors import ConfigError, DataError
from seele.records import Chat, Finish
from seele.reward.extract import opens_thoughts
from seele.rollout.sampling import text_before_stop
from seele.rollout.solutions import encode_problem
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
    """The worked solution, which the response continues after ``hint_steps``. Empty in an evaluation."""
    hint_steps: int = 0
    stop: tuple[str, ...] = ()
    """Strings that end the response, which excludes them."""
    chat: Chat = NO_CHAT
    """Further inputs of the template ``chat``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request as token ids."""

    token_ids: list[int]
    temperature: float
    seed: int
    stop: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The response to one request."""

    text: str
    num_tokens: int
    """Number of generated tokens, including any after a stop string."""
    finish: Finish

    def before_stop(self, stop: Sequence[str]) -> "Response":
        """The response cut before its first stop string, for engines that do not cut it."""
        text = text_before_stop(self.text, stop)
        return self if text == self.text else replace(self, text=text, finish=Finish.STOP)


Responses = Iterator[tuple[int, Response]]
"""Responses as they come, each with the position of its request."""

Complete = Callable[[Sequence[Request]], Responses]
"""A function that completes requests. The call checks them; the first ``next()`` loads the engine."""


def encode_requests(model: Path, requests: Sequence[Request], *, max_tokens: int) -> list[Prompt]:
    """The requests' prompts, rendered and encoded as in training.

    Raises:
        DataError: If the folder holds no configuration or tokenizer that transformers can read.
        ConfigError: If a template is unknown or the model has no chat template, or the longest
            prompt plus ``max_tokens`` exceeds the context.
    """
    from transformers import AutoConfig

    tokenizer = _load_tokenizer(model, {request.template for request in requests})
    try:
        # A multimodal model has its context length in a separate text configuration.
        config = AutoConfig.from_pretrained(model).get_text_config()
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{model}: not a model folder that transformers can read: {error}") from error
    context_limit = getattr(config, "max_position_embeddings", None)
    prompts = [
        Prompt(
            token_ids=_encode(tokenizer, request),
            temperature=request.temperature,
            seed=request.seed,
            stop=request.stop,
        )
        for request in requests
    ]
    if context_limit is None:
        sys.stderr.write(
            f"{model}: its configuration has no max_position_embeddings, so its context is unknown; "
            "prompts and responses are not checked against it\n"
        )
    else:
        _check_context(model, longest_prompt(prompts), max_tokens=max_tokens, context_limit=context_limit)
    return prompts


def stop_of(template: str, chosen: Sequence[str] | None, model: Path | None) -> tuple[str, ...]:
    """The strings that end a response: those chosen, else the template's.

    Args:
        template: The prompt's template.
        chosen: None for the template's strings; empty for no string.
        model: Folder of the tokenizer that names the end of a turn under ``chat``; None for a server.

    Raises:
        DataError: If the tokenizer is needed and cannot be read.
        ConfigError: If it has no chat template.
    """
    if chosen is not None:
        return tuple(chosen)
    tokenizer = _load_tokenizer(model, {CHAT}) if template == CHAT and model else None
    return stop_strings(template, tokenizer)


def begins_thinking(template: str, chat: Chat, model: Path | None) -> bool:
    """Return True if the prompt ends with ``<think>``, so that a response starts inside the thoughts.

    Args:
        template: The prompt's template.
        chat: Further inputs of the template ``chat``.
        model: Folder of the tokenizer that renders ``chat``; None for a server, whose prompts are unknown.

    Raises:
        DataError, ConfigError: As ``stop_of``.
    """
    if template != CHAT:
        return opens_thoughts(template_text(template))
    if model is None:
        return False
    return opens_thoughts(prompt_text(_load_tokenizer(model, {CHAT}), "question", CHAT, chat))


def longest_prompt(prompts: Sequence[Prompt]) -> int:
    """Number of tokens in the longest prompt."""
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
