"""Send one JSON request over HTTP and read the JSON reply, or raise an error that names the remedy.

The key comes from an environment variable. It is sent to the named server only, and is cut out of the
server's messages.
"""

import email.utils
import errno
import http.client
import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from seele.errors import ConfigError
from seele.records import Finish

API_KEY = "OPENAI_API_KEY"
"""Environment variable that holds the server's key, if the server requires one."""

# Statuses below 500 that may be transient: request time-out, conflict, too early, too many requests.
_MAY_PASS = frozenset({408, 409, 425, 429})
# Statuses that concern one request: malformed or filtered, too long, not understood.
_ABOUT_THE_REQUEST = frozenset({400, 413, 422})
# After other failures, such as a gateway's, the server may have done the work.
_UNPAID = frozenset({429, 500, 503})

_LONGEST_REPLY_BYTES = 2**26
# 32 years; a socket takes no infinity.
_LONGEST_TIMEOUT_S = 1e9
_SHOWN_CHARS = 500


class PassingError(Exception):
    """A transient failure: the next attempt may succeed."""

    retry_after_s: float | None = None
    """Seconds that the server asks to wait; None if it names no time."""
    is_unpaid = False
    """True if the server certainly did not do the work, by its status or because it was unreachable."""


class RefusedError(ConfigError):
    """The server rejected the request permanently: a wrong key, address or model, or no credit left."""

    is_unpaid = True
    """True if the server did not do the work."""


class UncountedError(RefusedError):
    """The server's completions have no token count, without which costs and lengths are unknown."""

    is_unpaid = False


class RequestRefusedError(RefusedError):
    """The server rejected this request, but may accept others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server's address, key and time limit."""

    url: str
    """Base address, which usually ends in ``/v1``."""
    key_variable: str = API_KEY
    timeout_s: float = 3600.0
    """Limit for one exchange, from the first byte sent to the last byte read."""

    def __post_init__(self) -> None:
        if not _is_address(self.url):
            raise ConfigError(
                f"{self.url!r} is not a server's address; expected one such as 'http://localhost:8000/v1', "
                "with http:// or https:// and a host, in ASCII without spaces"
            )
        if not 0.0 < self.timeout_s <= _LONGEST_TIMEOUT_S:
            raise ConfigError(
                f"timeout_s must be above 0 and at most {_LONGEST_TIMEOUT_S:,.0f} seconds, got "
                f"{self.timeout_s}"
            )
        # An error that quotes the header would escape such characters, so the key could not be cut out.
        if not (self.key.isascii() and self.key.isprintable()):
            raise ConfigError(
                f"the key in {self.key_variable} has characters that an HTTP header cannot hold; expected "
                "printable ASCII on one line, so set the variable again"
            )

    @property
    def key(self) -> str:
        """The variable's value without surrounding whitespace; may be empty."""
        return os.environ.get(self.key_variable, "").strip()


def exchange(endpoint: Endpoint, path: str, payload: Any = None) -> Any:
    """POST ``payload``, or GET if it is None, and return the JSON value of the reply.

    Raises:
        PassingError: If the server is busy, broken, slow or unreachable.
        RefusedError: If the server rejects the request.
    """
    key = endpoint.key
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    body = None if payload is None else json.dumps(payload).encode()
    where = endpoint.url.rstrip("/") + path
    call = urllib.request.Request(where, data=body, headers=headers)
    deadline_s = time.monotonic() + endpoint.timeout_s
    try:
        with _OPENER.open(call, timeout=endpoint.timeout_s) as reply:
            return json.loads(_read_body(reply, deadline_s))
    except urllib.error.HTTPError as error:
        raise _status_error(error, where, key) from error
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        passing = PassingError(_without(key, str(error)) or type(error).__name__)
        reason = error.reason if isinstance(error, urllib.error.URLError) else None
        passing.is_unpaid = isinstance(reason, ConnectionRefusedError | socket.gaierror | ssl.SSLError) or (
            isinstance(reason, OSError) and reason.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH)
        )
        raise passing from error


def _is_address(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_whole and url.isascii() and url.isprintable() and " " not in url


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treat a redirect as a refusal, because the key is for the named server only."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _read_body(reply: http.client.HTTPResponse, deadline_s: float) -> bytes:
    parts, num_bytes = [], 0
    while part := reply.read1(2**16):
        parts.append(part)
        num_bytes += len(part)
        if time.monotonic() > deadline_s:
            raise TimeoutError("timed out while the reply was being read")
        if num_bytes > _LONGEST_REPLY_BYTES:
            raise ValueError(f"a reply of more than {_LONGEST_REPLY_BYTES} bytes")
    # Unlike read, read1 does not report a reply that is cut off.
    if reply.length:
        raise http.client.IncompleteRead(b"", reply.length)
    return b"".join(parts)


def _status_error(error: urllib.error.HTTPError, where: str, key: str) -> Exception:
    message = _without(key, _beginning(error))[:_SHOWN_CHARS]
    if error.code >= 500 or error.code in _MAY_PASS:
        passing = PassingError(f"status {error.code}: {message}")
        passing.retry_after_s = _seconds(error.headers.get("Retry-After"))
        passing.is_unpaid = error.code in _UNPAID
        return passing
    kind = RequestRefusedError if error.code in _ABOUT_THE_REQUEST else RefusedError
    return kind(f"{where}: refused with status {error.code}: {message}")


def _beginning(reply: IO[bytes]) -> str:
    """Much more of the text than is shown, so that no key in the part that is shown is cut in two."""
    try:
        return reply.read(2**16).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return "(no text)"


def _seconds(retry_after: str | None) -> float | None:
    """Seconds of a ``Retry-After`` header, which holds seconds or a date (RFC 9110, section 10.2.3)."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())  # noqa: TID251
    except ValueError:
        return None


def _without(key: str, text: str) -> str:
    return text.replace(key, "[key]") if key else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply to one prompt."""

    text: str
    """Generated text; may be empty."""
    finish: Finish
    """``STOP`` or ``LENGTH``; ``ERROR`` for any other reason, such as a content filter."""
    tokens_in: int | None
    """Prompt tokens as counted by the server; None if it gives no count."""
    tokens_out: int
    model: str
    """The server's name for the model; empty if it gives none."""


def read_reply(value: Any, *, key: str = "") -> Reply:
    """Read a chat or text completion; errors do not show ``key``, the server's.

    Raises:
        PassingError: If ``value`` is not a completion.
        UncountedError: If it is one without the number of its tokens.
    """
    try:
        choice, usage = value["choices"][0], value.get("usage")
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        if not isinstance(text, str | None):
            raise TypeError
        if not isinstance(usage, Mapping) or usage.get("completion_tokens") is None:
            raise UncountedError(
                "the server's completion lacks 'usage.completion_tokens', the number of generated tokens, so "
                f"another attempt would be paid in vain; got usage {str(usage)[:_SHOWN_CHARS]}; use a server "
                "or a gateway setting that reports usage, as OpenAI's API does"
            )
        tokens_in = usage.get("prompt_tokens")
        return Reply(
            text=text or "",
            finish={"stop": Finish.STOP, "length": Finish.LENGTH}.get(choice["finish_reason"], Finish.ERROR),
            tokens_in=None if tokens_in is None else int(tokens_in),
            tokens_out=int(usage["completion_tokens"]),
            model=str(value.get("model") or ""),
        )
    except UncountedError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise PassingError(f"not a completion: {_without(key, str(value))[:_SHOWN_CHARS]}") from error
