r"""Base models that are made here, on a CPU, in minutes: a small Qwen2 trained on the text of one task.

The policy is asked with the question and a line break (template ``plain``), the hint behind it, and ends its
solution with the end-of-text token; the base model is trained on exactly that layout, with the loss on the
solution. A folder is named after a hash of everything that the model depends on, and appears complete or
not at all.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from seele.rollout.templates import render_prompt
from seele_models.recipes import BaseModelRecipe
from seele_models.texts import TEXTS, Text
from seele_models.tokenizer import byte_tokenizer
from seele_models.training import train

LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate")


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
    """Hash of the settings, the training text itself, this package's code and the libraries' versions."""
    settings = dataclasses.asdict(recipe)
    # The text counts, not the place that it was read from.
    del settings["data_folder"]
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    digest = hashlib.sha256(json.dumps([settings, versions, texts], sort_keys=True).encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _publish(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was faster; the models are equal.
        if not folder.exists():
            raise
