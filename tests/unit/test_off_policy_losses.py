"""Losses of off-policy tokens, against METHODS' vectors, values worked by hand and finite differences."""

import math

import pytest

torch = pytest.importorskip("torch")

from seele.losses.imitation import imitation_probability  # noqa: E402
from seele.losses.off_policy import negative_log_likelihood, shaped_surrogate  # noqa: E402

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
