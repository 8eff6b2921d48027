"""verl's log-probabilities and entropies from bfloat16 logits, and their gradients, against single precision.

It calls the same functions as a training step, on a vocabulary as large as Qwen's: flash-attn's Triton kernel
if installed, otherwise verl's own loop; and the fused head, which never holds all logits.
"""

import torch

from seele_verl.gpu_check.agreement import CheckFailed, compare

TOKENS, HIDDEN_SIZE = 256, 512
VOCABULARY = 151_936
LOGIT_SPREAD = 4.0
"""Standard deviation of the logits: peaked like a trained model's."""


def check(device: str, *, vocabulary: int = VOCABULARY) -> str:
    """Check all of them; the checked precision is bfloat16 on every device."""
    generator = torch.Generator().manual_seed(0)
    hidden_TH = torch.randn(TOKENS, HIDDEN_SIZE, generator=generator)
    head_VH = torch.randn(vocabulary, HIDDEN_SIZE, generator=generator) * LOGIT_SPREAD / HIDDEN_SIZE**0.5
    hidden_TH, head_VH = hidden_TH.to(device, torch.bfloat16), head_VH.to(device, torch.bfloat16)
    labels_T = torch.randint(0, vocabulary, (TOKENS,), generator=generator).to(device)
    return "; ".join([*_from_logits(hidden_TH @ head_VH.T, labels_T), *_fused(hidden_TH, head_VH, labels_T)])


def _from_logits(logits_TV: torch.Tensor, labels_T: torch.Tensor) -> list[str]:
    from verl.utils.torch_functional import entropy_from_logits_with_chunking, logprobs_from_logits

    checked_TV = logits_TV.clone().requires_grad_()
    # The kernel overwrites its input in the backward pass, as it does in training.
    log_probs_T = logprobs_from_logits(checked_TV * 1.0, labels_T)
    log_probs_T.float().sum().backward()
    plain_TV, single_TV = logits_TV.clone().requires_grad_(), logits_TV.float().requires_grad_()
    plain_T, single_T = _log_probs(plain_TV, labels_T), _log_probs(single_TV, labels_T)
    plain_T.float().sum().backward()
    single_T.sum().backward()
    entropy_T = entropy_from_logits_with_chunking(logits_TV)
    exact_T = _entropy(logits_TV.double())
    return [
        compare("log-probabilities", log_probs_T, plain_T, single_T),
        compare("their gradient", *(_gradient(x) for x in (checked_TV, plain_TV, single_TV)), relative=True),
        # verl computes it in single precision: no rounding is allowed for.
        compare("entropy", entropy_T, exact_T, exact_T),
    ]


def _fused(hidden_TH: torch.Tensor, head_VH: torch.Tensor, labels_T: torch.Tensor) -> list[str]:
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    checked_TH, plain_TH = (hidden_TH.clone().requires_grad_() for _ in range(2))
    single_TH = hidden_TH.float().requires_grad_()
    log_probs_T, entropy_T = FusedLinearForPPO(impl_backend="torch")(checked_TH, head_VH, labels_T)
    plain_TV, single_TV = plain_TH @ head_VH.T, single_TH @ head_VH.float().T
    plain_T, single_T = _log_probs(plain_TV, labels_T), _log_probs(single_TV, labels_T)
    for log_probs in (log_probs_T, plain_T, single_T):
        log_probs.float().sum().backward()
    return [
        compare("fused log-probabilities", log_probs_T, plain_T, single_T),
        compare("fused entropy", entropy_T, _entropy(plain_TV), _entropy(single_TV)),
        compare("fused gradient", *(_gradient(x) for x in (checked_TH, plain_TH, single_TH)), relative=True),
    ]


def _log_probs(logits_TV: torch.Tensor, labels_T: torch.Tensor) -> torch.Tensor:
    return logits_TV.log_softmax(-1).gather(-1, labels_T[:, None])[:, 0]


def _entropy(logits_TV: torch.Tensor) -> torch.Tensor:
    log_probs_TV = logits_TV.log_softmax(-1)
    return -(log_probs_TV.exp() * log_probs_TV).sum(-1)


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.grad is None:
        raise CheckFailed("no gradient arrived")
    return tensor.grad
