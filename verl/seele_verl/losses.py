"""The actor's loss: verl's own ``ppo_loss`` on the tokens that the policy wrote, plus the run's terms.

Axes: B sequences of a micro-batch, R tokens of its longest response, T tokens of all its sequences,
concatenated. verl passes nested tensors, whose rows have a sequence's or a response's own length.
"""

import dataclasses
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

from seele.losses.off_policy import negative_log_likelihood
from seele.methods.loss_terms import WeighedTerm, why_not_a_metric
from seele.plugins import blame
from seele_verl.protocol import INSTANCE_IDS, count_of

WEIGHED_BY_ADVANTAGE = ("vanilla", "gspo", "cispo", "gpg")
"""verl's losses that are 0, with their gradients, where the advantage is 0."""

UNLIMITED = 1e9
"""A clip bound without effect: verl clamps the logarithm of a ratio to 20, so no ratio comes near it."""


def seele_loss(
    config: ActorConfig,
    model_output: dict[str, Any],
    data: TensorDict,
    dp_group: Any = None,
    *,
    terms: Iterable[WeighedTerm],
) -> tuple[Any, dict[str, Any]]:
    """verl's ``ppo_loss`` + the terms, each times its coefficient; installed with ``set_loss_fn``.

    Generated tokens carry verl's clipped surrogate, KL and entropy; hint tokens never carry the advantage
    (arXiv:2509.06923, Eq. 10). The micro-batches' losses are summed and FSDP averages over ranks, hence the
    factor ``dp_size`` over the global batch, as in verl's own aggregation.

    Raises:
        PluginError: A user's own term raised, or its loss is not a finite scalar.
    """
    batch = MicroBatch(config, model_output, data)
    losses: list[torch.Tensor] = []
    metrics: dict[str, Metric] = {}
    for each in terms:
        term = each.term
        if term.unclips and batch.num_marked(term.unclips):
            config = dataclasses.replace(
                config, clip_ratio_low=1.0, clip_ratio_high=UNLIMITED, clip_ratio_c=UNLIMITED
            )
        if term.has_loss:
            loss, of_term = _compute(each, batch)
            losses.append(each.coefficient * loss)
            metrics |= {name: _summed(value) for name, value in {term.name: loss, **of_term}.items()}
        if term.takes_over:
            data = _without(data, term.takes_over)
    loss, of_verl = ppo_loss(config, model_output, data, dp_group)
    return sum(losses, start=loss), of_verl | metrics


def solution_loss(
    model_output: dict[str, Any], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return a micro-batch's share, as in ``seele_loss``, of the mean negative log-likelihood over all
    response tokens of the update.
    """
    log_probs_BR = no_padding_2_padding(model_output["log_probs"], data)
    mask_BR = data.select("response_mask").to_padded_tensor()["response_mask"]
    num_tokens = float(data["batch_num_tokens"] / data["dp_size"])
    return negative_log_likelihood(log_probs_BR, mask_BR, num_tokens=num_tokens), {}


def weight_columns(config: ActorConfig, terms: Iterable[WeighedTerm]) -> tuple[str, ...]:
    """Return row fields that are all 0 in a row only if it has no gradient; empty if any row may have one.

    KL to the reference and entropy reach every row, even an uninformative one; which rows a surrogate other
    than PPO's reaches is unknown.
    """
    reaches_all = (
        (config.use_kl_loss and config.kl_loss_coef != 0)
        or config.entropy_coeff != 0
        or config.policy_loss.loss_mode not in WEIGHED_BY_ADVANTAGE
        # verl then divides by a micro-batch's longest response, which may belong to a row without a gradient.
        or (config.loss_agg_mode == "seq-mean-token-sum-norm" and config.loss_scale_factor is None)
    )
    return () if reaches_all else informative_columns(terms)


def informative_columns(terms: Iterable[WeighedTerm]) -> tuple[str, ...]:
    """Return row fields that are all 0 in an uninformative row, one without an advantage and without a token
    that SEELE's own terms mark; empty if a user's own term may learn from any row.
    """
    terms = [*terms]
    if any(each.is_users for each in terms):
        return ()
    return ("advantages", *(name for each in terms if each.term.has_loss for name in each.term.columns))


def have_weight(data: TensorDict, columns: Sequence[str]) -> list[bool]:
    """Return True for each of the B rows with a nonzero value in any column; all True without columns."""
    if not columns:
        return [True] * len(data)
    rows = zip(*(data[name].unbind() for name in columns), strict=True)
    return [any(bool(values.any()) for values in row) for row in rows]


def means_over_computed(
    metrics: Mapping[str, float],
    *,
    rows: int,
    tokens: Mapping[str, int],
    computed: Container[str],
    loss_agg_mode: str,
) -> dict[str, float]:
    """Return the metrics of a step that skipped rows, with entropy and KL as means over computed rows: verl
    divides their sums by the rows, or the tokens, of the whole batch. A step's updates are taken as equally
    long.

    Args:
        metrics: The step's metrics, by verl's names.
        rows: Number of rows, with those that pad the batch.
        tokens: Response tokens of each row, by key, without those that pad the batch.
        computed: Keys of the rows that were computed, without those that a term takes over whole: they have
            neither entropy nor KL.
        loss_agg_mode: verl's setting for the actor.

    Returns:
        The same metrics, without entropy and KL if no row was computed.
    """
    by_tokens = loss_agg_mode.startswith("token-")
    of_all = sum(tokens.values()) if by_tokens else rows
    of_computed = sum(size if by_tokens else 1 for key, size in tokens.items() if key in computed)
    means = dict(metrics)
    for name in metrics.keys() & {"actor/entropy_loss", "actor/kl_loss"}:
        mean = means.pop(name) * of_all
        if of_computed:
            means[name] = mean / of_computed
    return means


class MicroBatch:
    """A micro-batch as terms see it: ``seele.losses.term.LossBatch``."""

    def __init__(self, config: ActorConfig, model_output: dict[str, Any], data: TensorDict) -> None:
        self._config, self._data = config, data
        self._log_probs = model_output["log_probs"]

    @cached_property
    def log_probs_BR(self) -> torch.Tensor:
        """Log-probabilities of the responses' tokens, (B, R)."""
        return no_padding_2_padding(self._log_probs, self._data)

    @property
    def next_log_probs_T(self) -> torch.Tensor:
        """Log-probabilities of all tokens, (T,); position t holds that of token t + 1."""
        values_T: torch.Tensor = self._log_probs.values()
        return values_T

    @property
    def lengths_B(self) -> torch.Tensor:
        """Number of tokens of each sequence, (B,)."""
        lengths_B: torch.Tensor = self._data["input_ids"].offsets().diff()
        return lengths_B

    @property
    def num_sequences(self) -> float:
        """Number of sequences of the whole update, divided by the ranks."""
        return float(self._data["global_batch_size"] / self._data["dp_size"])

    def response_column(self, name: str) -> torch.Tensor:
        """Return a column of the responses, (B, R), 0 after the response."""
        padded: TensorDict = self._data.select(name).to_padded_tensor()
        return padded[name]

    def sequence_column(self, name: str) -> torch.Tensor:
        """Return a column of the sequences, (T,)."""
        values_T: torch.Tensor = self._data[name].values()
        return values_T

    def num_marked(self, name: str) -> float:
        """Return the number of the whole update's tokens that the column marks, divided by the ranks."""
        return float(tu.get_non_tensor_data(self._data, count_of(name), default=None) / self._data["dp_size"])

    def aggregate(self, loss_BR: torch.Tensor, mask_BR: torch.Tensor) -> torch.Tensor:
        """Return a scalar, aggregated as verl aggregates the surrogate."""
        loss: torch.Tensor = agg_loss(
            loss_BR,
            mask_BR,
            self._config.loss_agg_mode,
            dp_size=self._data["dp_size"],
            batch_num_tokens=self._data["batch_num_tokens"],
            global_batch_size=self._data["global_batch_size"],
            loss_scale_factor=self._config.loss_scale_factor,
        )
        return loss

    @property
    def instance_ids(self) -> list[str]:
        """Ids of the micro-batch's problems, in runs with the user's own terms."""
        ids = tu.get(self._data, INSTANCE_IDS, default=[])
        return sorted(set(ids.tolist() if hasattr(ids, "tolist") else ids))


def _compute(each: WeighedTerm, batch: MicroBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
    if not each.is_users:
        return each.term.compute(batch)
    with blame(each.term, f"compute, problems {batch.instance_ids}", key=each.key):
        loss, metrics = each.term.compute(batch)
        for name, value in {each.term.name: loss, **metrics}.items():
            if why := why_not_a_metric(name):
                raise ValueError(why)
            if not isinstance(value, torch.Tensor) or value.ndim or not torch.isfinite(value):
                found = f"shape {tuple(value.shape)}" if getattr(value, "ndim", 0) else repr(value)
                raise ValueError(f"{name} must be a finite scalar tensor, got {found}")
    return loss, metrics


def _without(data: TensorDict, column: str) -> TensorDict:
    """Return the batch with the response tokens that a column marks masked out."""
    pairs = zip(data["response_mask"].unbind(), data[column].unbind(), strict=True)
    # B pairs of (R of the row,): 1 stays where the column does not mark.
    left = [mask * (marked == 0).to(mask.dtype) for mask, marked in pairs]
    data = data.copy()
    data["response_mask"] = torch.nested.as_nested_tensor(left, layout=torch.jagged)
    return data


def _summed(value: torch.Tensor) -> Metric:
    return Metric(value=value.detach(), aggregation=AggregationType.SUM)
