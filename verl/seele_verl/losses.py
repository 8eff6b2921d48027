"""The actor's loss: verl's own clipped surrogate and KL on generated tokens, plus the imitation term on
hint tokens.
"""

from typing import Any

from tensordict import TensorDict
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss

from seele.config import ImitationConfig
from seele.losses.imitation import imitation_loss
from seele_verl.protocol import HINT_WEIGHTS


def seele_loss(
    config: ActorConfig,
    model_output: dict[str, Any],
    data: TensorDict,
    dp_group: Any = None,
    *,
    imitation: ImitationConfig,
) -> tuple[Any, dict[str, Any]]:
    """verl's ``ppo_loss`` + gamma * imitation (arXiv:2509.06923, Eq. 10); installed with ``set_loss_fn``.

    Generated tokens carry the clipped surrogate under the hinted prompt, hint tokens never the advantage.
    The micro-batches' losses are summed and FSDP averages over ranks, hence the factor ``dp_size`` over the
    global batch, as in verl's own aggregation.
    """
    # Before ppo_loss: it narrows ``data`` to the fields that it needs.
    weights_T = data[HINT_WEIGHTS].values()
    log_probs_T = model_output["log_probs"].values()
    num_sequences = data["global_batch_size"] / data["dp_size"]
    loss, metrics = ppo_loss(config, model_output, data, dp_group)
    imitated = imitation_loss(log_probs_T, weights_T, num_sequences=num_sequences)
    metrics["imitation_loss"] = Metric(value=imitated.detach(), aggregation=AggregationType.SUM)
    return loss + imitation.coefficient * imitated, metrics
