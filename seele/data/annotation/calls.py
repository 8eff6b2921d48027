"""The calls of an annotation: endpoint, prompt and settings, and the key that identifies each call.

A call is identified by its content: model, prompt, settings and attempt number. Two problems with the same
text are one task.
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

# At the low end for English and LaTeX in most vocabularies (3 to 4), so estimates tend to be too high.
BYTES_PER_TOKEN = 3.0

# Fields that the settings determine, or that would change the kind of reply.
_NOT_EXTRA = frozenset({"model", "messages", "n", "stream"})


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked about one problem, and the answer its reply must reach. Equal tasks are asked once."""

    prompt: str
    answer: str
    data_source: str
    instance: Instance = field(compare=False)
    """The problem, or one of several with the same text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One completion to pay for."""

    key: str
    model: str
    payload: Mapping[str, Any]
    tokens_in: int
    """Estimated tokens of the prompt."""
    tokens_out: int
    """Most tokens that the reply can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """The endpoint and model to ask, and the settings of a request."""

    endpoint: Endpoint
    model: str
    prompt: Prompt = field(default_factory=AnnotatorPrompt)
    temperature: float = 0.0
    """Temperature of the first attempt at a problem."""
    retry_temperature: float = 0.7
    """Temperature of later attempts; greedy decoding would repeat the reply."""
    max_tokens: int = 4096
    """Most tokens of a reply."""
    attempts: int = 3
    """Replies that a problem may take before it is skipped."""
    seed: int = 0
    """Seed of the first attempt; the attempt number is added to it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields that are added to the request or replace ours; null omits a field."""

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
        """Return the task for a problem."""
        return Task(self.prompt.render(instance), instance.answer, instance.data_source, instance)

    def call(self, task: Task, attempt: int) -> Call:
        """Return the call of one attempt, counted from 0."""
        payload = {
            "model": self.model,
            "messages": [{"role": "user", "content": task.prompt}],
            "temperature": self.retry_temperature if attempt else self.temperature,
            "max_tokens": self.max_tokens,
            "seed": self.seed + attempt,
        } | dict(self.extra)
        payload = {name: value for name, value in payload.items() if value is not None}
        # Include what the reply is judged against: a custom prompt need not contain it.
        content = json.dumps([payload, attempt, task.answer, task.data_source], sort_keys=True)
        return Call(
            key=hashlib.sha256(content.encode()).hexdigest()[:32],
            model=self.model,
            payload=payload,
            tokens_in=estimate_tokens(task.prompt),
            tokens_out=self.max_tokens,
        )


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text without its vocabulary: one per three bytes of UTF-8, rounded up."""
    return math.ceil(len(text.encode(errors="replace")) / BYTES_PER_TOKEN)
