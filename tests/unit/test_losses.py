"""Loss terms, against values worked by hand and finite differences."""

import math

import pytest

pytest.importorskip("torch")

import torch

from seele.config import OffPolicyConfig
from seele.losses.expert_prefix import trust_region_likelihood
from seele.losses.imitation import hint_token_weights, imitation_loss, imitation_probability
from seele.losses.off_policy import (
    OFF_POLICY_MASK,
    OffPolicyTerm,
    negative_log_likelihood,
    shaped_surrogate,
)

# --- The imitation term on hint tokens, against values worked by hand and finite differences


def test_weights_add_up_to_the_sequences_share_of_the_hint():
    weights = hint_token_weights(2, 4, 3, share=1 / 8, form="logprob_mean")
    assert weights == [0, 0, 1 / 32, 1 / 32, 1 / 32, 1 / 32, 0, 0, 0]


def test_the_sum_form_weighs_every_hint_token_alike():
    assert hint_token_weights(1, 2, 1, share=0.5, form="logprob_sum") == [0, 0.5, 0.5, 0]


def test_the_token_mean_weighs_every_token_of_every_row_alike():
    # Two rows of a round that share a hint of two tokens, and one with a hint of four: eight tokens.
    rows = [hint_token_weights(1, 2, 1, share=0.5, form="token_mean")] * 2
    rows += [hint_token_weights(1, 4, 1, share=1.0, form="token_mean")]
    assert rows[0] == [0, 1, 1, 0]
    log_probs = packed([-1.0, -3.0, -9.0, -9.0], [-1.0, -3.0, -9.0, -9.0], [-2.0] * 4 + [-9.0, -9.0])
    loss = imitation_loss(log_probs, packed(*rows), divisor=8)
    assert loss.item() == pytest.approx((1 + 3 + 1 + 3 + 4 * 2) / 8)


@pytest.mark.parametrize("form", ["logprob_mean", "logprob_sum", "prob", "token_mean"])
def test_the_hint_of_a_response_of_another_step_is_not_imitated(form):
    assert hint_token_weights(1, 2, 1, share=0.0, form=form) == [0.0] * 4


def test_without_a_hint_nothing_is_imitated():
    assert hint_token_weights(3, 0, 2, share=1 / 8, form="logprob_mean") == [0.0] * 5


def packed(*weights):
    return torch.tensor([weight for row in weights for weight in row], dtype=torch.float64)


def test_hand_worked_batch_of_two_sequences():
    # Sequence 1: prompt 1, hint 2, generated 1; sequence 2: prompt 2, no hint, generated 1. Position t of
    # log_probs holds the log-probability of token t + 1, so the hint's two tokens stand at positions 0 and 1.
    log_probs_T = packed([-1.0, -3.0, -9.0, -9.0], [-9.0, -9.0, -9.0])
    weights_T = packed(
        hint_token_weights(1, 2, 1, share=1.0, form="logprob_mean"),
        hint_token_weights(2, 0, 1, share=1.0, form="logprob_mean"),
    )
    # mean over the hint: (1 + 3) / 2 = 2; over two sequences: 1.
    assert imitation_loss(log_probs_T, weights_T, divisor=2).item() == pytest.approx(1.0)


def test_identical_hints_of_a_round_count_once():
    # n rollouts with share 1/n give what one rollout with share 1 gives.
    row = [-0.5, -1.5, -4.0]
    n = 4
    once = imitation_loss(
        packed(row), packed(hint_token_weights(1, 1, 1, share=1.0, form="logprob_mean")), divisor=n
    )
    shared = imitation_loss(
        packed(*[row] * n),
        packed(*[hint_token_weights(1, 1, 1, share=1 / n, form="logprob_mean")] * n),
        divisor=n,
    )
    assert once.item() == pytest.approx(shared.item())


def test_gradient_agrees_with_finite_differences():
    generator = torch.Generator().manual_seed(0)
    logits_TV = torch.randn(7, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    tokens_T = torch.tensor([0, 3, 1, 4, 2, 0, 1])
    weights_T = packed(hint_token_weights(1, 3, 3, share=0.5, form="logprob_mean"))

    def loss(logits):
        next_tokens_T = torch.roll(tokens_T, shifts=-1)
        log_probs_T = torch.log_softmax(logits, -1).gather(-1, next_tokens_T[:, None])[:, 0]
        return imitation_loss(log_probs_T, weights_T, divisor=2)

    assert torch.autograd.gradcheck(loss, (logits_TV,))
    loss(logits_TV).backward()
    touched = logits_TV.grad.abs().sum(-1) > 0
    assert touched.tolist() == [True, True, True, False, False, False, False]


# --- Losses of off-policy tokens, against METHODS' vectors, values worked by hand and finite differences


@pytest.mark.parametrize(("has_rows", "has_loss"), [(True, True), (True, False), (False, True)])
def test_off_policy_tokens_are_counted_where_a_loss_or_metric_divides_by_them(has_rows, has_loss):
    # A source of the user's own may have hints in the response, and a loss for them.
    term = OffPolicyTerm(OffPolicyConfig(loss="nll"), has_rows=has_rows, has_loss=has_loss)
    assert term.counted == (OFF_POLICY_MASK,)


DOUBLE = torch.float64


@pytest.mark.parametrize(
    ("probability", "shaped", "weight"),
    # LUFFY, gamma = 0.1: x, f(x), x f'(x).
    [(1.0, 0.909091, 0.082645), (0.1, 0.5, 0.25), (0.01, 0.090909, 0.082645), (0.001, 0.009901, 0.009803)],
)
def test_shaping_and_gradient_weight_of_luffy(probability, shaped, weight):
    log_prob = torch.tensor(math.log(probability), dtype=DOUBLE, requires_grad=True)
    loss = shaped_surrogate(
        log_prob, torch.zeros((), dtype=DOUBLE), torch.ones((), dtype=DOUBLE), shaping=0.1
    )
    (gradient,) = torch.autograd.grad(loss, log_prob)
    assert -loss.item() == pytest.approx(shaped, abs=1e-6)
    assert -gradient.item() == pytest.approx(weight, abs=1e-6)


def test_the_ratio_is_to_whoever_wrote_the_token():
    # pi = 0.02 of a token that was written with 0.2: r = 0.1 = gamma.
    loss = shaped_surrogate(
        torch.tensor(math.log(0.02)), torch.tensor(math.log(0.2)), torch.tensor(3.0), shaping=0.1
    )
    assert loss.item() == pytest.approx(-1.5, abs=1e-6)


def test_shaping_does_not_overflow_where_the_policy_finds_a_token_impossible():
    log_probs = torch.tensor([-1e4, 0.0, 1e4], requires_grad=True)
    loss = shaped_surrogate(log_probs, torch.zeros(3), torch.ones(3), shaping=0.1).sum()
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(log_probs.grad).all()


def test_the_gradient_of_shaping_is_that_of_finite_differences():
    torch.manual_seed(0)
    log_probs = -torch.rand(5, dtype=DOUBLE).mul(6)
    behaviour, advantages = -torch.rand(5, dtype=DOUBLE), torch.randn(5, dtype=DOUBLE)
    assert torch.autograd.gradcheck(
        lambda x: shaped_surrogate(x, behaviour, advantages, shaping=0.1), (log_probs.requires_grad_(),)
    )


def test_likelihood_is_a_mean_over_all_tokens_not_a_mean_of_means():
    log_probs = torch.tensor([[-1.0, -2.0, -3.0], [-10.0, 0.0, 0.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    parts = [negative_log_likelihood(log_probs[i], mask[i], num_tokens=4) for i in range(2)]
    assert sum(parts).item() == pytest.approx(16 / 4)


def test_the_probability_form_counts_each_hint_once_and_whole():
    # Sequence 1: prompt 1, hint 2, response 1, share 1/2; sequence 2: no hint; positions hold the next token.
    log_probs_T = torch.tensor([-1.0, -3.0, -9.0, -9.0, -9.0, -9.0], dtype=DOUBLE, requires_grad=True)
    weights_T = torch.tensor([0.0, 0.5, 0.5, 0.0, 0.0, 0.0], dtype=DOUBLE)
    loss = imitation_probability(log_probs_T, weights_T, torch.tensor([4, 2]), num_sequences=2)
    assert loss.item() == pytest.approx(-0.5 * math.exp(-4.0) / 2)
    (gradient,) = torch.autograd.grad(loss, log_probs_T)
    assert gradient.tolist() == pytest.approx([-0.25 * math.exp(-4.0)] * 2 + [0.0] * 4)


def test_the_trust_region_of_trapo_attenuates_unlikely_tokens():
    # d(-p / max(p, 0.1)) / d log p = -p / max(p, 0.1): 1 from 0.1 on, a tenth at 0.01.
    log_probs = torch.log(torch.tensor([0.5, 0.1, 0.01], dtype=torch.float64)).requires_grad_()
    loss = trust_region_likelihood(log_probs, alpha=0.1)
    assert loss.tolist() == pytest.approx([-1.0, -1.0, -0.1])
    loss.sum().backward()
    assert log_probs.grad.tolist() == pytest.approx([-1.0, -1.0, -0.1])
