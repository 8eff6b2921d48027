"""Problems and a model for runs that are checked and never start."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from seele.records import Instance


def problem(index: int, **changes: Any) -> Instance:
    instance = Instance(
        instance_id=f"chains-{index}",
        data_source="chains",
        question=f"{index}+1",
        steps=("a=1\n", "b=2\n", "\\boxed{2}"),
        answer="2",
    )
    return replace(instance, **changes)


def save_model(folder: Path, *, has_chat_template: bool = True, **settings: Any) -> Path:
    """Write a configuration and a byte-level tokenizer, without weights: all that the checks read."""
    from transformers import Qwen2Config

    from seele_models.tokenizer import byte_tokenizer

    tokenizer = byte_tokenizer()
    if not has_chat_template:
        tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)
    Qwen2Config(vocab_size=259, hidden_size=32, intermediate_size=64, **settings).save_pretrained(folder)
    return folder
