"""Frozen records that the stages exchange.

What lives here: values only. Nothing here reads files, draws random numbers or knows an engine, and the
stages know these records rather than each other.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from seele.rounding import at_least

State = Mapping[str, Any]
"""What a stateful part saves with a checkpoint: nested dicts, lists, strings, numbers, booleans and None
only (JSON).
"""


@dataclass(frozen=True, slots=True)
class Milestone:
    """A value on the way through a worked solution, its final answer as the last one."""

    value: str
    """As the solution states it; a number without commas and closing zeros."""

    end: int
    """Characters of the solution up to the end of the value: a hint of that length states it."""

    equations: tuple[str, ...] = ()
    """What the solution computes since the milestone before, without blanks and units, such as
    ``48/2=24``. The last one is its own where it has one.
    """


class Segment(NamedTuple):
    """The part of a response that belongs to one milestone."""

    start: int
    """Where the segment before ends."""
    end: int
    """Behind its last character, or token."""
    milestone_index: int
    passed: bool


@dataclass(frozen=True, slots=True)
class Walk:
    """What a response did with the milestones, in characters or in tokens."""

    segments: tuple[Segment, ...]
    """In order, without gaps from 0 on. Milestones without a segment were skipped, or not come to."""
    first_error: int | None
    """Where the first wrong value begins, the last segment ending behind it; None where no error is sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One training or evaluation problem with its worked solution (x and y in the paper)."""

    instance_id: str
    """Stable and unique in its file: what the hint controller remembers a problem by."""

    data_source: str
    """Name of the data set, such as ``chains`` or ``gsm8k``."""

    question: str
    """The problem as the user poses it, without template."""

    steps: tuple[str, ...]
    """The worked solution; ``"".join(steps)`` is its text, so a step carries its own trailing separator.
    May be empty.
    """

    answer: str
    """Reference answer that the grader compares with."""

    level: int = 0
    """Difficulty where the source states one, else 0."""

    revealed_at: int | None = None
    """Fewest leading steps that state the answer, ``len(steps)`` where only the whole solution does; None
    where that was not checked (``seele.data.steps.leakage``).
    """

    milestones: tuple[Milestone, ...] | None = None
    """Values that the worked solution computes on the way, in order; None where that was not checked
    (``seele.reward.milestones``).
    """

    tiers: tuple[str, ...] = ()
    """Hints that are texts of their own, from weak to strong, such as knowledge, plan and solution; empty
    where hints are prefixes of the solution (``seele.hints.kind``).
    """

    longest_hint: int | None = None
    """Most steps that a hint may reveal in this run; None for all but the last. Not stored with the problem:
    see ``seele.data.steps.hint_units``.
    """

    @property
    def num_hint_units(self) -> int:
        """S, the units that hints are counted in: the solution's steps, or its tiers and the whole solution
        above them.
        """
        return len(self.tiers) + 1 if self.tiers else len(self.steps)

    @property
    def legal_hint_ratios(self) -> tuple[float, ...]:
        """l / S for l = 0 .. S-1 of S units, or up to ``longest_hint``: every hint but the whole solution.
        ``(0.0,)`` below two units.
        """
        most = self.num_hint_units - 1
        if self.longest_hint is not None:
            most = min(self.longest_hint, most)
        return tuple(revealed / self.num_hint_units for revealed in range(most + 1)) or (0.0,)

    def num_hint_steps(self, hint_ratio: float) -> int:
        """Number of leading steps that ``hint_ratio`` reveals, or of the tier that it is: round(hint_ratio *
        S), paper Alg. 1.
        """
        return round(hint_ratio * self.num_hint_units)

    def hint(self, hint_steps: int) -> str:
        """The text of a hint of that many steps, or of that tier; empty for 0."""
        if self.tiers:
            return self.tiers[hint_steps - 1] if hint_steps else ""
        return "".join(self.steps[:hint_steps])


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """Asks a hint controller for the hint ratio of one round of one problem."""

    instance_id: str
    round_index: int
    """Counts the rounds of the visit from 0; 0 begins a new visit."""
    legal_ratios: tuple[float, ...]
    rollouts_left: int = 0
    """Rollouts that the visit has left, this round's among them. A controller may plan for all of them, which
    makes the round the visit's last. 0 where it may not."""


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """Tells a hint controller what rollouts under one hint ratio brought."""

    instance_id: str
    hint_ratio: float
    num_correct: int
    num_rollouts: int


@dataclass(frozen=True, slots=True)
class HintShare:
    """The part of a round's rollouts that shares one hint."""

    hint_ratio: float
    num_rollouts: int
    is_probe: bool = False
    """Whether the hint was left out on purpose, to measure what the policy can do without."""
    predicted_accuracy: float | None = None
    """What the controller expects under this hint, from earlier rounds and visits; None for no idea."""

    def num_awaited(self, quorum: float) -> int:
        """Rollouts that the next round waits for: the share ``quorum`` in (0, 1] of these; of probes all."""
        if self.is_probe:
            return self.num_rollouts
        return max(at_least(quorum, self.num_rollouts), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyCurve:
    """What a hint controller expects of one problem, for reports."""

    instance_id: str
    hint_ratios: tuple[float, ...]
    """(T,) in [0, 1], ascending."""
    accuracies: tuple[float, ...]
    """(T,) expected accuracy under each hint ratio, in [0, 1]."""
    rounds: tuple[tuple[float, float], ...] = ()
    """Hint ratio and accuracy of the rounds that the curve was fitted to, in order; empty where the
    controller does not keep them.
    """


BOX_REQUEST = "Put your final answer within \\boxed{}."
"""What an instruct model must be told; its chat template does not."""


@dataclass(frozen=True, slots=True)
class Chat:
    """What a tokenizer's chat template is given beside the question."""

    system: str | None = None
    """Text of a system message before the question; None for none."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Values of the template's own variables, such as ``enable_thinking``; others it does not read."""
    open_thinking: bool = False
    """Whether the prompt ends with ``<think>`` and a new line, also where the template leaves that to the
    model, so that a hint stands inside the thoughts."""
    ask: str = BOX_REQUEST
    """What stands behind the question, on a line of its own, unless question or system message have
    ``\\boxed`` already; empty for nothing."""


class Finish(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    FLAGGED = "flagged"
    """Stopped by us, at a sure error (``seele.credit.stop``)."""
    ERROR = "error"


class Origin(StrEnum):
    """Who wrote a rollout."""

    POLICY = "policy"
    TRACE = "trace"
    """The worked solution itself."""
    REPLAY = "replay"
    """The policy, in an earlier step."""


class GradeReason(StrEnum):
    """What became of one answer in the grader. Everything but ``CORRECT`` counts as wrong."""

    CORRECT = "correct"
    WRONG = "wrong"
    """An answer of the form that was asked for, as far as that is checked, but not the right one."""
    MALFORMED = "malformed"
    """An answer of another form, such as a word where an expression was asked for."""
    NO_ANSWER = "no_answer"
    TRUNCATED = "truncated"
    TOO_LONG = "too_long"
    TOO_DEEP = "too_deep"
    """Brackets within brackets within brackets."""
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    ERROR = "error"


UNGRADED = frozenset(
    {
        GradeReason.TOO_LONG,
        GradeReason.TOO_DEEP,
        GradeReason.TIMEOUT,
        GradeReason.CRASHED,
        GradeReason.ERROR,
    }
)
"""Reasons that mean the grader came to no verdict."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A grader's verdict on one answer."""

    correct: bool
    """Whether the rollout counts as solved: for accuracies, controllers, curricula and selections."""
    reason: GradeReason
    score: float | None = None
    """What the update learns from, in [0, 1]; None for 1.0 where the answer is correct, else 0.0."""
    extra: Mapping[str, float | str] = field(default_factory=dict, hash=False)
    """Further numbers and texts of a reward function, by name."""
    walk: Walk | None = None
    """What the rollout did with the problem's milestones, in tokens of the completion; None where nothing
    asks for it.
    """
    is_flagged: bool = False
    """Whether its text has a sure error for those who do not know whether it is correct."""

    @property
    def reward(self) -> float:
        """What the update learns from, in [0, 1]."""
        return float(self.correct) if self.score is None else self.score


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the engine returned for one sample."""

    text: str
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    """(T,) log-probability of each generated token under the sampling policy; empty where the engine was
    not asked.
    """
    finish: Finish
    cached_prompt_tokens: int = 0
    """Prompt tokens that the engine found in its prefix cache instead of computing them."""

    @property
    def uncertainty(self) -> float:
        """Mean negative log-probability of its tokens when they were written, in nats; 0 without any."""
        return -math.fsum(self.log_probs) / max(len(self.log_probs), 1)


@dataclass(frozen=True, slots=True)
class Success:
    """What solved a problem once."""

    completion: Completion
    hint_steps: int = 0
    """Steps of the worked solution before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One graded completion of one hinted prompt."""

    round_index: int
    rollout_index: int
    """Position among all rollouts of the prompt in this step, counted over rounds."""
    share: HintShare
    """The part of its round that it belongs to."""
    hint_steps: int
    completion: Completion
    grade: Grade
    origin: Origin = Origin.POLICY

    @property
    def hint_ratio(self) -> float:
        """Share of the solution that was revealed."""
        return self.share.hint_ratio

    @property
    def reward(self) -> float:
        """What the update learns from. Accuracies are means of ``grade.correct`` instead."""
        return self.grade.reward

    @property
    def preference(self) -> tuple[int, float]:
        """Smaller for a better solution among right ones: first behind a shorter hint, then surer."""
        return self.hint_steps, self.completion.uncertainty

    @property
    def passed_next(self) -> bool:
        """Whether it passed the first milestone that it came to behind the hint."""
        return bool(self.grade.walk and self.grade.walk.segments and self.grade.walk.segments[0].passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """All rollouts of one problem in one training step."""

    instance: Instance
    step: int
    prompt_tokens: int
    """Tokens of the prompt without hint."""
    step_tokens: tuple[int, ...]
    """Tokens that each further step of a hint adds in front of the response."""
    rollouts: tuple[Rollout, ...]
    """In order of round and rollout."""

    @property
    def generated(self) -> tuple[Rollout, ...]:
        """The rollouts that the policy wrote in this step."""
        return tuple(rollout for rollout in self.rollouts if rollout.origin is Origin.POLICY)

    @property
    def accuracy(self) -> float:
        """Share of those that are correct."""
        return sum(rollout.grade.correct for rollout in self.generated) / len(self.generated)

    def hint_tokens(self, rollout: Rollout) -> int:
        """Tokens of the hint that a rollout saw."""
        return sum(self.step_tokens[: rollout.hint_steps])
