"""Calls that are tried again, after growing waits, while there is hope."""

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from seele.endpoint.http import PassingError
from seele.errors import DataError

T = TypeVar("T")


class GaveUpError(DataError):
    """The server gave no usable reply, however often it was asked."""


class StoppedError(Exception):
    """Nobody waits for the reply any more."""


class Patience:
    """Calls again, after growing waits, what may pass. Thread-safe.

    A server that asks to be left alone is left alone by all threads that share this object.
    """

    def __init__(
        self,
        *,
        attempts: int = 11,
        first_wait_s: float = 0.5,
        longest_wait_s: float = 30.0,
        longest_retry_after_s: float = 600.0,
    ) -> None:
        """By default about three minutes for a server to come back.

        Args:
            attempts: Calls in all, at least 1.
            first_wait_s: Before the second call; doubled from call to call.
            longest_wait_s: Where doubling ends.
            longest_retry_after_s: Where a server asks for more, it is given up at once.
        """
        self._attempts, self._first_wait_s = attempts, first_wait_s
        self._longest_wait_s, self._longest_retry_after_s = longest_wait_s, longest_retry_after_s
        self._not_before_s = 0.0
        self._stopped = threading.Event()
        self._chance = random.Random()

    def insist(self, call: Callable[[], T], *, at: str) -> T:
        """What ``call`` returns as soon as it raises no ``PassingError``.

        Args:
            call: Tries once.
            at: Names what is called, for the message.

        Raises:
            GaveUpError: After the last attempt.
            StoppedError: If ``stop`` was called before ``call`` could be.
        """
        for attempt in range(1, self._attempts + 1):
            self._wait(self._not_before_s - time.monotonic())
            try:
                return call()
            except PassingError as error:
                asked_s = error.retry_after_s or 0.0
                if attempt == self._attempts or asked_s > self._longest_retry_after_s:
                    raise GaveUpError(f"{at}: gave up after {attempt} attempts: {error}") from error
                self._not_before_s = max(self._not_before_s, time.monotonic() + asked_s)
                wait_s = min(self._first_wait_s * 2 ** (attempt - 1), self._longest_wait_s)
                # Not all at once: threads that failed together would fail together again.
                self._wait(wait_s * self._chance.uniform(0.5, 1.0))
        raise AssertionError("the last attempt returns or raises")

    def stop(self) -> None:
        """End all waits, and let nothing be called any more."""
        self._stopped.set()

    def check(self) -> None:
        """For a call that has waited for something else.

        Raises:
            StoppedError: If ``stop`` was called.
        """
        self._wait(0.0)

    def _wait(self, seconds: float) -> None:
        if self._stopped.wait(max(0.0, seconds)):
            raise StoppedError
