"""Client for servers with OpenAI's interface: one request, its reply, and retries of transient failures.

Callers write the requests and use the text of the replies.
"""

from seele.endpoint.http import (
    API_KEY,
    Endpoint,
    PassingError,
    RefusedError,
    Reply,
    RequestRefusedError,
    UncountedError,
    exchange,
    read_reply,
)
from seele.endpoint.retries import GaveUpError, Patience, StoppedError

__all__ = [
    "API_KEY",
    "Endpoint",
    "GaveUpError",
    "PassingError",
    "Patience",
    "RefusedError",
    "Reply",
    "RequestRefusedError",
    "StoppedError",
    "UncountedError",
    "exchange",
    "read_reply",
]
