"""Upload of an exported folder to the Hugging Face hub, with ``huggingface_hub``.

Causes of failure are checked before any work; if an upload fails nevertheless, the folder stays.
"""

import shlex
from pathlib import Path
from typing import Any

from seele.errors import ConfigError, DependencyError, SeeleError

STALE = ("*.safetensors", "*.safetensors.index.json", "*.bin")
"""Weights of an earlier upload, which are deleted if this one has none of that name."""


class UploadFailed(SeeleError):
    """The hub did not accept a folder that is complete on this machine."""


def open_hub() -> Any:
    """The hub's client, with the user's token and ``HF_ENDPOINT``.

    Raises:
        DependencyError: If ``huggingface_hub`` is not installed.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise DependencyError("--push needs 'huggingface_hub'; run: pip install huggingface_hub") from error
    return HfApi(library_name="seele")


def check_push(hub: Any, name: str, *, private: bool) -> None:
    """Refuse an upload that cannot succeed.

    Args:
        hub: A ``huggingface_hub.HfApi``.
        name: ``OWNER/NAME`` of the model.
        private: True if the repository must not be public.

    Raises:
        ConfigError: If the name is not valid, there is no token, the hub cannot be reached, or the repository
            is public and must not be.
    """
    from huggingface_hub import get_token
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ConfigError(f"--push {name}: {error}") from error
    if "/" not in name:
        raise ConfigError(f"--push {name}: expected OWNER/NAME, such as my-name/my-model")
    if not get_token():
        raise ConfigError(
            "--push: not logged in to the Hugging Face hub; run `hf auth login`, or set HF_TOKEN"
        )
    try:
        hub.whoami()
        is_private = hub.repo_info(name).private
    except RepositoryNotFoundError:
        return
    except _failures() as error:
        raise ConfigError(
            f"--push {name}: the Hugging Face hub cannot be reached, or does not accept the token: {error}"
        ) from error
    if private and not is_private:
        raise ConfigError(f"--push {name} --private: the repository exists and is public; name another")


def push(hub: Any, folder: Path, name: str, *, private: bool) -> str:
    """Create the repository if it does not exist, and upload the folder in one commit.

    Returns:
        The address of the model.

    Raises:
        UploadFailed: If the hub refused, or could not be reached. The message says how to continue.
    """
    try:
        address = hub.create_repo(name, private=True if private else None, exist_ok=True)
        hub.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message="Upload a model exported by SEELE",
            delete_patterns=list(STALE),
        )
    except _failures() as error:
        raise UploadFailed(
            f"{name}: the upload failed: {error}\nThe folder is complete; upload it with: "
            f"{upload_command(folder, name, private=private)}"
        ) from error
    return str(address)


def upload_command(folder: Path, name: str, *, private: bool) -> str:
    """The command that uploads the folder by itself."""
    words = ["hf", "upload", name, str(folder), ".", *(["--private"] if private else [])]
    return shlex.join(words + [word for pattern in STALE for word in ("--delete", pattern)])


def _failures() -> tuple[type[Exception], ...]:
    """Exceptions that the client raises if the hub refuses or cannot be reached."""
    from httpx import HTTPError

    return (OSError, ValueError, HTTPError)
