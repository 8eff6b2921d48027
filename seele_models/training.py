"""From texts to a trained model: architecture, rows and the loop of ``transformers.Trainer``."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import (
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    Trainer,
    TrainingArguments,
    get_cosine_schedule_with_warmup,
)

from seele_models.muon import MuonWithAdam
from seele_models.recipes import BaseModelRecipe
from seele_models.texts import Text

# The label that torch's cross entropy leaves out of the loss.
NO_LOSS = -100


def train(
    recipe: BaseModelRecipe, texts: Sequence[Text], tokenizer: Qwen2Tokenizer, *, scratch: Path
) -> PreTrainedModel:
    """A Qwen2 from random weights, trained on ``texts`` in single precision on one core."""
    rows = [row for text in texts if len((row := _row(text, tokenizer))["input_ids"]) <= recipe.max_positions]
    torch.manual_seed(recipe.seed)
    model = Qwen2ForCausalLM(_architecture(recipe, tokenizer))
    optimizer = MuonWithAdam(
        model,
        muon_learning_rate=recipe.muon_learning_rate,
        adam_learning_rate=recipe.adam_learning_rate,
    )
    num_steps = recipe.epochs * math.ceil(len(rows) / recipe.batch_size)
    arguments = TrainingArguments(
        output_dir=str(scratch),
        use_cpu=True,
        seed=recipe.seed,
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch_size,
        train_sampling_strategy=recipe.sampling,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=_pad,
        optimizers=(optimizer, get_cosine_schedule_with_warmup(optimizer, recipe.warmup_steps, num_steps)),
    )
    with _one_thread():
        trainer.train()
    return model


def _architecture(recipe: BaseModelRecipe, tokenizer: Qwen2Tokenizer) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_heads,
        max_position_embeddings=recipe.max_positions,
        initializer_range=recipe.initializer_range,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """On matrices this small, waiting threads spin: two took six times the CPU time of one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _row(text: Text, tokenizer: Qwen2Tokenizer) -> dict[str, list[int]]:
    prompt, solution = (tokenizer(part)["input_ids"] for part in text)
    solution = [*solution, tokenizer.eos_token_id]
    return {"input_ids": prompt + solution, "labels": [NO_LOSS] * len(prompt) + solution}


def _pad(rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Rows of different lengths as one batch, padded on the right, where causal attention never looks."""
    longest = max(len(row["input_ids"]) for row in rows)
    return {
        key: torch.tensor([row[key] + [filler] * (longest - len(row[key])) for row in rows])
        for key, filler in (("input_ids", 0), ("labels", NO_LOSS))
    }
