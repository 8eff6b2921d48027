"""Errors that a user can fix.

Each message says where the problem is, what came, what is allowed and what to do. Violated invariants of our
own code are ``assert``s instead. The classes take a single message so that they survive pickling: Ray passes
them between processes.
"""


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
