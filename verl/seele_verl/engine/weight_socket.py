"""Gives each run its own socket for sending weights to the engine, and a limit to the wait for its answers.

verl names the socket after Ray's job (``vllm_rollout.py: ServerAdapter``, ``vLLMHttpServer.__init__``), to
keep runs on one machine apart. But every cluster counts its jobs from 1, so two runs that each start Ray
share the name: one waits forever, or its engine takes the other's weights. The node's identifier tells them
apart, and trainer and engine, which share a node, both know it.

An engine that dies, or fails, while it receives weights never answers, and verl would wait forever.
"""

import functools
import os
from typing import Any

import ray
import zmq

ANSWER_S = 600
"""Longest wait for an engine to take a bucket of weights, or to answer that it has: usually seconds."""
JOB_VARIABLE = "VERL_RAY_JOB_ID"
"""Variable with verl's name for the job in the engine."""
_DIGITS = 12  # of the node's 56: a socket's path has at most 107 characters


def unique_job() -> str:
    """Return Ray's job id with the beginning of this node's identifier."""
    context = ray.get_runtime_context()
    return f"{context.get_job_id()}-{context.get_node_id()[:_DIGITS]}"


def own_socket(handle: str, job: str, unique: str) -> str:
    """Return verl's ``handle`` with ``unique`` in place of ``job``.

    Raises:
        ValueError: If verl does not name its socket after the job.
    """
    before = f"zmq-{job}-"
    if before not in handle:
        raise ValueError(f"verl's socket {handle!r} is not named after the job {job!r}")
    return handle.replace(before, f"zmq-{unique}-")


def receive_on_own_socket() -> None:
    """Use the run's own socket in an engine's server; call it before the server starts the engine."""
    os.environ[JOB_VARIABLE] = unique_job()


def send_on_own_socket() -> None:
    """Use the run's own socket in a process of the trainer; call it before the process sends weights. An
    engine that does not answer for ``ANSWER_S`` is a ``TimeoutError``.
    """
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    init, open_socket = BucketedWeightSender.__init__, BucketedWeightSender._init_socket
    send = BucketedWeightSender.async_send_weights

    @functools.wraps(init)
    def init_with_own_socket(self: Any, zmq_handle: str, *args: Any, **kwargs: Any) -> None:
        job = ray.get_runtime_context().get_job_id()
        init(self, own_socket(zmq_handle, job, unique_job()), *args, **kwargs)

    @functools.wraps(open_socket)
    def open_with_limit(self: Any) -> None:
        open_socket(self)
        for limit in (zmq.RCVTIMEO, zmq.SNDTIMEO):
            self.socket.setsockopt(limit, int(ANSWER_S * 1000))

    @functools.wraps(send)
    async def send_with_limit(self: Any, weights: Any) -> None:
        try:
            await send(self, weights)
        except zmq.Again as error:
            raise TimeoutError(f"the engine took no weights for {ANSWER_S:g} s; it may have died") from error

    BucketedWeightSender.__init__ = init_with_own_socket
    BucketedWeightSender._init_socket = open_with_limit
    BucketedWeightSender.async_send_weights = send_with_limit
