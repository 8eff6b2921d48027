"""Errors that a user can fix.

Each message says where the problem is, what came, what is allowed and what to do. Violated invariants of our
own code are ``assert``s instead. The classes take a single message so that they survive pickling: Ray passes
them between processes.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches


class SeeleError(Exception):
    """Base of all errors that a user can fix."""


class ConfigError(SeeleError, ValueError):
    """A setting is missing, unknown, of the wrong type, or contradicts another."""


class DataError(SeeleError, ValueError):
    """A data file is missing, or one of its rows violates the schema."""


class CheckpointError(SeeleError):
    """A checkpoint or run folder is incomplete or does not belong to this run."""


class DependencyError(SeeleError, ImportError):
    """A library that this command needs is not installed, or has the wrong version."""


class PluginError(SeeleError):
    """User code raised an error or returned an invalid value; the message names its file and line."""


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return the question whether a similar name was meant, or "". Names whose words begin with those of
    ``name`` come first (``total_training_steps`` for ``total_step``), then its initials (``lr`` for
    ``learning_rate``).
    """
    names, words = [*allowed], name.split("_")
    begins = re.compile(r"\w*_".join(map(re.escape, words)) + r"\w*")
    initials = "".join(word[:1] for word in words)
    near = [
        *sorted(filter(begins.fullmatch, names), key=len),
        *(each for each in names if each == initials),
        *get_close_matches(name, names, n=1),
    ]
    return f" (did you mean {near[0]!r}?)" if near else ""
