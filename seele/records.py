"""Frozen records that the stages exchange.

This module has only values. It does not read files, draw random numbers or depend on an engine, and the
stages depend on these records rather than on each other.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from seele.rounding import at_least

State = Mapping[str, Any]
"""State that a part saves with a checkpoint: only nested dicts, lists, strings, numbers, booleans and None
(JSON).
"""


@dataclass(frozen=True, slots=True)
class Milestone:
    """An intermediate value of a worked solution; the last milestone is the final answer."""

    value: str
    """Value as the solution states it; a number without commas and trailing zeros."""

    end: int
    """Characters of the solution up to the end of the value: a hint of that length states it."""

    equations: tuple[str, ...] = ()
    """Computations of the solution since the previous milestone, without blanks and units, such as
    ``48/2=24``. The last one is the milestone's own, if it has one.
    """


class Segment(NamedTuple):
    """The part of a response that belongs to one milestone."""

    start: int
    """Where the previous segment ends."""
    end: int
    """Index after its last character, or token."""
    milestone_index: int
    passed: bool


@dataclass(frozen=True, slots=True)
class Walk:
    """A response compared with the milestones, in characters or in tokens."""

    segments: tuple[Segment, ...]
    """Segments in order, without gaps from 0 on. Milestones without a segment were skipped or not reached."""
    first_error: int | None
    """Where the first wrong value begins, after which the last segment ends; None if no error is sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One training or evaluation problem with its worked solution (x and y in the paper)."""

    instance_id: str
    """Stable id, unique in its file, by which the hint controller identifies the problem."""

    data_source: str
    """Name of the data set, such as ``chains`` or ``gsm8k``."""

    question: str
    """The problem as the user poses it, without template."""

    steps: tuple[str, ...]
    """The worked solution; ``"".join(steps)`` is its text, so a step includes its trailing separator. May be
    empty.
    """

    answer: str
    """Reference answer with which the grader compares."""

    level: int = 0
    """Difficulty if the source states one, else 0."""

    revealed_at: int | None = None
    """Fewest leading steps that state the answer, ``len(steps)`` if only the whole solution does; None if not
    checked (``seele.data.steps.leakage``).
    """

    milestones: tuple[Milestone, ...] | None = None
    """Intermediate values of the worked solution, in order; None if not checked
    (``seele.reward.milestones``).
    """

    tiers: tuple[str, ...] = ()
    """Hints that are separate texts, from weak to strong, such as knowledge, plan and solution; empty if
    hints are prefixes of the solution (``seele.hints.kind``).
    """

    longest_hint: int | None = None
    """Most steps that a hint may reveal in this run; None for all but the last. Not stored with the problem:
    see ``seele.data.steps.hint_units``.
    """

    @property
    def num_hint_units(self) -> int:
        """S, the number of hint units: the solution's steps, or its tiers plus one for the whole solution."""
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
        """Return the number of leading steps that ``hint_ratio`` reveals, or the number of its tier:
        round(hint_ratio * S), paper Alg. 1.
        """
        return round(hint_ratio * self.num_hint_units)

    def hint(self, hint_steps: int) -> str:
        """Return the text of a hint of ``hint_steps`` steps, or of that tier; empty for 0."""
        if self.tiers:
            return self.tiers[hint_steps - 1] if hint_steps else ""
        return "".join(self.steps[:hint_steps])


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """Request to a hint controller for the hint ratio of one round of one problem."""

    instance_id: str
    round_index: int
    """Round of the visit, counted from 0; 0 begins a new visit."""
    legal_ratios: tuple[float, ...]
    rollouts_left: int = 0
    """Rollouts left in the visit, including this round's. A controller may plan for all of them, which makes
    the round the visit's last. 0 if it may not."""


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """Result of the rollouts under one hint ratio, for a hint controller."""

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
    """True if the hint was omitted on purpose, to measure the policy's un-hinted accuracy."""
    predicted_accuracy: float | None = None
    """Accuracy that the controller expects under this hint, from earlier rounds and visits, or None."""

    def num_awaited(self, quorum: float) -> int:
        """Return the rollouts that the next round waits for: a share ``quorum`` in (0, 1], but all probes."""
        if self.is_probe:
            return self.num_rollouts
        return max(at_least(quorum, self.num_rollouts), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyCurve:
    """A hint controller's expectation for one problem, for reports."""

    instance_id: str
    hint_ratios: tuple[float, ...]
    """(T,) in [0, 1], ascending."""
    accuracies: tuple[float, ...]
    """(T,) expected accuracy under each hint ratio, in [0, 1]."""
    rounds: tuple[tuple[float, float], ...] = ()
    """Hint ratio and accuracy of the rounds to which the curve was fitted, in order; empty if the controller
    does not keep them.
    """


BOX_REQUEST = "Put your final answer within \\boxed{}."
"""Request that an instruct model needs and that its chat template lacks."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Inputs of a tokenizer's chat template besides the question."""

    system: str | None = None
    """Text of a system message before the question; None for none."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Values of the template's own variables, such as ``enable_thinking``; it ignores others."""
    open_thinking: bool = False
    """True if the prompt ends with ``<think>`` and a newline, even if the template leaves that to the model,
    so that a hint is inside the thoughts."""
    ask: str = BOX_REQUEST
    """Text after the question, on a line of its own, unless the question or the system message already has
    ``\\boxed``; empty for none."""


class Finish(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    FLAGGED = "flagged"
    """Stopped by SEELE at a sure error (``seele.credit.stop``)."""
    ERROR = "error"


class Origin(StrEnum):
    """Writer of a rollout."""

    POLICY = "policy"
    TRACE = "trace"
    """The worked solution itself."""
    REPLAY = "replay"
    """The policy, in an earlier step."""


class GradeReason(StrEnum):
    """Result of grading one answer. Everything but ``CORRECT`` counts as wrong."""

    CORRECT = "correct"
    WRONG = "wrong"
    """An incorrect answer in the requested form, as far as the form is checked."""
    MALFORMED = "malformed"
    """An answer in another form, such as a word where an expression was requested."""
    NO_ANSWER = "no_answer"
    TRUNCATED = "truncated"
    TOO_LONG = "too_long"
    TOO_DEEP = "too_deep"
    """Brackets are nested too deeply."""
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
"""Reasons for which the grader reached no verdict."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A grader's verdict on one answer."""

    correct: bool
    """True if the rollout counts as solved: for accuracies, controllers, curricula and selections."""
    reason: GradeReason
    score: float | None = None
    """Reward for the update, in [0, 1]; None for 1.0 if the answer is correct, else 0.0."""
    extra: Mapping[str, float | str] = field(default_factory=dict, hash=False)
    """Further numbers and texts from a reward function, by name."""
    walk: Walk | None = None
    """The rollout compared with the problem's milestones, in tokens of the completion; None if not needed."""
    is_flagged: bool = False
    """True if the text has an error that is sure even without knowing whether the answer is correct; with
    stopping, also if one seemed sure before the lines behind it were written.
    """

    @property
    def reward(self) -> float:
        """Reward for the update, in [0, 1]."""
        return float(self.correct) if self.score is None else self.score


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The engine's output for one rollout."""

    text: str
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    """(T,) log-probability of each generated token under the sampling policy; empty if not requested."""
    finish: Finish
    cached_prompt_tokens: int = 0
    """Prompt tokens that the engine found in its prefix cache instead of computing them."""

    @property
    def uncertainty(self) -> float:
        """Mean negative log-probability of the tokens when they were sampled, in nats; 0 without tokens."""
        return -math.fsum(self.log_probs) / max(len(self.log_probs), 1)


@dataclass(frozen=True, slots=True)
class Success:
    """A completion that solved a problem."""

    completion: Completion
    hint_steps: int = 0
    """Steps of the worked solution given before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One graded completion of one hinted prompt."""

    round_index: int
    rollout_index: int
    """Position among all rollouts of the prompt in this step, counted over rounds."""
    share: HintShare
    """The part of the round to which the rollout belongs."""
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
        """Reward for the update. Accuracies are means of ``grade.correct`` instead."""
        return self.grade.reward

    @property
    def is_complete_and_correct(self) -> bool:
        """True if the response is correct and ended by itself: a truncated one may repeat itself."""
        return self.grade.correct and self.completion.finish is Finish.STOP

    @property
    def preference(self) -> tuple[int, float]:
        """Sort key among correct rollouts, smaller is better: first a shorter hint, then less uncertainty."""
        return self.hint_steps, self.completion.uncertainty

    @property
    def passed_next(self) -> bool:
        """True if the rollout passed the first milestone that it reached after the hint."""
        return bool(self.grade.walk and self.grade.walk.segments and self.grade.walk.segments[0].passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """All rollouts of one problem in one training step."""

    instance: Instance
    step: int
    prompt_tokens: int
    """Tokens of the prompt without a hint."""
    step_tokens: tuple[int, ...]
    """Tokens that each further step of a hint adds before the response."""
    rollouts: tuple[Rollout, ...]
    """Rollouts in order of round and rollout."""
    penalties: tuple[float, ...] = ()
    """Added to each rollout's reward for the update, at most 0; empty for none."""

    @property
    def generated(self) -> tuple[Rollout, ...]:
        """The rollouts that the policy wrote in this step."""
        return tuple(rollout for rollout in self.rollouts if rollout.origin is Origin.POLICY)

    @property
    def accuracy(self) -> float:
        """Share of the generated rollouts that are correct."""
        return sum(rollout.grade.correct for rollout in self.generated) / len(self.generated)

    def hint_tokens(self, rollout: Rollout) -> int:
        """Return the tokens of the hint that a rollout was given."""
        return sum(self.step_tokens[: rollout.hint_steps])
