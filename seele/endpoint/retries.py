"""Retry calls that fail temporarily, with growing waits."""

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from seele.endpoint.http import PassingError
from seele.errors import DataError

T = TypeVar("T")

LONGEST_WAIT_S = 30.0
"""Upper limit of the doubled waits."""
LONGEST_RETRY_AFTER_S = 600.0
"""A server that asks for a longer wait is given up at once."""


class GaveUpError(DataError):
    """The server gave no usable reply in any attempt."""


class StoppedError(Exception):
    """The caller no longer waits for the reply."""


class Patience:
    """Retries calls that raise ``PassingError``, with growing waits. Thread-safe.

    If a server asks for a wait, all threads that share this object wait.
    """

    def __init__(self, *, attempts: int = 11, first_wait_s: float = 0.5) -> None:
        """Set the waits; the defaults give a server between one and three minutes to recover.

        Args:
            attempts: Total number of calls, at least 1.
            first_wait_s: Wait before the second call; doubles with each further call.
        """
        self._attempts, self._first_wait_s = attempts, first_wait_s
        self._not_before_s = 0.0
        self._stopped = threading.Event()
        self._chance = random.Random()

    def insist(self, call: Callable[[], T], *, at: str) -> T:
        """Call until no ``PassingError`` is raised, and return the result.

        Args:
            call: Makes one attempt.
            at: Name of the server or call, for messages.

        Raises:
            GaveUpError: After the last attempt.
            StoppedError: If ``stop`` was called before the next attempt.
        """
        for attempt in range(1, self._attempts + 1):
            self._wait(self._not_before_s - time.monotonic())
            try:
                return call()
            except PassingError as error:
                asked_s = error.retry_after_s or 0.0
                if attempt == self._attempts or asked_s > LONGEST_RETRY_AFTER_S:
                    raise GaveUpError(f"{at}: gave up after {attempt} attempts: {error}") from error
                self._not_before_s = max(self._not_before_s, time.monotonic() + asked_s)
                wait_s = min(self._first_wait_s * 2 ** (attempt - 1), LONGEST_WAIT_S)
                # Randomised, because threads that failed together would fail together again.
                self._wait(wait_s * self._chance.uniform(0.5, 1.0))
        raise AssertionError("the last attempt returns or raises")

    def stop(self) -> None:
        """End all waits and make no further calls."""
        self._stopped.set()

    def check(self) -> None:
        """Raise if stopped; for calls that have waited for something else.

        Raises:
            StoppedError: If ``stop`` was called.
        """
        self._wait(0.0)

    def _wait(self, seconds: float) -> None:
        if self._stopped.wait(max(0.0, seconds)):
            raise StoppedError
