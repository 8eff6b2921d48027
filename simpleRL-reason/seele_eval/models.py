"""Find a model's files: in a Hugging Face folder, or on the hub, from which they are fetched once."""

import re
from pathlib import Path

from seele.errors import DataError, DependencyError

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")

# Files that transformers and vLLM read; repositories hold many others.
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


def find_model(name: str, *, revision: str | None = None) -> Path:
    """The folder of the model called ``name``.

    Args:
        name: A folder, or ``owner/name`` on the Hugging Face hub.
        revision: Commit, tag or branch on the hub; the main branch when not given.

    Raises:
        DataError: If neither a folder nor a model on the hub has this name.
        DependencyError: If the hub is needed and ``huggingface_hub`` is not installed.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    if not _HUB_NAME.fullmatch(name):
        raise DataError(
            f"{name}: no such model folder; expected a Hugging Face folder with config.json and weights, "
            "or a name on the hub such as Qwen/Qwen2.5-1.5B"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise DependencyError(f"{name} from the hub needs 'huggingface_hub'; run: pip install it") from error
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{name}: no such folder, and the Hugging Face hub does not hand it out: {error}. Gated models "
            "need HF_TOKEN; without a network, name a folder"
        ) from error


def find_weights(model: Path) -> list[Path]:
    """The weight files of a Hugging Face folder, sorted by name.

    Raises:
        DataError: If its configuration or its weights are missing.
    """
    if not (model / "config.json").is_file():
        raise DataError(
            f"{model}: holds no config.json; an FSDP checkpoint must be merged first (scripts/eval.sh)"
        )
    weights = sorted(model.glob("*.safetensors")) or sorted(model.glob("*.bin"))
    if not weights:
        raise DataError(f"{model}: holds no weights (*.safetensors or *.bin)")
    return weights
