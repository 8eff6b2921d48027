"""Manages a run's rollout workers: one that dies is replaced, and its unfinished problems begin again."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import ray
import torch
from ray.exceptions import ActorUnavailableError
from tensordict import TensorDict
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ

from seele_verl.controller_actor import connect_controller
from seele_verl.faults import DEATHS
from seele_verl.rounds_worker import RoundsWorker

MAX_LOSSES = 3
"""Maximum number of workers that a step may lose. More losses have a recurring cause, or a node is lost."""
NOTICE_S = 30
"""Seconds that Ray may need to notice a death: until then it says that the worker is out of reach."""


class RoundsManager(AgentLoopManagerTQ):
    """verl's rollout worker manager, with our workers; set in ``rollout.agent.agent_loop_manager_class``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(RoundsWorker)
        self._step: int | None = None
        self._losses = 0

    async def _init_agent_loop_workers(self) -> None:
        await super()._init_agent_loop_workers()
        self._lives = [worker.live.remote() for worker in self.agent_loop_workers]
        """References that yield an error once the worker is dead."""
        self._sent: list[list[TensorDict]] = [[] for _ in self._lives]
        """The problems that each worker was given in this step."""

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Pass problems to the workers as verl does, without waiting for their rollouts."""
        if self._step != (step := prompts["global_steps"]):
            self._step, self._losses = step, 0
            self._sent = [[] for _ in self._lives]
        for sent, chunk in zip(self._sent, prompts.chunk(len(self._sent)), strict=False):
            sent.append(chunk)
        with self._dispatching():
            super().generate_sequences(prompts)

    @contextmanager
    def _dispatching(self) -> Iterator[None]:
        """Leave a dead worker to the next check. One that is out of reach may have its problems or not: the
        run ends, unless Ray notes within ``NOTICE_S`` that a worker has died.
        """
        try:
            yield
        except DEATHS:
            pass
        except ActorUnavailableError:
            if not ray.wait(self._lives, timeout=NOTICE_S)[0]:
                raise

    def replace_lost_workers(self, unfinished: Collection[str]) -> list[int]:
        """Replace the workers that have died since the last call; their finished rollouts are kept.

        Args:
            unfinished: verl's names for the groups that are not done.

        Returns:
            For each dead worker, the number of problems that its successor begins again.

        Raises:
            RuntimeError: The step has lost more than ``MAX_LOSSES``.
        """
        dead, _ = ray.wait(self._lives, num_returns=len(self._lives), timeout=0)
        return [self._replace(self._lives.index(life), unfinished) for life in dead]

    def _replace(self, index: int, unfinished: Collection[str]) -> int:
        self._losses += 1
        if self._losses > MAX_LOSSES:
            raise RuntimeError(f"{self._losses} rollout workers died in step {self._step}")
        # One that is only out of reach would go on with problems that its successor begins again.
        ray.kill(self.agent_loop_workers[index])
        worker = self.agent_loop_workers_class.remote(
            self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles
        )
        self.agent_loop_workers[index], self._lives[index] = worker, worker.live.remote()
        again = [
            chunk[torch.tensor(rows)]
            for chunk in self._sent[index]
            if (rows := [row for row, uid in enumerate(chunk["uid"]) if uid in unfinished])
        ]
        for chunk in again:
            ray.get(connect_controller().begin_again.remote([*chunk["uid"]]))
            with self._dispatching():
                ray.get(worker.generate_sequences.remote(chunk))
        return sum(map(len, again))
