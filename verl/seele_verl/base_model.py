r"""Base models that are made here, in minutes, on a CPU: a small Qwen2 trained on the text of one task.

    python -m seele_verl.base_model --out models --task chains        # prints the model's folder as its
    last line

The policy is later asked with the question and a line break (template ``plain``), the hint behind it, and
ends its solution with the end-of-text token; the base model is trained on exactly that layout, with the
loss on the solution. A folder is named after a hash of everything that the model depends on, and appears
complete or not at all.

Here live the tokenizer, the architecture, the recipes and the cache. The training loop is
``transformers.Trainer``; the texts come from ``seele.data``. A new task is one entry in ``RECIPES`` and one
in ``TEXTS``.
"""

import argparse
import dataclasses
import hashlib
import importlib.metadata
import inspect
import json
import logging
import math
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    Trainer,
    TrainingArguments,
    get_cosine_schedule_with_warmup,
)

from seele.data import chains
from seele.data.chains import ChainsConfig, StudentConfig

logger = logging.getLogger(__name__)

END_OF_TEXT = "<|im_end|>"
PADDING = "<|endoftext|>"
SPECIAL_TOKENS = (PADDING, "<|im_start|>", END_OF_TEXT)

# The question and a line break, as the template "plain" writes it.
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"

LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate")

# The label that torch's cross entropy leaves out of the loss.
NO_LOSS = -100

Text = tuple[str, str]
"""Prompt, with its line break, and solution, without the end-of-text token."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelRecipe:
    """What a base model is made of. Two equal recipes make the same model."""

    task: str
    """Key of ``TEXTS``."""

    chains: ChainsConfig = ChainsConfig()
    student: StudentConfig = StudentConfig()
    student_levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    """``chains`` only: the levels in the training text; none beyond the training levels."""
    num_texts: int = 0
    """``chains`` only: problems that the student solves; each is seen once."""
    share_of_easy_batches: float = 0.3
    """``chains`` only: in this first share of the training the levels open up one by one."""

    data_folder: str = ""
    """``gsm8k`` only: the folder that holds ``train.jsonl``."""
    epochs: int = 1
    sampling: str = "sequential"
    """``sequential`` keeps the order of the texts, ``group_by_length`` shuffles them and pads little."""

    hidden_size: int = 128
    intermediate_size: int = 384
    num_layers: int = 2
    num_heads: int = 4
    max_positions: int = 512

    # Weights drawn much smaller than this leave the attention of so narrow a model flat for hundreds of
    # steps.
    initializer_range: float = 0.06

    batch_size: int = 32
    muon_learning_rate: float = 0.02
    """For the matrices inside the layers."""
    adam_learning_rate: float = 3e-3
    """For embeddings and norms."""
    warmup_steps: int = 20
    seed: int = 0


def _chains_texts(recipe: BaseModelRecipe) -> list[Text]:
    solutions = chains.student_solutions(recipe.chains, recipe.student, levels=_lesson_plan(recipe))
    return [(f"{question}\n", solution) for question, solution in solutions]


def _lesson_plan(recipe: BaseModelRecipe) -> list[int]:
    """The level of each text: one level a batch, drawn from more and more of the levels, the easiest first.

    On short chains the model finds the table of facts, which the long ones hide behind where to look.
    """
    rng = random.Random(f"lessons/{recipe.seed}")
    batches = recipe.num_texts // recipe.batch_size
    plan: list[int] = []
    for batch in range(1, batches + 1):
        progress = min(1.0, batch / (recipe.share_of_easy_batches * batches))
        open_levels = recipe.student_levels[: math.ceil(progress * len(recipe.student_levels))]
        plan += [rng.choice(open_levels)] * recipe.batch_size
    return plan


TEXTS: dict[str, Callable[[BaseModelRecipe], list[Text]]] = {"chains": _chains_texts}

RECIPES = {"chains": BaseModelRecipe(task="chains", num_texts=900 * 32)}


def make_base_model(root: Path, recipe: BaseModelRecipe) -> Path:
    """Folder of the base model below ``root``, trained now unless it is there already.

    Raises:
        DataError: If the training text cannot be read.
    """
    texts = TEXTS[recipe.task](recipe)
    folder = root / f"{recipe.task}-{fingerprint(recipe, texts)}"
    if folder.exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=root))
    try:
        tokenizer = byte_tokenizer()
        model = train(recipe, texts, tokenizer, scratch=unfinished / "scratch")
        shutil.rmtree(unfinished / "scratch", ignore_errors=True)
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        recipe_text = json.dumps(dataclasses.asdict(recipe), indent=2, sort_keys=True)
        (unfinished / "recipe.json").write_text(recipe_text + "\n", encoding="utf-8")
        _publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def fingerprint(recipe: BaseModelRecipe, texts: Sequence[Text]) -> str:
    """Hash of the settings, the training text itself, the code of this file and the libraries' versions."""
    digest = hashlib.sha256()
    digest.update(json.dumps(dataclasses.asdict(recipe), sort_keys=True).encode())
    digest.update(inspect.getsource(sys.modules[__name__]).encode())
    digest.update(json.dumps({name: importlib.metadata.version(name) for name in LIBRARIES}).encode())
    for text in texts:
        digest.update(json.dumps(text).encode())
    return digest.hexdigest()[:16]


def byte_tokenizer() -> Qwen2Tokenizer:
    """One token a byte, whose id is the byte's value, and Qwen's three special tokens behind them."""
    vocabulary = {character: byte for byte, character in enumerate(_characters_of_bytes())}
    for token in SPECIAL_TOKENS:
        vocabulary[token] = len(vocabulary)
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=[],
        unk_token=PADDING,
        eos_token=END_OF_TEXT,
        pad_token=PADDING,
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _characters_of_bytes() -> list[str]:
    """The printable stand-in for each byte that byte-level vocabularies use, in the order of the bytes.

    Printable Latin-1 bytes stand for themselves, the others for the characters from U+0100 on.
    """
    alphabet = set(ByteLevel.alphabet())
    stand_ins = iter(sorted(character for character in alphabet if ord(character) >= 256))
    return [chr(byte) if chr(byte) in alphabet else next(stand_ins) for byte in range(256)]


def train(
    recipe: BaseModelRecipe, texts: Sequence[Text], tokenizer: Qwen2Tokenizer, *, scratch: Path
) -> PreTrainedModel:
    """A Qwen2 from random weights, trained on ``texts`` in single precision on the CPU."""
    torch.manual_seed(recipe.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
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
    )
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
    rows = [_row(text, tokenizer) for text in texts]
    optimizer = MuonWithAdam(model, recipe)
    schedule = get_cosine_schedule_with_warmup(
        optimizer, recipe.warmup_steps, recipe.epochs * math.ceil(len(rows) / recipe.batch_size)
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=rows, data_collator=_pad, optimizers=(optimizer, schedule)
    )
    trainer.train()
    return model


class MuonWithAdam(torch.optim.Optimizer):
    """Muon on the matrices inside the layers, Adam on everything else, behind the interface of one optimizer.

    Adam alone needs ten times the steps before a model of this size holds a table of facts.
    """

    def __init__(self, model: PreTrainedModel, recipe: BaseModelRecipe) -> None:
        named = dict(model.named_parameters())
        inside = [name for name, weight in named.items() if weight.ndim == 2 and "embed" not in name]
        self._parts = (
            torch.optim.Muon(
                [named[name] for name in inside], lr=recipe.muon_learning_rate, weight_decay=0.0
            ),
            torch.optim.Adam(
                [weight for name, weight in named.items() if name not in inside],
                lr=recipe.adam_learning_rate,
                betas=(0.9, 0.98),
            ),
        )
        super().__init__(named.values(), {})
        # The scheduler writes learning rates into the groups that it sees here, and the parts read them
        # there.
        self.param_groups = [group for part in self._parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "Trainer.train calls step without a closure"
        # The scheduler writes learning rates into this optimizer's groups, one for each of the parts' groups.
        groups = [group for part in self._parts for group in part.param_groups]
        for group, scheduled in zip(groups, self.param_groups, strict=True):
            group["lr"] = scheduled["lr"]
        for part in self._parts:
            part.step()


def _row(text: Text, tokenizer: Qwen2Tokenizer) -> dict[str, list[int]]:
    prompt, solution = (tokenizer(part)["input_ids"] for part in text)
    solution = [*solution, tokenizer.eos_token_id]
    return {"input_ids": prompt + solution, "labels": [NO_LOSS] * len(prompt) + solution}


def _pad(rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Rows of different lengths as one batch, padded on the right.

    Causal attention never looks at padding on the right, so no mask is needed.
    """
    longest = max(len(row["input_ids"]) for row in rows)
    return {
        key: torch.tensor([row[key] + [filler] * (longest - len(row[key])) for row in rows])
        for key, filler in (("input_ids", 0), ("labels", NO_LOSS))
    }


def _publish(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process made the same model meanwhile.
        if not folder.exists():
            raise


def main(argv: Sequence[str] | None = None) -> None:
    """Command line; the last line of stdout is the model's folder."""
    parser = argparse.ArgumentParser(description="Make a small base model, or find the one made before.")
    parser.add_argument("--out", type=Path, required=True, help="folder that the model's folder is put into")
    parser.add_argument("--task", choices=sorted(RECIPES), default="chains")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    sys.stdout.write(f"{make_base_model(arguments.out, RECIPES[arguments.task])}\n")


if __name__ == "__main__":
    main()
