"""An update of the policy on worked solutions alone, between two RL steps (``seele.interleave``).

It is one step of the actor's optimizer, through verl's worker and TransferQueue; the learning rate schedule
counts only RL steps. ``seele.methods.interleave`` decides which problems it learns.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.workers.engine_workers import ActorRolloutRefWorker

from seele_verl.columns import rows_apart
from seele_verl.data_only import reading_data_only
from seele_verl.losses import solution_loss
from seele_verl.protocol import forward_row


class ActorWorker(ActorRolloutRefWorker):
    """verl's worker, which also learns worked solutions, and never executes code from a checkpoint."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Load the actor's shards."""
        with reading_data_only(self.config.actor.strategy):
            super().load_checkpoint(*args, **kwargs)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def learn_solutions(self, data: TensorDict) -> TensorDict | None:
        """Make one optimizer step on all rows, under ``solution_loss`` in place of the run's loss."""
        of_run = self.actor.loss_fn
        self.actor.loss_fn = solution_loss
        try:
            # verl's step for one batch: unlike its loop over mini-batches, it does not advance the schedule.
            output: TensorDict | None = self.actor.train_batch(data)
        finally:
            self.actor.loss_fn = of_run
        return output


class Solution(NamedTuple):
    """A problem's prompt and its solution as a response, as tokens."""

    prompt_ids: list[int]
    response_ids: list[int]


def learn_solutions(workers: Any, solutions: Sequence[Solution], *, temperature: float) -> dict[str, float]:
    """Make the update.

    Args:
        workers: verl's group of actors.
        solutions: Solutions whose number divides evenly over the training ranks.
        temperature: The rollouts' temperature, by which every update divides the logits.

    Returns:
        ``loss``, the mean negative log-likelihood of the solutions' tokens before the update, and
        ``grad_norm``, before clipping.
    """
    rows = [forward_row(*map(torch.tensor, solution)) for solution in solutions]
    with rows_apart(rows, "solutions") as batch:
        batch.extra_info.update(calculate_entropy=False, temperature=temperature)
        metrics = workers.learn_solutions(batch)["metrics"]
    return {name: metrics[name] for name in ("loss", "grad_norm")}
