"""Rows of a data set on the Hugging Face hub, pinned to one commit so that they never change.

``datasets`` caches what it fetches and falls back on the cache when the hub cannot be reached, whatever
revision it holds; this module refuses a revision other than the requested one.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seele.data.storage.floats import shorten_floats
from seele.errors import DataError, DependencyError

RETRY_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Waits between attempts at the hub, in seconds."""

# Status codes after which a request may be retried.
_PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})

_COMMIT = re.compile(r"[0-9a-f]{40}")

# Messages of ``datasets`` for a data set with several configurations, on the hub and in the cache.
_SEVERAL_CONFIGS = re.compile(r"config name is missing|multiple '.*' configurations in the cache", re.I)

_NO_SUCH_CONFIG = re.compile(r"builderconfig .* not found|couldn't find cache for .* for config", re.I)
_NO_ACCESS = re.compile(r"gated|cannot be accessed|must be authenticated|ask for access", re.I)

LATEST = "main"

ChooseColumns = Callable[[Sequence[str]], list[str]]
"""Takes the names of all columns; returns those to read."""


@dataclass(frozen=True, slots=True)
class HubSource:
    """One split of one data set at one commit."""

    name: str
    """``owner/name``."""
    split: str
    revision: str
    """Commit of the data set's repository; a branch such as ``main`` changes over time."""
    config: str | None = None
    """Name of the configuration, if the data set has several."""

    def __str__(self) -> str:
        config = f", {self.config}" if self.config else ""
        return f"{self.name}@{self.revision[:8]} ({self.split}{config})"

    @property
    def is_pinned(self) -> bool:
        """True if the revision is a commit, which never changes."""
        return _COMMIT.fullmatch(self.revision) is not None


class SeveralConfigs(DataError):
    """A data set has several configurations, and none was named."""


def read_hub_rows(source: HubSource, *, instead: str) -> list[tuple[str, Any]]:
    """Return the rows in the order of the source, each with its location for messages.

    Args:
        source: What to fetch; the ``datasets`` library keeps it in its cache.
        instead: What to do without a network, for the message.

    Raises:
        DataError: If the hub cannot be reached or denies access to the data set.
        DependencyError: If ``datasets`` is not installed.
    """
    rows = open_hub_rows(source, instead=instead)
    return list(iterate_hub_rows(rows, source))


def open_configs(
    source: HubSource,
    configs: Sequence[str],
    *,
    instead: str,
    choose: ChooseColumns | None = None,
) -> list[tuple[Any, HubSource]]:
    """Return ``open_hub_rows`` of each of ``configs``, with its source. If none is named, open the only or
    the default configuration, and otherwise all of them.

    Raises:
        DataError, DependencyError: As in ``open_hub_rows``.
    """

    def open_each(names: Sequence[str | None]) -> list[tuple[Any, HubSource]]:
        sources = [replace(source, config=name) for name in names]
        return [(open_hub_rows(each, instead=instead, choose=choose), each) for each in sources]

    if configs:
        return open_each(configs)
    try:
        return open_each([None])
    except SeveralConfigs:
        from datasets import get_dataset_config_names

        try:
            names = _with_retries(lambda: get_dataset_config_names(source.name, revision=source.revision))
        except _library_errors() as error:
            raise _cannot_fetch(source, error, instead) from error
        return open_each(names)


def open_hub_rows(source: HubSource, *, instead: str, choose: ChooseColumns | None = None) -> Any:
    """Return the data set from ``datasets``, fetched or cached, but not yet read.

    Network failures are retried after each of ``RETRY_DELAYS_S``; with ``HF_HUB_OFFLINE=1`` there are no
    retries.

    Args:
        source: What to fetch.
        instead: What to do without a network, for the message.
        choose: Returns the columns to read; None for all.

    Raises:
        DataError: As in ``read_hub_rows``, or if the cache holds another revision.
        DependencyError: If ``datasets`` is not installed.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DependencyError(f"{source} from the hub needs 'datasets'; run: pip install datasets") from error
    try:
        rows = _with_retries(
            lambda: load_dataset(source.name, source.config, split=source.split, revision=source.revision)
        )
    except _library_errors() as error:
        raise _cannot_fetch(source, error, instead) from error
    commit = commit_of(rows)
    if source.is_pinned and commit not in (None, source.revision):
        raise DataError(
            f"{source}: the hub cannot be reached, and the cache of 'datasets' holds revision {commit}; "
            f"ask for that one (revision={commit}), or run once with a network. {instead}"
        )
    if choose is None or not hasattr(rows, "select_columns"):
        return rows
    return rows.select_columns(choose(rows.column_names))


def iterate_hub_rows(rows: Any, source: HubSource) -> Iterator[tuple[str, Any]]:
    """Yield each row of ``open_hub_rows`` with its location for messages."""
    if features := getattr(rows, "features", None):
        rows = map(shorten_floats(features.arrow_schema), rows)
    for number, row in enumerate(rows):
        yield f"{source}: row {number} (counted from 0)", row


def commit_of(rows: Any) -> str | None:
    """Return the commit of rows from ``open_hub_rows``, taken from the folder name in the cache."""
    for file in getattr(rows, "cache_files", ()):
        if _COMMIT.fullmatch(folder := Path(file["filename"]).parent.name):
            return folder
    return None


def _cannot_fetch(source: HubSource, error: Exception, instead: str) -> DataError:
    """Return an error with the library's message in one line, and what to do about it."""
    said = " ".join(str(error).split()).removesuffix(".")
    kind = SeveralConfigs if source.config is None and _SEVERAL_CONFIGS.search(said) else DataError
    remedies = []
    if source.config is not None and _NO_SUCH_CONFIG.search(said):
        remedies.append(f"It has no configuration {source.config!r}: name another one with config=NAME.")
    if _NO_ACCESS.search(said) or _status_of(error) in (401, 403):
        remedies.append(
            f"If {source.name} is gated or private: ask for access on https://huggingface.co/datasets/"
            f"{source.name}, then log in with `hf auth login` or set HF_TOKEN; else check the name."
        )
    return kind(
        f"cannot fetch {source} from the Hugging Face hub: {' '.join([f'{said}.', *remedies, instead])}"
    )


def _status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status of the hub's response that caused an error."""
    while error is not None:
        if (status := getattr(getattr(error, "response", None), "status_code", None)) is not None:
            return int(status)
        error = error.__cause__ or error.__context__
    return None


def _with_retries(attempt: Callable[[], Any]) -> Any:
    for delay_s in RETRY_DELAYS_S:
        try:
            return attempt()
        except _library_errors() as error:
            if not _is_passing(error):
                raise
        time.sleep(delay_s)
    return attempt()


def _is_passing(error: BaseException) -> bool:
    """Return True if the same request may succeed later: no response, or one that asks to retry."""
    link: BaseException | None = error
    is_network = False
    while link is not None:
        # ``datasets`` puts the exception's name into its own message.
        if "OfflineModeIsEnabled" in f"{type(link).__name__}: {link}":
            return False
        if (response := getattr(link, "response", None)) is not None:
            return getattr(response, "status_code", None) in _PASSING_STATUS
        is_network |= isinstance(link, (ConnectionError, TimeoutError, *_transport_errors()))
        link = link.__cause__ or link.__context__
    return is_network


def _library_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of ``load_dataset`` for a missing, gated, broken or unreachable data set."""
    of_python = (OSError, ValueError, RuntimeError)
    try:
        from datasets.exceptions import DatasetsError
    except ImportError:
        return (*of_python, *_transport_errors())
    return (*of_python, DatasetsError, *_transport_errors())


def _transport_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of the hub's client for a request that fails in transit."""
    try:
        from httpx import TransportError
    except ImportError:
        # Clients before huggingface_hub 1.0 raise subclasses of OSError.
        return ()
    return (TransportError,)
