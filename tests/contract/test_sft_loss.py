"""verl's SFT loss is the token mean of the whole batch, however that is divided over micro-batches and ranks.

Averaging each part's own mean instead weighs a token by the length of its neighbours; that bug, and a
gradient that loses all micro-batches but one, are what deflated SFT baselines in this literature.
"""

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.utils.losses import sft_loss

VOCABULARY = 7
# (prompt, response) tokens of each sequence: of very different lengths.
LENGTHS = [(3, 1), (2, 9), (4, 2), (1, 5)]


def sequences() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randint(VOCABULARY, (prompt + response,), generator=generator),
            torch.tensor([0] * prompt + [1] * response),
        )
        for prompt, response in LENGTHS
    ]


class Bigram(torch.nn.Module):
    """A language model small enough to write its gradient down: the next token depends on the last."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.logits = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=generator))

    def log_probs(self, tokens: torch.Tensor) -> torch.Tensor:
        """Of each token's successor; the last one's is that of the first, as in verl, and masked out."""
        return torch.log_softmax(self.logits[tokens], -1).gather(-1, tokens.roll(-1)[:, None])[:, 0]


def loss_of(model: Bigram, rows, *, batch_num_tokens: int, dp_size: int) -> torch.Tensor:
    """verl's loss of one micro-batch, given what its engine adds (``FSDPEngine.forward_backward_batch``)."""
    mask = torch.nested.as_nested_tensor([mask for _, mask in rows], layout=torch.jagged)
    data = TensorDict({"loss_mask": mask}, batch_size=[len(rows)])
    tu.assign_non_tensor(data, batch_num_tokens=batch_num_tokens, dp_size=dp_size)
    log_probs = torch.nested.as_nested_tensor([model.log_probs(row) for row, _ in rows], layout=torch.jagged)
    loss, _ = sft_loss(config=None, model_output={"log_probs": log_probs}, data=data)
    return loss


def loss_and_gradient(ranks: list[list[list]]) -> tuple[float, torch.Tensor]:
    """Of micro-batches per rank, as verl does it: each rank sums over its micro-batches, FSDP averages over
    the ranks.
    """
    tokens = sum(int(mask.sum()) for rank in ranks for rows in rank for _, mask in rows)
    losses, gradients = [], []
    for micro_batches in ranks:
        model = Bigram()
        parts = [loss_of(model, rows, batch_num_tokens=tokens, dp_size=len(ranks)) for rows in micro_batches]
        for part in parts:
            part.backward()
        losses.append(sum(float(part.detach()) for part in parts))
        gradients.append(model.logits.grad)
    return sum(losses) / len(ranks), torch.stack(gradients).mean(0)


def expected() -> tuple[float, torch.Tensor]:
    """Written out: minus the sum of the response tokens' log-probabilities, divided by their number."""
    model = Bigram()
    learnt = [
        torch.log_softmax(model.logits[row[position - 1]], -1)[row[position]]
        for row, mask in sequences()
        for position in range(1, len(row))
        if mask[position]
    ]
    assert len(learnt) == 1 + 9 + 2 + 5
    loss = -torch.stack(learnt).mean()
    loss.backward()
    return float(loss.detach()), model.logits.grad


A, B, C, D = range(4)
DIVISIONS = [
    pytest.param([[[A, B, C, D]]], id="one batch"),
    pytest.param([[[A], [B, C, D]]], id="two micro-batches"),
    pytest.param([[[A], [B], [C], [D]]], id="four micro-batches"),
    pytest.param([[[A, C]], [[B, D]]], id="two ranks"),
    pytest.param([[[A], [C]], [[B], [D]]], id="two ranks of two micro-batches"),
]


@pytest.mark.parametrize("division", DIVISIONS)
def test_loss_and_gradient_do_not_depend_on_how_the_batch_is_divided(division):
    rows = sequences()
    loss, gradient = loss_and_gradient(
        [[[rows[i] for i in micro_batch] for micro_batch in rank] for rank in division]
    )
    expected_loss, expected_gradient = expected()
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    torch.testing.assert_close(gradient, expected_gradient)


def test_a_mean_of_means_would_be_something_else():
    rows = sequences()
    means = [
        float(loss_of(Bigram(), [row], batch_num_tokens=int(row[1].sum()), dp_size=1).detach())
        for row in rows
    ]
    assert abs(sum(means) / len(means) - expected()[0]) > 0.05


def test_the_engine_counts_the_tokens_of_the_whole_batch():
    import inspect

    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    source = inspect.getsource(FSDPEngine.forward_backward_batch)
    assert 'data["loss_mask"].sum()' in source
    assert "batch_num_tokens, op=torch.distributed.ReduceOp.SUM" in source
    assert "dp_size=self.get_data_parallel_size()" in source
