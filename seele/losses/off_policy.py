"""Losses of tokens that another policy wrote. Axes: any shape, the same for all arguments."""

import torch


def shaped_surrogate(
    log_probs: torch.Tensor, behaviour_log_probs: torch.Tensor, advantages: torch.Tensor, *, shaping: float
) -> torch.Tensor:
    """LUFFY's policy shaping (arXiv:2504.14945, section 3.2), per token and without clipping.

        L = -f(r) A,  f(x) = x / (x + gamma),  r = pi(token) / pi_behaviour(token)

    The weight of the token's score function is gamma r / (r + gamma)^2 A: largest, 1/4, at r = gamma, so that
    tokens which the policy finds unlikely count most.

    Args:
        log_probs: Under the policy, with gradient.
        behaviour_log_probs: Under whoever wrote the token; 0 for a worked solution, whose author's
            probabilities are not known and set to 1.
        advantages: Of the token's rollout.
        shaping: gamma, positive; 0.1 in the paper.
    """
    # f(r) = sigmoid(log r - log gamma), which neither overflows nor divides 0 by 0.
    shift = torch.log(torch.as_tensor(shaping, dtype=log_probs.dtype, device=log_probs.device))
    return -torch.sigmoid(log_probs - behaviour_log_probs - shift) * advantages


def negative_log_likelihood(
    log_probs: torch.Tensor, mask: torch.Tensor, *, num_tokens: float
) -> torch.Tensor:
    """Token mean of -log pi over the masked tokens, of which the whole (global) batch has ``num_tokens``.

    Dividing by a micro-batch's own count instead would make a mean of means, in which tokens of a short
    micro-batch weigh more (arXiv:2604.23747).
    """
    return -(log_probs * mask).sum() / num_tokens
