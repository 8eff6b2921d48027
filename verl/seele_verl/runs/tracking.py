"""Where TensorBoard and wandb write, and whether wandb may send anything."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from netrc import NetrcParseError, netrc
from pathlib import Path
from urllib.parse import urlsplit


def tracking_variables(folder: Path) -> dict[str, str]:
    """The variables of TensorBoard and wandb: into the run's folder, wandb offline where there is no key.

    What the user has set stands, and is named, too: workers of a Ray cluster that was there before have its
    environment.
    """
    defaults = {"TENSORBOARD_DIR": str(folder / "tensorboard"), "WANDB_DIR": str(folder)}
    if not _has_wandb_key():
        defaults["WANDB_MODE"] = "offline"
    set_by_user = {name: os.environ[name] for name in (*defaults, "WANDB_MODE") if name in os.environ}
    return defaults | set_by_user


@contextmanager
def tracking(variables: Mapping[str, str]) -> Iterator[None]:
    """While open, this process has these variables where it has none of the name: a second stage has another
    folder.
    """
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _has_wandb_key() -> bool:
    """Whether wandb will find a key: in the environment, or where ``wandb login`` leaves it."""
    if "WANDB_API_KEY" in os.environ:
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    try:
        entries = netrc(Path(os.environ.get("NETRC") or "~/.netrc").expanduser())
    except (OSError, NetrcParseError):
        return False
    return entries.authenticators(host) is not None
