"""The rollouts of a step, arranged for a reader: problems, their rounds, and the rollouts of a round."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from seele.records import GradeReason
from seele.report.run_folder import read_lines


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
    origin: str = "policy"
    advantage: float | None = None
    segments: Sequence[tuple[int, int, int, bool]] = ()
    """Segments of a walked response: first token, token after the last, milestone, whether it passed."""
    tokens: Sequence[str] = ()
    """The response's tokens, if the run keeps them (``seele.dump_tokens``)."""
    token_advantages: Sequence[float] = ()
    token_log_ratios: Sequence[float] = ()
    """Log-probability before the update minus that of the engine, token by token."""

    @property
    def is_correct(self) -> bool:
        """True if the answer was correct."""
        return self.reason == GradeReason.CORRECT


NOT_CORRECT = "not correct"
_NAMES = {each.name for each in fields(ShownRollout)}


@dataclass(frozen=True)
class ShownRound:
    """Rollouts of a problem's round that saw the same hint."""

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

    @property
    def first(self) -> ShownRollout:
        """Its first rollout, for the fields that all rollouts share."""
        return self.rounds[0].rollouts[0]

    @property
    def rollouts(self) -> Iterator[ShownRollout]:
        """All of its rollouts."""
        return (rollout for each in self.rounds for rollout in each.rollouts)

    @cached_property
    def accuracy(self) -> float:
        """Share of its rollouts that are correct."""
        return fmean(rollout.is_correct for rollout in self.rollouts)

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
    """Return the problems of a file of rollouts, in its order. Lines that cannot be read are skipped."""
    return group_rollouts(_records(read_lines(file, [])))


def _records(lines: Iterable[Mapping[str, Any]]) -> Iterator[ShownRollout]:
    for line in lines:
        known = {name: line[name] for name in _NAMES & line.keys()}
        known["level"] = str(known.get("level") or "")  # 0 is unknown
        try:
            yield ShownRollout(**known)
        except TypeError:
            continue


def group_rollouts(rollouts: Iterable[ShownRollout]) -> list[ShownProblem]:
    """Group rollouts by problem, round and hint; problems keep the order of their first rollout."""
    problems: dict[str, dict[tuple[int, float], list[ShownRollout]]] = {}
    for rollout in rollouts:
        rounds = problems.setdefault(rollout.instance_id, {})
        rounds.setdefault((rollout.round, rollout.hint_ratio), []).append(rollout)
    return [
        ShownProblem(
            tuple(ShownRound(number, ratio, tuple(rounds[number, ratio])) for number, ratio in sorted(rounds))
        )
        for rounds in problems.values()
    ]


ORDERS = {
    "file": None,
    "hardest": lambda problem: problem.accuracy,
    "easiest": lambda problem: -problem.accuracy,
    "most hint": lambda problem: -max(each.hint_ratio for each in problem.rounds),
    "hint changed most": lambda problem: -problem.hint_change,
    "longest": lambda problem: -max(rollout.generated_tokens for rollout in problem.rollouts),
}
"""Orders in which problems may be sorted, with their keys."""


def filter_problems(problems: Sequence[ShownProblem], filters: Filters, *, order: str) -> list[ShownProblem]:
    """Return whole problems with at least one rollout that passes the filters, in one of ``ORDERS``."""
    if filters != Filters():
        problems = [each for each in problems if any(map(filters.let_through, each.rollouts))]
    key = ORDERS.get(order)
    return sorted(problems, key=key) if key else list(problems)
