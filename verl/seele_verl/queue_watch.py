"""Ends a run whose queue has lost a process, because TransferQueue would wait for its answer forever."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from transfer_queue import interface

from seele_verl.faults import DEATHS

PERIOD_S = 5.0


@contextmanager
def watched_queue(period_s: float = PERIOD_S) -> Iterator[None]:
    """Watch the queue's processes. For the main thread of the process that started the queue.

    A call that waits for a dead process is interrupted. A process that lives but does not answer is left to
    ``trainer.watchdog_minutes``.

    Args:
        period_s: Seconds between two checks.

    Raises:
        RuntimeError: A process of the queue has died.
    """
    units = (interface._TQ_STORAGE or {}).get("SimpleStorage", {})
    handles = {"controller": interface._TQ_CONTROLLER, **{f"storage unit {key}": units[key] for key in units}}
    over, lock, lost, main = threading.Event(), threading.Lock(), list[str](), threading.get_ident()

    def look() -> None:
        while not (lost or over.wait(period_s)):
            lost.extend(name for name, handle in handles.items() if _has_died(handle, period_s))
        with lock:
            if not over.is_set():
                signal.pthread_kill(main, signal.SIGUSR2)

    # KeyboardInterrupt is the only error that Ray lets out of its own calls.
    before = signal.signal(signal.SIGUSR2, signal.default_int_handler)
    threading.Thread(target=look, name="watch the queue", daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        if not lost:
            raise
        raise RuntimeError(f"the queue's {' and '.join(lost)} died") from None
    finally:
        with lock:
            over.set()
        signal.signal(signal.SIGUSR2, before)


def _has_died(handle: Any, patience_s: float) -> bool:
    answer = handle.get_zmq_server_info.remote()
    answered, _ = ray.wait([answer], timeout=patience_s)
    try:
        ray.get(answered)
    except DEATHS:
        return True
    except ray.exceptions.ActorUnavailableError:
        return False  # for the moment; the next check asks again
    return False
