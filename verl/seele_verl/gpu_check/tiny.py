"""A tiny Qwen2 with random weights, made on the spot; nothing is downloaded."""

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from seele_models.tokenizer import byte_tokenizer

HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 64
"""Two heads of keys and values, so that two GPUs can share them."""
SPREAD = 0.06
"""Standard deviation of the weights: Qwen's 0.02 would make every token about equally likely, and every model
agree with every other."""


def make_tiny_model(seed: int, *, attention: str = "sdpa") -> Any:
    """The model in bfloat16 on the CPU; the same weights for the same ``seed``.

    Args:
        seed: Of the weights.
        attention: ``attn_implementation`` of transformers.
    """
    tokenizer = byte_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=HEADS * HEAD_SIZE,
        intermediate_size=2 * HEADS * HEAD_SIZE,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=512,
        initializer_range=SPREAD,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM._from_config(config, attn_implementation=attention, dtype=torch.float32)
    return in_precision(model, torch.bfloat16).eval()


def in_precision(model: Any, dtype: torch.dtype) -> Any:
    """``model`` with its parameters in ``dtype``; buffers, such as the rotary frequencies, stay single."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def save_tiny_model(model: Any, folder: Path) -> None:
    """Model and tokenizer as an engine reads them."""
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def token_log_probs(model: Any, ids_T: torch.Tensor, positions_T: torch.Tensor | None = None) -> torch.Tensor:
    """(T - 1,) log-probability of each token after the first, in single precision, from one row.

    Args:
        model: A causal language model.
        ids_T: (T,) token ids.
        positions_T: (T,) positions where several sequences lie end to end; each begins at 0.
    """
    positions_1T = None if positions_T is None else positions_T[None]
    logits_TV = model(input_ids=ids_T[None], position_ids=positions_1T, use_cache=False).logits[0].float()
    return logits_TV[:-1].log_softmax(-1).gather(-1, ids_T[1:, None])[:, 0]
