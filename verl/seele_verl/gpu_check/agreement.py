"""Decides how far two results may differ: not much more than half precision differs from single precision.

An absolute bound would depend on the model, the card and the kernels. Instead everything is computed three
times: by the code under test, by plain PyTorch in the same precision, and by plain PyTorch in single
precision. A tiny Qwen with random weights, made on the fly, serves the checks that need a model.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from seele_models.tokenizer import byte_tokenizer

FACTOR_MEAN, FACTOR_LARGEST = 3.0, 6.0
"""Allowed multiples of plain PyTorch's own error in the same precision: other kernels round elsewhere, not
more."""
FLOOR = 1e-3
"""An error that is always allowed, for the order of additions where the precision is single already."""


class CheckFailed(Exception):
    """A check failed; the message says in one line what is wrong."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Mean and largest absolute difference."""

    mean: float
    largest: float

    def __str__(self) -> str:
        return f"{self.mean:.2g} (largest {self.largest:.2g})"


def distance(first: Any, second: Any) -> Distance:
    """Return the distance between two tensors; infinite if one of them holds a NaN.

    Raises:
        CheckFailed: If their shapes differ.
    """
    if first.shape != second.shape:
        raise CheckFailed(f"shapes differ: {tuple(first.shape)} and {tuple(second.shape)}")
    difference = (first.double() - second.double()).abs()
    if difference.isnan().any():
        return Distance(float("inf"), float("inf"))
    return Distance(difference.mean().item(), difference.max().item())


def compare(what: str, checked: Any, plain: Any, single: Any, *, relative: bool = False) -> str:
    """Return what was measured, in words, if ``checked`` is off by no more than rounding.

    Args:
        what: What is compared.
        checked: Tensor from the code under test.
        plain: The same from plain PyTorch, in the precision of ``checked``.
        single: The same from plain PyTorch, in single precision.
        relative: True for distances in units of the root mean square of ``single``: for gradients, whose
            size has no meaning.

    Raises:
        CheckFailed: If ``checked`` is further from ``single`` than rounding explains.
    """
    unit = single.double().square().mean().sqrt() if relative else 1.0
    measured, own = (distance(tensor.double() / unit, single.double() / unit) for tensor in (checked, plain))
    allowed = Distance(FACTOR_MEAN * own.mean + FLOOR, FACTOR_LARGEST * own.largest + FLOOR)
    if not (measured.mean <= allowed.mean and measured.largest <= allowed.largest):
        raise CheckFailed(f"{what}: {measured} from single precision, but rounding explains only {allowed}")
    return f"{what} {measured} from single precision, where PyTorch itself is {own}"


HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 64
"""Two heads of keys and values, so that two GPUs can split them."""
SPREAD = 0.06
"""Standard deviation of the weights: Qwen's 0.02 would make all tokens about equally likely, and all models
agree with each other."""


def make_tiny_model(seed: int, *, attention: str = "sdpa", model_type: str = "qwen2") -> Any:
    """Return the model in bfloat16 on the CPU; the same weights for the same ``seed``.

    Args:
        seed: Seed of the weights.
        attention: ``attn_implementation`` of transformers.
        model_type: ``qwen2`` or ``qwen3``.
    """
    tokenizer = byte_tokenizer()
    config = AutoConfig.for_model(
        model_type,
        vocab_size=len(tokenizer),
        hidden_size=HEADS * HEAD_SIZE,
        intermediate_size=2 * HEADS * HEAD_SIZE,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_SIZE,
        max_position_embeddings=512,
        initializer_range=SPREAD,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32)
    return in_precision(model, torch.bfloat16).eval()


def in_precision(model: Any, dtype: torch.dtype) -> Any:
    """Return ``model`` with its parameters in ``dtype``; buffers, such as rotary frequencies, stay single."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def save_tiny_model(model: Any, folder: Path) -> None:
    """Save model and tokenizer as an engine reads them."""
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def token_log_probs(model: Any, ids_T: torch.Tensor, positions_T: torch.Tensor | None = None) -> torch.Tensor:
    """Return (T - 1,) the log-probability of each token after the first, in single precision, from one row.

    Args:
        model: A causal language model.
        ids_T: (T,) token ids.
        positions_T: (T,) positions if several sequences are concatenated; each begins at 0.
    """
    positions_1T = None if positions_T is None else positions_T[None]
    logits_TV = model(input_ids=ids_T[None], position_ids=positions_1T, use_cache=False).logits[0].float()
    return logits_TV[:-1].log_softmax(-1).gather(-1, ids_T[1:, None])[:, 0]
