"""The rollouts of a step, arranged for a reader: problems, their rounds, and the rollouts of a round."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import BinaryIO

from seele.report.rollout_lines import ShownRollout, parse_rollout, read_rollouts

NOT_CORRECT = "not correct"


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
    """Return the problems of a file of rollouts, in its order, without tokens: see ``with_tokens``."""
    return group_rollouts(read_rollouts(file, []))


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
    whole = parse_rollout(lines.readline(), rollout.line_start)
    # A resumed run may have written the file again.
    bare = whole and replace(whole, tokens=(), token_advantages=(), token_log_ratios=())
    return whole if whole and bare == rollout else rollout


def without_middles(problem: ShownProblem, max_chars: int) -> ShownProblem:
    """Return a problem without the middle of each response that is longer and has no tokens."""
    return _problem([_without_middle(each, max_chars) for each in (*problem.rollouts, *problem.given)])


def _without_middle(rollout: ShownRollout, max_chars: int) -> ShownRollout:
    num_left_out = len(rollout.text) - max_chars
    if rollout.tokens or num_left_out <= 0:
        return rollout
    kept = max_chars // 2
    note = f"\n[... {num_left_out:,} characters are left out ...]\n"
    return replace(rollout, text=rollout.text[:kept] + note + rollout.text[kept + num_left_out :])


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
