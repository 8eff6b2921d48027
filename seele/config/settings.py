"""The ``seele:`` block of a run's configuration: what verl has no key for.

verl's own settings (batch sizes, learning rate, KL) keep verl's names and live in the YAML files. Defaults
are those of the SEELE paper (arXiv:2509.06923v1, section 5.1) unless a field says otherwise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class HintConfig:
    """How much of the worked solution is revealed, and how that is chosen."""

    controller: str = "paper"
    """Name of a controller in ``seele.hints``."""

    target_accuracy: float = 0.5
    """Accuracy that the controller steers each round to, in (0, 1); a* in the paper. 0.5 maximises a(1 -
    a).
    """

    rounds: int = 4
    """Rollout rounds per problem and step; m in the paper. At least 1."""

    rollouts_per_prompt: int = 32
    """Rollouts of a problem in one step, split evenly over the rounds; mn in the paper."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the controller, checked by the controller itself."""

    def __post_init__(self) -> None:
        _require(
            0.0 < self.target_accuracy < 1.0,
            f"target_accuracy must lie in (0, 1), got {self.target_accuracy}",
        )
        _require(self.rounds >= 1, f"rounds must be at least 1, got {self.rounds}")
        _require(
            self.rollouts_per_prompt >= 1 and self.rollouts_per_prompt % self.rounds == 0,
            f"rollouts_per_prompt ({self.rollouts_per_prompt}) must be a positive multiple of "
            f"rounds ({self.rounds})",
        )
        run_wide = {"name", "rounds", "rollouts_per_round", "seed", "target_accuracy"} & self.settings.keys()
        _require(not run_wide, f"settings: {sorted(run_wide)} belong to the run, not to the controller")

    @property
    def rollouts_per_round(self) -> int:
        """Rollouts of a problem in one round; n in the paper."""
        return self.rollouts_per_prompt // self.rounds


@dataclass(frozen=True, kw_only=True, slots=True)
class CurriculumConfig:
    """Which problems a step rolls out."""

    spare_problems: int = 0
    """Problems of later steps that are rolled out beside a step's own. The step ends when as many as it
    trains on are done; the others begin anew in the next step, which waits for them.
    """

    def __post_init__(self) -> None:
        _require(self.spare_problems >= 0, f"spare_problems must not be negative, got {self.spare_problems}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageConfig:
    """What a rollout's reward is compared with."""

    baseline: str = "pooled"
    """``pooled``: the mean over all rounds of the problem, as in the paper. ``per_round``: the mean of the
    round. ``hint_conditional``: the mean of the others under the same hint, shrunk towards the accuracy that
    the controller expects there.
    """

    prior_rollouts: float = 4.0
    """``hint_conditional`` only: number of rollouts that the controller's expectation counts for."""

    def __post_init__(self) -> None:
        baselines = ("pooled", "per_round", "hint_conditional")
        _require(
            self.baseline in baselines, f"baseline must be one of {list(baselines)}, got {self.baseline!r}"
        )
        _require(
            0.0 <= self.prior_rollouts < math.inf,
            f"prior_rollouts must be finite and not negative, got {self.prior_rollouts}",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImitationConfig:
    """The supervised term on hint tokens (paper Eq. 10)."""

    coefficient: float = 0.001
    """Weight of the term; gamma in the paper. 0 switches it off."""

    form: str = "logprob_mean"
    """``logprob_mean`` or ``logprob_sum`` over the hint's tokens. The paper prints a probability, which
    underflows.
    """

    def __post_init__(self) -> None:
        _require(self.coefficient >= 0.0, f"coefficient must not be negative, got {self.coefficient}")
        forms = ("logprob_mean", "logprob_sum")
        _require(self.form in forms, f"form must be one of {list(forms)}, got {self.form!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptConfig:
    """What stands around the question."""

    template: str = "r1_zero"
    """Name of a template in ``seele.rollout.templates``; ``chat`` is the tokenizer's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardConfig:
    """The grader and its limits. What could not be graded within them counts as wrong."""

    grader: str = "mathruler"
    """Name of a grader in ``seele.reward``."""

    time_limit_s: float = 5.0
    """Longest time for one answer, in seconds; not stated in the paper."""

    max_answer_chars: int = 1000
    """Longer answers are not graded."""

    memory_limit_mb: int = 2048
    """Address space of one grading process, in MiB."""

    num_workers: int = 1
    """Grading processes per rollout worker."""

    truncated_is_wrong: bool = False
    """Whether a response that hit the length limit counts as wrong, whatever it says. Without that, nothing
    keeps a policy from writing on after its answer; the paper does not say."""

    def __post_init__(self) -> None:
        for name in ("time_limit_s", "max_answer_chars", "memory_limit_mb", "num_workers"):
            _require(getattr(self, name) > 0, f"{name} must be positive, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SeeleConfig:
    """One run's settings beside verl's."""

    method: str
    """Name of a method in ``seele.methods``."""

    seed: int = 0
    """Seed of the run: order of the problems, sampling, controller."""

    hints: HintConfig = field(default_factory=HintConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
