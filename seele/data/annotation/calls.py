"""The calls of an annotation: whom to ask, for what, with which settings, and what each call is known by.

A call is known by its content: model, prompt, settings and number of the attempt. Two problems that read the
same are one task.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seele.data.annotation.prompt import AnnotatorPrompt
from seele.data.annotation.reply import Prompt
from seele.endpoint import Endpoint
from seele.errors import ConfigError
from seele.records import Instance

# Fewer than English and LaTeX have in most vocabularies (3 to 4), so that estimates are rather too high.
BYTES_PER_TOKEN = 3.0

# What the settings themselves say, or what would bring another kind of reply.
_NOT_EXTRA = frozenset({"model", "messages", "n", "stream"})


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked about one problem, and what its reply must come to. Equal ones are asked once."""

    prompt: str
    answer: str
    data_source: str
    instance: Instance = field(compare=False)
    """The problem, or one of those that read the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One completion to pay for."""

    key: str
    model: str
    payload: Mapping[str, Any]
    tokens_in: int
    """Of the prompt, estimated."""
    tokens_out: int
    """Most that the reply can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """Whom to ask and how."""

    endpoint: Endpoint
    model: str
    prompt: Prompt = field(default_factory=AnnotatorPrompt)
    temperature: float = 0.0
    """Of the first attempt at a problem."""
    retry_temperature: float = 0.7
    """Of the others: where nothing is drawn, the same would come again."""
    max_tokens: int = 4096
    """Longest reply."""
    attempts: int = 3
    """Replies that a problem may cost before it is left out."""
    seed: int = 0
    """The number of the attempt is added to it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request beside ours, or instead of them; null leaves a field out."""

    def __post_init__(self) -> None:
        for name in ("max_tokens", "attempts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"annotation: {name} must be at least 1, got {getattr(self, name)}")
        for name in ("temperature", "retry_temperature"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"annotation: {name} must be 0 or above, got {getattr(self, name)}")
        if wrong := sorted(_NOT_EXTRA.intersection(self.extra)):
            raise ConfigError(f"annotation: {wrong} cannot be set as extra fields of the request")

    def task(self, instance: Instance) -> Task:
        """What to ask about a problem."""
        return Task(self.prompt.render(instance), instance.answer, instance.data_source, instance)

    def call(self, task: Task, attempt: int) -> Call:
        """The call of one attempt, counted from 0."""
        payload = {
            "model": self.model,
            "messages": [{"role": "user", "content": task.prompt}],
            "temperature": self.retry_temperature if attempt else self.temperature,
            "max_tokens": self.max_tokens,
            "seed": self.seed + attempt,
        } | dict(self.extra)
        payload = {name: value for name, value in payload.items() if value is not None}
        # What the reply is held against, too: a prompt of the user's own need not hold it.
        content = json.dumps([payload, attempt, task.answer, task.data_source], sort_keys=True)
        return Call(
            key=hashlib.sha256(content.encode()).hexdigest()[:32],
            model=self.model,
            payload=payload,
            tokens_in=estimate_tokens(task.prompt),
            tokens_out=self.max_tokens,
        )


def estimate_tokens(text: str) -> int:
    """Tokens of a text without knowing the vocabulary: one for every three bytes of its UTF-8, rounded up."""
    return math.ceil(len(text.encode(errors="replace")) / BYTES_PER_TOKEN)
