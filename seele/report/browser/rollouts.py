"""The rollouts of a step, arranged for a reader: problems, their rounds, and the rollouts of a round."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from types import NoneType, UnionType
from typing import Any, BinaryIO, get_origin

from seele.records import GradeReason, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRollout:
    """A line of ``rollouts/step_N.jsonl``. Fields that an older release did not write have their defaults."""

    instance_id: str
    question: str
    text: str
    reason: str
    round: int
    """From 0."""
    rollout: int = 0
    answer: str = ""
    data_source: str = ""
    level: str = ""
    hint: str = ""
    hint_ratio: float = 0.0
    predicted_accuracy: float | None = None
    reward: float = 0.0
    reward_extra: Mapping[str, float | str] = field(default_factory=dict)
    """What the user's reward function returned beside the score, by name."""
    finish: str = ""
    hint_tokens: int = 0
    generated_tokens: int = 0
    is_probe: bool = False
    origin: str = Origin.POLICY.value
    advantage: float | None = None
    segments: Sequence[tuple[int, int, int, bool]] = ()
    """Segments of a walked response: first token, token after the last, milestone, whether it passed."""
    line_start: int | None = None
    """Where the file's line begins, in bytes, if its tokens were skipped."""
    tokens: Sequence[str] = ()
    """The response's tokens, if the run keeps them (``seele.dump_tokens``) and they were read."""
    token_advantages: Sequence[float] = ()
    token_log_ratios: Sequence[float] = ()
    """Log-probability before the update minus that of the engine, token by token."""

    @property
    def is_correct(self) -> bool:
        """True if the answer was correct."""
        return self.reason == GradeReason.CORRECT

    @property
    def is_given(self) -> bool:
        """True if the policy did not generate it in this step: a worked solution, or a replay."""
        return self.origin != Origin.POLICY


NOT_CORRECT = "not correct"
TOKENS = b', "tokens": ['
"""Begins the tokens in a line of a file of rollouts."""
_KINDS: dict[Any, Any] = {
    **{str: str, int: int, bool: bool, float: (int, float)},
    **{UnionType: (int, float, NoneType), Mapping: dict, Sequence: list},
}
_FIELDS = {each.name: _KINDS[get_origin(each.type) or each.type] for each in fields(ShownRollout)}
"""What a line's values must be."""
# SQLite's whole numbers have 64 bits: a larger one is read as a fraction, which no count may be.
_DECODER = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < 19 else float(digits))


@dataclass(frozen=True)
class ShownRound:
    """The policy's rollouts of a problem's round that saw the same hint; probes stand apart."""

    number: int
    """From 0."""
    hint_ratio: float
    rollouts: tuple[ShownRollout, ...]

    @cached_property
    def accuracy(self) -> float:
        """Share of the rollouts that are correct."""
        return fmean(rollout.is_correct for rollout in self.rollouts)

    @property
    def predicted_accuracy(self) -> float | None:
        """Accuracy that the controller expected with this hint."""
        return self.rollouts[0].predicted_accuracy

    @property
    def is_probe(self) -> bool:
        """True if the round measures the model without a hint."""
        return self.rollouts[0].is_probe


@dataclass(frozen=True)
class ShownProblem:
    """A problem's rounds in a step."""

    rounds: tuple[ShownRound, ...]
    """In order of number and hint."""
    given: tuple[ShownRollout, ...] = ()
    """Rollouts that the policy did not generate in this step; no accuracy counts them."""

    @property
    def first(self) -> ShownRollout:
        """Its first rollout, for the fields that all rollouts share."""
        return self.rounds[0].rollouts[0] if self.rounds else self.given[0]

    @property
    def rollouts(self) -> Iterator[ShownRollout]:
        """The policy's rollouts."""
        return (rollout for each in self.rounds for rollout in each.rollouts)

    @cached_property
    def accuracy(self) -> float:
        """Share of the policy's rollouts that are correct; 0 if there are none."""
        return fmean(rollout.is_correct for rollout in self.rollouts) if self.rounds else 0.0

    @property
    def has_tokens(self) -> bool:
        """True if the run keeps tokens of its responses."""
        return any(each.line_start is not None for each in (*self.rollouts, *self.given))

    @property
    def hint_change(self) -> float:
        """Difference between its longest and its shortest hint ratio, without probes."""
        ratios = [each.hint_ratio for each in self.rounds if not each.is_probe]
        return max(ratios, default=0.0) - min(ratios, default=0.0)


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Filters for the rollouts to show. An empty text or None matches all."""

    problem: str = ""
    """Part of the problem's id or question."""
    text: str = ""
    """Part of the response."""
    source: str = ""
    level: str = ""
    verdict: str = ""
    """A ``GradeReason``, or ``not correct`` for all but ``correct``."""
    round: int | None = None
    """From 1."""
    min_hint: float | None = None
    max_hint: float | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None

    def let_through(self, rollout: ShownRollout) -> bool:
        """Return True if the rollout passes all filters, which ignore case."""
        wanted = self.problem.lower()
        return (
            (not wanted or wanted in rollout.instance_id.lower() or wanted in rollout.question.lower())
            and (not self.text or self.text.lower() in rollout.text.lower())
            and self.source in ("", rollout.data_source)
            and self.level in ("", rollout.level)
            and self.verdict in ("", rollout.reason, "" if rollout.is_correct else NOT_CORRECT)
            and self.round in (None, rollout.round + 1)
            and (self.min_hint is None or self.min_hint <= rollout.hint_ratio)
            and (self.max_hint is None or rollout.hint_ratio <= self.max_hint)
            and (self.min_tokens is None or self.min_tokens <= rollout.generated_tokens)
            and (self.max_tokens is None or rollout.generated_tokens <= self.max_tokens)
        )


def read_step(file: Path) -> list[ShownProblem]:
    """Return the problems of a file of rollouts, in its order. Damaged lines are skipped.

    Tokens are a hundred times as large as the rest, and they are skipped: see ``with_tokens``.
    """
    return group_rollouts(read_rollouts(file))


def with_tokens(file: Path, problem: ShownProblem) -> ShownProblem:
    """Return a problem of ``read_step(file)`` with the tokens of its responses, if the run keeps them."""
    rollouts = [*problem.rollouts, *problem.given]
    if all(each.line_start is None for each in rollouts):
        return problem
    with file.open("rb") as lines:
        return _problem([_with_tokens(lines, each) for each in rollouts])


def _with_tokens(lines: BinaryIO, rollout: ShownRollout) -> ShownRollout:
    if rollout.line_start is None:
        return rollout
    lines.seek(rollout.line_start)
    whole = _record(lines.readline(), rollout.line_start)
    # A resumed run may have written the file again.
    bare = whole and replace(whole, tokens=(), token_advantages=(), token_log_ratios=())
    return whole if whole and bare == rollout else rollout


def read_rollouts(file: Path) -> Iterator[ShownRollout]:
    """Yield the rollouts of a file, as ``read_step`` reads them."""
    start = 0
    with file.open("rb") as lines:
        for line in lines:
            # They are the line's last fields. A quote within a text is escaped, so this is in no text.
            rest, skipped, _ = line.partition(TOKENS)
            if rollout := _record(rest + b"}" if skipped else line, start if skipped else None):
                yield rollout
            start += len(line)


def _record(line: bytes, line_start: int | None = None) -> ShownRollout | None:
    try:
        text = line.decode(errors="replace")
        values = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            # Half of a surrogate pair cannot be written to a page or an index: it becomes a question mark.
            values = json.loads(json.dumps(values, ensure_ascii=False).encode(errors="replace"))
        known = {name: values[name] for name in _FIELDS.keys() & values.keys()}
        known |= {"level": str(known.get("level") or ""), "line_start": line_start}  # level 0 is unknown
        if not all(isinstance(value, _FIELDS[name]) for name, value in known.items()):
            return None
        rollout = ShownRollout(**known)
        return rollout if _can_be_shown(rollout) else None
    except (AttributeError, TypeError, ValueError):
        return None


def _can_be_shown(rollout: ShownRollout) -> bool:
    """Return True if the lists hold what they should, and the hint ratio is a number."""
    return (
        all(isinstance(each, str) for each in rollout.tokens)
        and all(isinstance(each, int | float) for each in rollout.token_advantages)
        and all(isinstance(each, int | float) for each in rollout.token_log_ratios)
        and all(len(each) == 4 and all(isinstance(part, int) for part in each) for each in rollout.segments)
        and not math.isnan(rollout.hint_ratio)
    )


def group_rollouts(rollouts: Iterable[ShownRollout]) -> list[ShownProblem]:
    """Group rollouts by problem, round, hint and purpose; problems keep the order of their first rollout."""
    problems: dict[str, list[ShownRollout]] = {}
    for rollout in rollouts:
        problems.setdefault(rollout.instance_id, []).append(rollout)
    return [_problem(group) for group in problems.values()]


def _problem(rollouts: Sequence[ShownRollout]) -> ShownProblem:
    rounds: dict[tuple[int, float, bool], list[ShownRollout]] = {}
    for each in rollouts:
        if not each.is_given:
            rounds.setdefault((each.round, each.hint_ratio, each.is_probe), []).append(each)
    return ShownProblem(
        tuple(ShownRound(*key[:2], tuple(rounds[key])) for key in sorted(rounds)),
        tuple(each for each in rollouts if each.is_given),
    )


ORDERS = {
    "file": None,
    "hardest": lambda problem: problem.accuracy,
    "easiest": lambda problem: -problem.accuracy,
    "most hint": lambda problem: -max((each.hint_ratio for each in problem.rounds), default=0.0),
    "hint changed most": lambda problem: -problem.hint_change,
    "longest": lambda problem: -max((rollout.generated_tokens for rollout in problem.rollouts), default=0),
}
"""Orders in which problems may be sorted, with their keys."""


def filter_problems(problems: Sequence[ShownProblem], filters: Filters, *, order: str) -> list[ShownProblem]:
    """Return whole problems of which a rollout of the policy passes the filters, in one of ``ORDERS``."""
    if filters != Filters():
        problems = [each for each in problems if any(map(filters.let_through, each.rollouts))]
    key = ORDERS.get(order)
    return sorted(problems, key=key) if key else list(problems)
