"""Effect of the token limits on problems: which do not fit, and which fit after being cut.

The run's driver decides once and writes a record. Trainers and validation follow the record when they read
the run's files, so that all have the same problems in the same order. Tokens are counted elsewhere
(``seele_verl.runs.overlong``).
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from seele.data.storage.files import write_atomically
from seele.data.storage.schema import read_problem_files
from seele.errors import DataError
from seele.records import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The run's limits, in tokens."""

    prompt: int
    """``data.max_prompt_length``: the prompt with its hint."""
    response: int
    """``data.max_response_length``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Lengths of a problem's parts, in tokens."""

    prompt: int
    """Tokens of the question in its template."""
    hint_steps: tuple[int, ...] = ()
    """Tokens that each further step of the longest hint adds, below 0 for a tier shorter than the previous
    one; empty where no hint is given."""
    hints_in_response: bool = False
    """True if a hint is part of the response (Prefix-RFT)."""
    response: int = 0
    """Tokens of a response that is given, not generated: a worked solution with its end token."""

    @property
    def hints(self) -> tuple[int, ...]:
        """Tokens of each hint, from 1 step on."""
        return tuple(itertools.accumulate(self.hint_steps))

    @property
    def needed(self) -> Limits:
        """The lowest limits under which nothing is cut."""
        hint = max((0, *self.hints))
        beside_hint = hint + 1 if self.hints_in_response and self.hints else 0
        return Limits(prompt=self.prompt + hint, response=max(self.response, beside_hint))


class Fit(NamedTuple):
    """Decision on one problem: whether it is kept, and what is cut to keep it."""

    why_not: str | None = None
    """The limit that the problem exceeds, as a predicate about the problem; None if it is kept."""
    hint_steps: int | None = None
    """Most steps that a hint may have, if fewer than the longest legal hint has."""
    is_cut: bool = False
    """True if the given response is cut."""


def fit(tokens: Tokens, limits: Limits, overlong: str) -> Fit:
    """Decide on a problem of these lengths under ``seele.data.overlong``; ``refuse`` acts like ``drop``."""
    if tokens.prompt > limits.prompt:
        return Fit(
            f"has {tokens.prompt} prompt tokens, more than data.max_prompt_length ({limits.prompt})"
            if not tokens.hint_steps
            else _prompt_and_hint(tokens, limits)
        )
    is_cut = tokens.response > limits.response
    if is_cut and overlong != "truncate":
        return Fit(
            f"has a solution of {tokens.response} tokens, more than data.max_response_length "
            f"({limits.response})"
        )
    longest = _longest_that_fits(tokens, limits)
    if longest == len(tokens.hint_steps):
        return Fit(is_cut=is_cut)
    if overlong == "truncate":
        return Fit(hint_steps=longest, is_cut=is_cut)
    hint = max(tokens.hints)
    if tokens.prompt + hint > limits.prompt:
        return Fit(_prompt_and_hint(tokens, limits))
    return Fit(
        f"has {hint} tokens in its longest prefix, which with another one are more than "
        f"data.max_response_length ({limits.response})"
    )


def _prompt_and_hint(tokens: Tokens, limits: Limits) -> str:
    return (
        f"has {tokens.prompt} prompt tokens and {max(tokens.hints)} in its longest hint, more than "
        f"data.max_prompt_length ({limits.prompt})"
    )


def _longest_that_fits(tokens: Tokens, limits: Limits) -> int:
    """Return the steps of the longest hint that leaves room for the prompt and one token of the response."""
    room = limits.prompt - tokens.prompt
    if tokens.hints_in_response:
        room = min(room, limits.response - 1)
    return sum(1 for _ in itertools.takewhile(lambda length: length <= room, tokens.hints))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Decisions on the training problems of a run, or on its validation problems."""

    files: tuple[str, ...] = ()
    """Absolute paths of the problems' files."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Problem id -> why the problem does not fit."""
    hint_steps: Mapping[str, int] = field(default_factory=dict)
    """``Fit.hint_steps`` by id."""
    num_cut: int = 0
    """Problems whose given response is cut."""
    moved_cuts: int = 0
    """Steps that end inside a token, where a hint ends before that token (``seele.rollout.solutions``)."""


class Problem(NamedTuple):
    """A problem that is kept, and its place in the files."""

    instance: Instance
    path: Path
    row: int
    """Row within its file, from 0."""
    hint_steps: int | None
    """Most steps that a hint may have; None for all legal ones."""

    @property
    def may_be_hinted(self) -> bool:
        """True if there is a legal hint of at least one step."""
        return len(self.instance.legal_hint_ratios) > 1 and self.hint_steps != 0


def write_record(path: Path, fits: Sequence[Fits]) -> None:
    """Write the record of the decisions."""
    write_atomically(path, json.dumps([asdict(each) for each in fits], indent=1) + "\n")


def read_fitting_problems(
    files: str | Sequence[str], max_samples: int = -1, record: str | Path | None = None
) -> list[Problem]:
    """Return ``seele.data.storage.schema.read_problem_files`` without the problems that the record skips.

    A file used for both training and validation lacks the same problems in both.

    Args:
        files: As in ``read_problem_files``.
        max_samples: As in ``read_problem_files``: the number of problems before any is skipped.
        record: A file that ``write_record`` wrote; None where everything fits.

    Raises:
        DataError: If a file is missing or broken.
    """
    return keep_fitting(read_problem_files(files, max_samples), read_record(record))


def keep_fitting(problems: Sequence[tuple[Instance, Path]], fits: Sequence[Fits]) -> list[Problem]:
    """Return the run's problems that fit, with their rows."""
    kept = []
    for path, group in itertools.groupby(problems, key=lambda problem: problem[1]):
        of_file = [each for each in fits if str(path.resolve()) in each.files]
        for row, (instance, _) in enumerate(group):
            if any(instance.instance_id in each.left_out for each in of_file):
                continue
            steps = [each.hint_steps.get(instance.instance_id) for each in of_file]
            shortened = [count for count in steps if count is not None]
            kept.append(Problem(instance, path, row, min(shortened, default=None)))
    return kept


def read_record(record: str | Path | None) -> list[Fits]:
    """Read a record of ``write_record``; return an empty list where ``record`` is None.

    Raises:
        DataError: If the record is missing or broken.
    """
    if record is None:
        return []
    try:
        raw: list[dict[str, Any]] = json.loads(Path(record).read_text())
        return [Fits(**each | {"files": tuple(each["files"])}) for each in raw]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{record}: expected the run's record of problems that are too long ({error}); restart the run "
            "to write it"
        ) from error
