"""Calls in threads that nothing waits for: each starts at once, and the process may end without it.

The threads of ``concurrent.futures`` and asyncio are joined when the process ends, however long they run.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start_call(call: Callable[[], T]) -> Future[T]:
    """Start a call in a daemon thread of its own, and return its future result, which cannot be cancelled."""
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result
