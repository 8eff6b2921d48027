"""Servers that speak OpenAI's interface: one exchange, the reply that it brings, patience with what may pass.

What is asked, and what is done with the text that comes, is the caller's.
"""

from seele.endpoint.http import (
    API_KEY,
    Endpoint,
    PassingError,
    RefusedError,
    RequestRefusedError,
    exchange,
)
from seele.endpoint.reply import Reply, read_reply
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
    "exchange",
    "read_reply",
]
