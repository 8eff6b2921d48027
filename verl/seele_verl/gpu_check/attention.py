"""Varlen attention: sequences concatenated in one row, as the trainer packs them, against SDPA on each alone.

verl trains with ``attn_implementation=flash_attention_2``, which transformers takes from flash-attn or from
the hub's kernel. Positions that start from 0 mark where sequences begin.
"""

import torch

from seele_verl.gpu_check.agreement import compare, in_precision, make_tiny_model, token_log_probs

LENGTHS = (5, 64, 1, 127, 33)


def check(device: str, *, packed_attention: str | None = None) -> str:
    """Compare log-probabilities and a gradient of packed sequences with those of each sequence alone.

    Args:
        device: ``cuda`` or ``cpu``.
        packed_attention: Attention of the packed row, by default flash attention on a GPU and SDPA on a CPU.
    """
    packed_attention = packed_attention or ("flash_attention_2" if device == "cuda" else "sdpa")
    packed_model = make_tiny_model(0, attention=packed_attention).to(device)
    model = make_tiny_model(0).to(device)
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(0, 256, (n,), generator=generator).to(device) for n in LENGTHS]
    packed_T = torch.cat(sequences)
    positions_T = torch.cat([torch.arange(n, device=device) for n in LENGTHS])
    log_probs_T = token_log_probs(packed_model, packed_T, positions_T)
    within_T = positions_T[1:] > 0  # what follows a sequence's end begins the next one
    checked = _with_gradient(packed_model, log_probs_T[within_T])
    plain, single = _alone(model, sequences), _alone(in_precision(model, torch.float32), sequences)
    said = [compare("log-probabilities", checked[0], plain[0], single[0])]
    said.append(compare("gradient", checked[1], plain[1], single[1], relative=True))
    return f"{packed_model.config._attn_implementation}: {'; '.join(said)}"


def _alone(model: torch.nn.Module, sequences: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of each sequence in its own row, and their gradient."""
    model.zero_grad()
    return _with_gradient(model, torch.cat([token_log_probs(model, ids_T) for ids_T in sequences]))


def _with_gradient(model: torch.nn.Module, log_probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``log_probs``, and the gradient of their mean by the first layer's query weights."""
    log_probs.mean().backward()
    gradient = model.get_parameter("model.layers.0.self_attn.q_proj.weight").grad
    assert gradient is not None, "the loss depends on the first layer"
    return log_probs.detach(), gradient.detach().float()
