"""What an engine is asked and what it answers: requests, prompts as token ids, responses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seele.errors import ConfigError, DataError
from seele.records import Finish
from seele.rollout.solutions import encode_problem
from seele.rollout.templates import CHAT, Tokenizer


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request as token ids."""

    token_ids: list[int]
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What came back for one request."""

    text: str
    num_tokens: int
    finish: Finish


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
    from transformers import AutoConfig, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
        # A model that also sees has its context in a configuration of its own for text.
        context_limit = AutoConfig.from_pretrained(model).get_text_config().max_position_embeddings
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{model}: not a model folder that transformers can read: {error}") from error
    if CHAT in {request.template for request in requests} and not tokenizer.chat_template:
        raise ConfigError(f"--template {CHAT}: the tokenizer of {model} has no chat template; name another")
    prompts = [
        Prompt(token_ids=_encode(tokenizer, request), temperature=request.temperature, seed=request.seed)
        for request in requests
    ]
    _check_context(model, longest_prompt(prompts), max_tokens=max_tokens, context_limit=context_limit)
    return prompts


def longest_prompt(prompts: Sequence[Prompt]) -> int:
    """Tokens of the longest prompt."""
    return max(len(prompt.token_ids) for prompt in prompts)


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
    encoded = encode_problem(tokenizer, request.question, request.steps, request.template)
    return encoded.prompt_ids + encoded.hint(request.hint_steps)
