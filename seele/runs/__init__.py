"""Runs on disk, for users: a list of the runs below a folder, and one run as pandas frames."""

from seele.runs.frames import Run, load_run
from seele.runs.overview import RunState, RunSummary, list_runs

__all__ = ["Run", "RunState", "RunSummary", "list_runs", "load_run"]
