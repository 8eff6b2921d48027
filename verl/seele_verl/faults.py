"""Ends the run on a fault of a user's own part, wherever it happens; and how Ray reports a death.

A prompt that fails is skipped in its step. A part that raises, or returns nonsense, would fail again.
A rollout worker stores such a fault beside verl's rows. The trainer, which polls for the step's groups, finds
it at its next poll. If a Ray task raised it, the trainer finds it in the task's error.
"""

from collections.abc import Callable

import ray
import transfer_queue as tq
from ray.exceptions import ActorDiedError, OutOfMemoryError
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from seele.errors import PluginError

FAULT = "fault"
"""verl's key and the tag of a fault, in the partition of its step."""
DEATHS = (ActorDiedError, OutOfMemoryError)
"""What a call to a dead process raises; the second if Ray's memory monitor killed it."""


def plugin_fault(error: BaseException) -> PluginError | None:
    """Return the fault of a user's part that caused an error; None for any other error."""
    if isinstance(error, ray.exceptions.RayTaskError):
        return plugin_fault(error.cause) if error.cause is not error else None
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(plugin_fault, error.exceptions)), None)
    return error if isinstance(error, PluginError) else None


def describe(error: BaseException) -> str:
    """Return the first cause of an error, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ray.exceptions.RayTaskError) and error.cause is not error:
        return describe(error.cause)
    return f"{type(error).__name__}: {error}".splitlines()[0]


async def report_fault(fault: PluginError, *, partition_id: str) -> None:
    """Store a fault where the trainer finds it."""
    await tq.async_kv_put(key=FAULT, partition_id=partition_id, tag={FAULT: str(fault)})


def watch_for_faults(
    buffer: ReplayBuffer, *, on_news: Callable[[], None], on_look: Callable[[], None]
) -> None:
    """Make the buffer raise a fault that a worker has reported, as ``PluginError``, at each poll.

    Args:
        buffer: verl's buffer, which polls for rows until a step has all of them.
        on_news: Called if rows have come or gone since the last poll.
        on_look: Called at each poll.
    """
    look = buffer._sync_metadata_from_transfer_queue
    seen = 0

    def look_and_raise() -> None:
        nonlocal seen
        look()
        num_rows = sum(map(len, buffer.partitions.values()))
        if num_rows != seen:
            seen = num_rows
            on_news()
        for rows in buffer.partitions.values():
            if FAULT in rows:
                raise PluginError(rows[FAULT][FAULT])
        on_look()

    buffer._sync_metadata_from_transfer_queue = look_and_raise
