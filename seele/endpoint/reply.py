"""Read a completion from a server's JSON reply."""

from dataclasses import dataclass
from typing import Any

from seele.endpoint.http import PassingError
from seele.records import Finish

_SHOWN_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply to one prompt."""

    text: str
    """Generated text; may be empty."""
    finish: Finish
    """``STOP`` or ``LENGTH``; ``ERROR`` for any other reason, such as a content filter."""
    tokens_in: int | None
    """Prompt tokens by the server's count; None if it gives none."""
    tokens_out: int
    model: str
    """The server's name of the model; empty if it gives none."""


def read_reply(value: Any) -> Reply:
    """Read a chat or text completion.

    Raises:
        PassingError: If ``value`` is not a completion.
    """
    try:
        choice, usage = value["choices"][0], value["usage"]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        if not isinstance(text, str | None):
            raise TypeError
        tokens_in = usage.get("prompt_tokens")
        return Reply(
            text=text or "",
            finish={"stop": Finish.STOP, "length": Finish.LENGTH}.get(choice["finish_reason"], Finish.ERROR),
            tokens_in=None if tokens_in is None else int(tokens_in),
            tokens_out=int(usage["completion_tokens"]),
            model=str(value.get("model") or ""),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise PassingError(f"not a completion: {str(value)[:_SHOWN_CHARS]}") from error
