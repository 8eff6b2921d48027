"""The files that a run writes line by line: ``metrics.jsonl`` and ``rollouts/step_N.jsonl``.

A step's line is appended in one write, so that a killed run leaves whole lines except perhaps the last;
``rewind`` removes lines after the checkpoint that a run resumes from. Variables tell TensorBoard and wandb
where to write, and whether wandb may send anything.
"""

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seele.data.storage.files import write_atomically
from seele.errors import CheckpointError
from seele.report.run_folder import FIRST_STAGE
from seele_verl.environment import variables_set

METRICS = "metrics.jsonl"
WARNINGS = Path("logs") / "warnings.log"
"""Messages for the terminal beside its step lines."""
WANDB_RUN = Path("logs") / "wandb_run"
"""The identifier of the run at wandb."""
TRAINED = ("tokens/trained", "tokens/trained_packed", "tokens/trained_informative")
"""Tokens of an update: all rows in full, shared prompts counted once, and only informative rows."""
TOTALS = ("tokens/prefilled", "tokens/generated", *TRAINED, "tokens/teacher_forced", "flops")
"""Counts that also get a running total over the run, under the same name with ``_total``."""


class RunLog:
    """The metrics and rollouts of one run folder."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._totals = totals_of(run / FIRST_STAGE)
        self.generated: dict[int, float] = {}
        """Step -> tokens that the run had generated after it, for the steps that have a line."""
        (run / "rollouts").mkdir(parents=True, exist_ok=True)

    def rewind(self, step: int, saved: Mapping[str, float] | None = None) -> dict[str, float]:
        """Keep the lines up to ``step`` and drop the rest; totals continue from that step.

        Args:
            step: The step of the checkpoint that the run resumes from.
            saved: The checkpoint's copy of that step's line; a killed run may not have written it.

        Returns:
            The line of ``step``; empty if there is none.
        """
        kept = [row for row in rows_of(self._run) if row["step"] <= step]
        if saved and (not kept or kept[-1]["step"] < step):
            kept.append({"step": step} | dict(saved))
        for row in kept:
            self._totals = {name: row.get(f"{name}_total", total) for name, total in self._totals.items()}
            self.generated[int(row["step"])] = self._totals["tokens/generated"]
        write_atomically(self._run / METRICS, "".join(map(_line, kept)))
        for dump in dumps_after(self._run, step):
            dump.unlink()
        return kept[-1] if kept and kept[-1]["step"] == step else {}

    def count(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Add a step's costs to the running totals, and return the totals, ``*_total``."""
        self._totals = {name: total + metrics.get(name, 0.0) for name, total in self._totals.items()}
        return {f"{name}_total": total for name, total in self._totals.items()}

    def write(self, step: int, row: Mapping[str, float]) -> None:
        """Append a step's line, which already has its totals. A step is written only once."""
        if step not in self.generated:
            self.generated[step] = self._totals["tokens/generated"]
            with (self._run / METRICS).open("a") as file:
                file.write(_line({"step": step} | dict(row)))

    def append(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Count and write a step, and return its line."""
        row = dict(metrics) | self.count(metrics)
        self.write(step, row)
        return row

    def amend(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add metrics to a step's line that were measured after it was written; without a line, write one."""
        rows = {row["step"]: row for row in rows_of(self._run)}
        rows[step] = {"step": step} | rows.get(step, {}) | dict(metrics)
        write_atomically(self._run / METRICS, "".join(_line(rows[number]) for number in sorted(rows)))

    def warn(self, text: str) -> None:
        """Show text on the terminal; whole lines, or an empty string for nothing."""
        if text:
            path = self._run / WARNINGS
            path.parent.mkdir(exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(text)

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write ``rollouts/step_N.jsonl``, replacing what an interrupted run left."""
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_atomically(self._run / "rollouts" / f"step_{step}.jsonl", "".join(lines))


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl`` without a last one that a kill cut off; empty without a file.

    Raises:
        CheckpointError: If another line is damaged.
    """
    path = run / METRICS
    rows: list[dict[str, Any]] = []
    whole, _, _ = path.read_bytes().rpartition(b"\n") if path.exists() else (b"", b"", b"")
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            row = json.loads(line)
            int(row["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path}: line {number} is damaged ({error!r}); remove the line, or copy the file again"
            ) from error
        rows.append(row)
    return rows


def last_step(run: Path) -> int:
    """Return the last step with a line, 0 for none."""
    return max((row["step"] for row in rows_of(run)), default=0)


def totals_of(run: Path) -> dict[str, float]:
    """Return the total costs of the run in this folder; all 0 if there is no run."""
    rows = rows_of(run)
    return {name: rows[-1].get(f"{name}_total", 0.0) if rows else 0.0 for name in TOTALS}


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True) + "\n"


def dumps_after(run: Path, step: int) -> list[Path]:
    """Return the files of rollouts of later steps."""
    numbers = {dump: dump.stem.removeprefix("step_") for dump in (run / "rollouts").glob("step_*.jsonl")}
    return [dump for dump, number in numbers.items() if number.isdecimal() and int(number) > step]


def tracking_variables(folder: Path, *, resumes: bool) -> dict[str, str]:
    """Return variables that make TensorBoard and wandb write to the run folder, wandb offline without a key
    and to the same run of its own if this one ``resumes``.

    The user's own values take precedence, and are included: workers of an already running Ray cluster have
    the cluster's environment.
    """
    defaults = {"TENSORBOARD_DIR": str(folder / "tensorboard"), "WANDB_DIR": str(folder)}
    wandb_run = folder / WANDB_RUN
    if not (resumes and wandb_run.exists()):
        write_atomically(wandb_run, secrets.token_hex(8))
    defaults |= {"WANDB_RUN_ID": wandb_run.read_text(), "WANDB_RESUME": "allow"}
    if not _has_wandb_key():
        defaults["WANDB_MODE"] = "offline"
    set_by_user = {name: os.environ[name] for name in (*defaults, "WANDB_MODE") if name in os.environ}
    return defaults | set_by_user


@contextmanager
def tracking(variables: Mapping[str, str]) -> Iterator[None]:
    """While open, set those of these variables that this process does not have: a second stage has another
    folder.
    """
    with variables_set({name: value for name, value in variables.items() if name not in os.environ}):
        yield


def _has_wandb_key() -> bool:
    """True if wandb will find a key: in the environment, or where ``wandb login`` stores it."""
    if "WANDB_API_KEY" in os.environ:
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    try:
        entries = netrc(Path(os.environ.get("NETRC") or "~/.netrc").expanduser())
    except (OSError, NetrcParseError):
        return False
    return entries.authenticators(host) is not None
