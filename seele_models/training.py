"""Small base models: a Qwen2 trained on the text of one task, on a CPU, in minutes.

From texts to a trained model: architecture, rows, the loop of ``transformers.Trainer``, and an optimizer of
Muon and Adam.

The policy is asked with the question and a line break (template ``plain``), the hint behind it, and ends its
solution with the end-of-text token; the base model is trained on exactly that layout, with the loss on the
solution. A folder is named after a hash of everything that the model depends on, and appears complete or
not at all.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_model
from transformers import (
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    Trainer,
    TrainingArguments,
    get_cosine_schedule_with_warmup,
)

from seele.data.storage.files import as_readable_as_usual
from seele.errors import DataError
from seele.rollout.templates import render_prompt
from seele_models.recipes import BaseModelRecipe
from seele_models.texts import TEXTS, Text
from seele_models.tokenizer import byte_tokenizer


class MuonWithAdam(torch.optim.Optimizer):
    """Muon on the matrices inside the layers, Adam on embeddings and norms, as one optimizer for the Trainer.

    With Adam alone a model of this size needs several times the steps before it holds a table of facts.
    """

    def __init__(
        self, model: PreTrainedModel, *, muon_learning_rate: float, adam_learning_rate: float
    ) -> None:
        inside: list[torch.Tensor] = []
        outside: list[torch.Tensor] = []
        for name, weight in model.named_parameters():
            (inside if weight.ndim == 2 and "embed" not in name else outside).append(weight)
        self._parts = (
            torch.optim.Muon(inside, lr=muon_learning_rate, weight_decay=0.0),
            torch.optim.Adam(outside, lr=adam_learning_rate, betas=(0.9, 0.98)),
        )
        super().__init__([dict(group) for group in self._groups_of_parts()], {})

    def _groups_of_parts(self) -> list[dict[str, object]]:
        return [group for part in self._parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the Trainer steps without a closure"
        # The scheduler writes into our groups; accelerate replaces them, so they cannot be the parts' own.
        for group, scheduled in zip(self._groups_of_parts(), self.param_groups, strict=True):
            group["lr"] = scheduled["lr"]
        for part in self._parts:
            part.step()


# The label that torch's cross entropy leaves out of the loss.
NO_LOSS = -100


def train(
    recipe: BaseModelRecipe, texts: Sequence[Text], tokenizer: Qwen2Tokenizer, *, scratch: Path
) -> PreTrainedModel:
    """A Qwen2 from random weights, trained on ``texts`` in single precision on one core.

    Raises:
        DataError: If no text fits into ``recipe.max_positions``.
    """
    rows = [row for text in texts if len((row := _row(text, tokenizer))["input_ids"]) <= recipe.max_positions]
    if not rows:
        raise DataError(
            f"{recipe.task}: none of the {len(texts)} texts has at most {recipe.max_positions} tokens, so "
            "there is nothing to train on; use other data"
        )
    if left_out := len(texts) - len(rows):
        sys.stderr.write(
            f"left out: {left_out} of {len(texts)} texts, longer than {recipe.max_positions} tokens\n"
        )
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


LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate")
WEIGHTS = Path(__file__).with_name("weights")
"""Weights that come with the package, as ``TASK-HASH.safetensors`` of ``recipe_hash``."""


def make_base_model(root: Path, recipe: BaseModelRecipe, *, always_train: bool = False) -> Path:
    """Folder of the base model below ``root``, made now unless it is there already.

    Its weights are the package's, if it has some of this recipe: they are the same on every machine. Else,
    or with ``always_train``, they are trained now.

    Raises:
        DataError: If the data that the training text comes from cannot be read, or no text fits.
    """
    pairs = TEXTS[recipe.task](recipe)
    texts = [(render_prompt(question, "plain"), solution) for question, solution in pairs]
    name = f"{recipe.task}-{recipe_hash(recipe, texts)}"
    weights = WEIGHTS / f"{name}.safetensors"
    is_packaged = weights.exists() and not always_train
    folder = root / (name if is_packaged else f"{recipe.task}-{fingerprint(recipe, texts)}")
    if folder.exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    # A folder of its own for each process: two that make the same model do not meet before the rename.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=root) as scratch:
        unfinished = Path(scratch) / "model"
        tokenizer = byte_tokenizer()
        if is_packaged:
            model = Qwen2ForCausalLM(_architecture(recipe, tokenizer))
            load_model(model, weights)
        else:
            model = train(recipe, texts, tokenizer, scratch=Path(scratch))
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        as_readable_as_usual(unfinished)
        settings = json.dumps(dataclasses.asdict(recipe), indent=2, sort_keys=True)
        (unfinished / "recipe.json").write_text(f"{settings}\n", encoding="utf-8")
        _publish(unfinished, folder)
    return folder


def recipe_hash(recipe: BaseModelRecipe, texts: Sequence[Text]) -> str:
    """Hash of the settings and the training text itself."""
    settings = dataclasses.asdict(recipe)
    # The text counts, not the place that it was read from.
    del settings["data_folder"]
    return hashlib.sha256(json.dumps([settings, texts], sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(recipe: BaseModelRecipe, texts: Sequence[Text]) -> str:
    """Hash of recipe and text, the code that trains and the libraries' versions."""
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    digest = hashlib.sha256(json.dumps([recipe_hash(recipe, texts), versions], sort_keys=True).encode())
    for name in ("recipes", "texts", "tokenizer", "training"):
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


def _publish(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was faster; the models are equal.
        if not folder.exists():
            raise
