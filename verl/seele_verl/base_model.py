r"""Base models that are made here, on a CPU, in minutes: a small Qwen2 trained on the text of one task.

    python -m seele_verl.base_model --out models --task chains    # its last line: the folder

The policy is asked with the question and a line break (template ``plain``), the hint behind it, and ends its
solution with the end-of-text token; the base model is trained on exactly that layout, with the loss on the
solution. A folder is named after a hash of everything that the model depends on, and appears complete or
not at all; from the command line the link ``models/chains`` leads to the latest one.

Here live the tokenizer, the architecture, the recipes and the cache. The training loop is that of
``transformers.Trainer``; the texts come from ``seele.data``. A new task is one entry in ``RECIPES`` and one
in ``TEXTS``.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import math
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
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

from seele.data.storage.schema import read_problems
from seele.data.tasks import chains
from seele.data.tasks.chains import ChainsConfig, StudentConfig
from seele.data.tasks.gsm8k import read_gsm8k
from seele.rollout.templates import render_prompt

END_OF_TEXT = "<|im_end|>"
PADDING = "<|endoftext|>"
SPECIAL_TOKENS = (PADDING, "<|im_start|>", END_OF_TEXT)

# What the template "plain" writes: verl asks the tokenizer for a chat template even where it is not used.
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"

LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate")

# The label that torch's cross entropy leaves out of the loss.
NO_LOSS = -100

Text = tuple[str, str]
"""Question or prompt, and solution without the end-of-text token."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelRecipe:
    """What a base model is made of. Two equal recipes make the same model on the same kind of CPU; on another
    kind rounding differs, and training carries that far.
    """

    task: str
    """Key of ``TEXTS``."""

    chains: ChainsConfig = dataclasses.field(default_factory=ChainsConfig)
    student: StudentConfig = dataclasses.field(default_factory=StudentConfig)
    student_levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    """Chains only: levels of the training text, the easiest first; none beyond the training levels."""
    student_batches: int = 550
    """Chains only: batches of text that the student writes; each text is seen once."""
    share_of_easy_batches: float = 0.3
    """Chains only: over this first share of the batches the levels open up one by one."""

    data_folder: str = ""
    """GSM8K: the folder that holds ``train.jsonl``; the Hugging Face hub when empty. Problems: the folder
    with ``train.parquet``."""
    max_chars: int = 400
    """GSM8K only: problems whose question and solution are longer are left out, as by ``seele data``."""
    min_steps: int = 1
    """GSM8K only: problems with fewer steps, the answer's among them, are left out. A model that has seen
    many short solutions states an answer after any two steps."""
    drills: int = 0
    """GSM8K only: texts of 30 calculations each, written as in the solutions, with other numbers."""

    epochs: int = 1
    batch_size: int = 32
    sampling: str = "sequential"
    """``sequential`` keeps the order of the texts; ``group_by_length`` shuffles them and pads little."""

    hidden_size: int = 128
    intermediate_size: int = 384
    num_layers: int = 2
    num_heads: int = 4
    max_positions: int = 512
    """Tokens; longer texts are left out."""
    initializer_range: float = 0.06
    """Standard deviation of the first weights. With Qwen's 0.02 so narrow a model stands still for long."""

    muon_learning_rate: float = 0.02
    adam_learning_rate: float = 3e-3
    warmup_steps: int = 20
    seed: int = 0


def _chains_texts(recipe: BaseModelRecipe) -> Iterator[Text]:
    return chains.student_solutions(recipe.chains, recipe.student, levels=_lesson_plan(recipe))


def _lesson_plan(recipe: BaseModelRecipe) -> list[int]:
    """The level of each text: one level a batch, drawn from more and more of the levels.

    On short chains the model finds the table of facts; the rest of the training is about where in a long
    chain it stands, hence the longer of two drawn levels.
    """
    rng = random.Random(f"lessons/{recipe.seed}")
    plan: list[int] = []
    for batch in range(1, recipe.student_batches + 1):
        progress = min(1.0, batch / (recipe.share_of_easy_batches * recipe.student_batches))
        open_levels = recipe.student_levels[: math.ceil(progress * len(recipe.student_levels))]
        plan += [max(rng.choices(open_levels, k=2))] * recipe.batch_size
    return plan


def _gsm8k_texts(recipe: BaseModelRecipe) -> Iterator[Text]:
    folder = Path(recipe.data_folder) if recipe.data_folder else None
    instances = read_gsm8k("train", folder=folder, max_chars=recipe.max_chars)
    for instance in instances:
        if len(instance.steps) >= recipe.min_steps:
            yield instance.question, "".join(instance.steps)
    rng = random.Random(f"drills/{recipe.seed}")
    found = [match for instance in instances for match in CALCULATION.finditer("".join(instance.steps))]
    for _ in range(recipe.drills):
        yield "", "".join(f"{_drill(rng.choice(found), rng)}\n" for _ in range(CALCULATIONS_PER_DRILL))


# "48/2 = 24": the numbers and operators of a calculation, and the way it is spaced.
CALCULATION = re.compile(r"(\d{1,3})( ?)([-+*x/])( ?)(\d{1,2})( ?= ?)\d+")
CALCULATIONS_PER_DRILL = 30


def _drill(found: re.Match[str], rng: random.Random) -> str:
    """A calculation of the same form with numbers of the same length, none negative and none broken."""
    left, right = (rng.randrange(10 ** (len(found[group]) - 1), 10 ** len(found[group])) for group in (1, 5))
    match found[3]:
        case "+":
            result = left + right
        case "-":
            left, right = max(left, right), min(left, right)
            result = left - right
        case "/":
            result = max(1, left // right)
            left = result * right
        case _:
            result = left * right
    return f"{left}{found[2]}{found[3]}{found[4]}{right}{found[6]}{result}"


def _problems_texts(recipe: BaseModelRecipe) -> Iterator[Text]:
    """Worked solutions of a file in our schema, or the boxed answer alone where there is none."""
    for instance in read_problems(Path(recipe.data_folder) / "train.parquet"):
        yield instance.question, "".join(instance.steps) or f"\\boxed{{{instance.answer}}}"


TEXTS: dict[str, Callable[[BaseModelRecipe], Iterator[Text]]] = {
    "chains": _chains_texts,
    "gsm8k": _gsm8k_texts,
    "problems": _problems_texts,
}

RECIPES = {
    # With 0.02 some seeds, or the same one on another CPU, are not done when the learning rate is.
    "chains": BaseModelRecipe(task="chains", muon_learning_rate=0.012),
    # It has met solutions that do two operations a step, and gets these mostly wrong.
    "two_styles": BaseModelRecipe(
        task="chains",
        chains=ChainsConfig(train_levels=(4, 5, 6, 7, 8, 9, 10), harder_levels=(11, 12), answer_values=3),
        student=StudentConfig(misconceived=0.5, skipping=0.3, returning=0.5),
        student_levels=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        student_batches=900,
    ),
    "gsm8k": BaseModelRecipe(
        task="gsm8k",
        max_chars=500,
        min_steps=4,
        drills=1500,
        epochs=8,
        batch_size=16,
        sampling="group_by_length",
        hidden_size=192,
        intermediate_size=512,
        num_layers=3,
        num_heads=6,
        max_positions=1024,
    ),
    # Of any prepared file: a model that knows the form of the answers and little else.
    "problems": BaseModelRecipe(task="problems", epochs=40, sampling="group_by_length", max_positions=2048),
}


def make_base_model(root: Path, recipe: BaseModelRecipe) -> Path:
    """Folder of the base model below ``root``, trained now unless it is there already.

    Raises:
        DataError: If the data that the training text comes from cannot be read.
    """
    pairs = TEXTS[recipe.task](recipe)
    texts = [(render_prompt(question, "plain"), solution) for question, solution in pairs]
    folder = root / f"{recipe.task}-{fingerprint(recipe, texts)}"
    if folder.exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    # A folder of its own for each process: two that make the same model do not meet before the rename.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=root) as scratch:
        unfinished = Path(scratch) / "model"
        tokenizer = byte_tokenizer()
        train(recipe, texts, tokenizer, scratch=Path(scratch)).save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        settings = json.dumps(dataclasses.asdict(recipe), indent=2, sort_keys=True)
        (unfinished / "recipe.json").write_text(f"{settings}\n", encoding="utf-8")
        _publish(unfinished, folder)
    return folder


def fingerprint(recipe: BaseModelRecipe, texts: Sequence[Text]) -> str:
    """Hash of the settings, the training text itself, the code of this file and the libraries' versions."""
    settings = dataclasses.asdict(recipe)
    # The text counts, not the place that it was read from.
    del settings["data_folder"]
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    digest = hashlib.sha256(json.dumps([settings, versions, texts], sort_keys=True).encode())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]


def byte_tokenizer() -> Qwen2Tokenizer:
    """One token a byte, whose id is the byte's value, and Qwen's three special tokens behind them."""
    vocabulary = {character: token for token, character in enumerate((*_byte_characters(), *SPECIAL_TOKENS))}
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


def _byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies, in the bytes' order.

    Printable Latin-1 bytes stand for themselves, the others for the characters from U+0100 on.
    """
    alphabet = set(ByteLevel.alphabet())
    stand_ins = iter(sorted(character for character in alphabet if ord(character) >= 256))
    return [chr(byte) if chr(byte) in alphabet else next(stand_ins) for byte in range(256)]


def train(
    recipe: BaseModelRecipe, texts: Sequence[Text], tokenizer: Qwen2Tokenizer, *, scratch: Path
) -> PreTrainedModel:
    """A Qwen2 from random weights, trained on ``texts`` in single precision on one core."""
    rows = [row for text in texts if len((row := _row(text, tokenizer))["input_ids"]) <= recipe.max_positions]
    torch.manual_seed(recipe.seed)
    model = Qwen2ForCausalLM(_architecture(recipe, tokenizer))
    optimizer = MuonWithAdam(model, recipe)
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


class MuonWithAdam(torch.optim.Optimizer):
    """Muon on the matrices inside the layers, Adam on embeddings and norms, as one optimizer for the Trainer.

    With Adam alone a model of this size needs several times the steps before it holds a table of facts.
    """

    def __init__(self, model: PreTrainedModel, recipe: BaseModelRecipe) -> None:
        inside: list[torch.Tensor] = []
        outside: list[torch.Tensor] = []
        for name, weight in model.named_parameters():
            (inside if weight.ndim == 2 and "embed" not in name else outside).append(weight)
        self._parts = (
            torch.optim.Muon(inside, lr=recipe.muon_learning_rate, weight_decay=0.0),
            torch.optim.Adam(outside, lr=recipe.adam_learning_rate, betas=(0.9, 0.98)),
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


def _link(name: str, folder: Path) -> None:
    """Let ``name`` beside ``folder`` lead to it, so that configurations need not know the hash."""
    fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    (fresh / name).symlink_to(folder.name)
    (fresh / name).replace(folder.parent / name)
    fresh.rmdir()


def _publish(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was faster; the models are equal.
        if not folder.exists():
            raise


def main(argv: Sequence[str] | None = None) -> None:
    """Command line; the last line of stdout is the model's folder."""
    parser = argparse.ArgumentParser(description="Make a small base model, or find the one made before.")
    parser.add_argument("--out", type=Path, required=True, help="folder that the model's folder is put into")
    parser.add_argument("--task", choices=sorted(RECIPES), default="chains")
    parser.add_argument(
        "--data-folder",
        default="",
        help="gsm8k: folder of train.jsonl (default: the hub); problems: folder of train.parquet",
    )
    arguments = parser.parse_args(argv)
    recipe = dataclasses.replace(RECIPES[arguments.task], data_folder=arguments.data_folder)
    # The Trainer prints its losses.
    with contextlib.redirect_stdout(sys.stderr):
        folder = make_base_model(arguments.out, recipe)
    _link(arguments.task, folder)
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    main()
