"""What a server made of a prompt, read from the JSON value that it sent."""

from dataclasses import dataclass
from typing import Any

from seele.endpoint.http import PassingError
from seele.records import Finish

_SHOWN_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back for one prompt."""

    text: str
    """Empty where the server or the model kept silent."""
    finish: Finish
    """``ERROR`` for every reason but the two ordinary ones, such as a content filter."""
    tokens_in: int | None
    """Of the prompt, as the server counted them; None where it did not say."""
    tokens_out: int
    model: str
    """What the server calls the model that answered; empty where it did not say."""


def read_reply(value: Any) -> Reply:
    """A completion, of a chat or of a text, as the server returned it.

    Raises:
        PassingError: If it is something else.
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
