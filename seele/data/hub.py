"""Rows of a data set on the Hugging Face hub, always at a commit, so that they never change under a run."""

from dataclasses import dataclass
from typing import Any

from seele.errors import DataError, DependencyError


@dataclass(frozen=True, slots=True)
class HubSource:
    """One split of one data set at one commit."""

    name: str
    """``owner/name``."""
    split: str
    revision: str
    """Commit of the data set's repository."""
    config: str | None = None
    """Name of the configuration, where the data set has several."""

    def __str__(self) -> str:
        return f"{self.name}@{self.revision[:8]} ({self.split})"


def read_hub_rows(source: HubSource, *, instead: str) -> list[tuple[str, Any]]:
    """The rows in the order of the source, each with its place for messages.

    Args:
        source: What to fetch; the ``datasets`` library keeps it in its cache.
        instead: What to do without a network, for the message.

    Raises:
        DataError: If the hub cannot be reached or does not hand the data set out.
        DependencyError: If ``datasets`` is not installed.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DependencyError(f"{source} from the hub needs 'datasets'; run: pip install datasets") from error
    try:
        rows = load_dataset(source.name, source.config, split=source.split, revision=source.revision)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot fetch {source} from the Hugging Face hub: {error}. {instead}") from error
    return [(f"{source}: row {number} (counted from 0)", row) for number, row in enumerate(rows)]
