"""What the trainer knows of the current step."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seele.records import Visit
from seele_verl.solutions import Solution


@dataclass(slots=True, kw_only=True)
class StepRecord:
    """What one step began, generated and learnt, in the order in which the trainer learns of it."""

    problem_of_uid: dict[str, int] = field(default_factory=dict)
    """The problems that the step began."""
    visits: Mapping[str, Visit] = field(default_factory=dict)
    """The visits of the step's problems, by uid."""
    controller_metrics: dict[str, float] = field(default_factory=dict)
    """The controller's metrics of the step, among them ``tokens/generated`` and ``tokens/prefilled`` in all
    and for each round.
    """
    updates: bool = True
    """False if no group was worth an update."""
    teacher_prompts: Mapping[str, list[int]] = field(default_factory=dict)
    """The reference model's prompts for the step's groups, by uid; empty without self-distillation."""
    informative: set[str] = field(default_factory=set)
    """Keys of the rows that the update learnt from, apart from KL and entropy."""
    solutions: Sequence[Solution] = ()
    """The solutions that the step's supervised update learnt."""
    advantages: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """uid -> rollout index -> the advantage that the update gave to the rollout's last token."""
    tokens: dict[str, dict[int, dict[str, list[Any]]]] = field(default_factory=lambda: defaultdict(dict))
    """uid -> rollout index -> the dump's columns for each token."""
