"""Settings of credit, off-policy rows, a user's loss terms and supervised updates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seele.config.build import (
    require,
    require_fraction,
    require_not_negative,
    require_one_of,
    require_request,
)

LOSSES = ("shaped", "nll", "likelihood", "surrogate", "trust_region")
STATISTICS = ("all", "on_policy")


@dataclass(frozen=True, kw_only=True, slots=True)
class OffPolicyConfig:
    """Which response tokens are off-policy, and with which loss they are trained. Hints in the prompt are not
    responses: see ``ImitationConfig``.
    """

    source: str = "none"
    """``none``; ``trace``: one rollout of each problem is its worked solution (LUFFY); ``prefix``: a hint is
    part of the response, and trained like it (Prefix-RFT); ``expert_prefix``: a hint is part of the response,
    and its likelihood is learnt whatever the reward (TRAPO); ``replay``: one rollout of some problems is an
    earlier success of the policy (ExGRPO); ``successes``: one rollout of each problem that was ever solved is
    an earlier success, possibly hinted (``replay=successes``, with any method without off-policy rows). Or a
    class of your own derived from ``seele.methods.sources.OffPolicySource``: ``path/to/file.py:Name`` or
    ``package.module:Name``, with any method of rollouts without a critic.
    """

    loss: str = "shaped"
    """Loss of an off-policy token. ``shaped``: -f(r) A with f(x) = x / (x + shaping), without clipping; r is
    the token's probability divided by that under its author (1 for a trace). ``nll``: the negative
    log-likelihood, a mean over tokens. ``likelihood``: the same, but weighted like a rollout of advantage 1.
    ``surrogate``: as for every other token. ``trust_region``: that of ``likelihood``, with the gradient
    scaled by pi / shaping where the token's probability is below ``shaping`` (TRAPO); once for each hint of a
    round.
    """

    shaping: float = 0.1
    """gamma in LUFFY's f(x), alpha in TRAPO's trust region; positive."""

    coefficient: float = 1.0
    """Weight of the off-policy loss."""

    clip: bool = True
    """True if the ratio of tokens that the policy wrote is clipped to verl's ``clip_ratio_low``, ``_high``
    and ``_c``. False: not in steps that have off-policy rows, as in the code of LUFFY and ExGRPO.
    """

    statistics: str = "all"
    """Rollouts over which a group's mean and standard deviation of the reward are computed: ``all``, or only
    those ``on_policy``, as in LUFFY's code for RL with an SFT loss.
    """

    entropy_share: float = 1.0
    """Share of the batch's off-policy tokens that keep their advantage, those of the highest entropy, in
    (0, 1].
    """

    def __post_init__(self) -> None:
        require_one_of("loss", self.loss, LOSSES)
        require_one_of("statistics", self.statistics, STATISTICS)
        require(0.0 < self.shaping < math.inf, f"shaping must be positive, got {self.shaping}")
        require_not_negative("coefficient", self.coefficient)
        require_fraction("entropy_share", self.entropy_share, "(0, 1]")

    @property
    def has_advantages(self) -> bool:
        """True if advantages weight the loss of off-policy tokens."""
        return self.loss not in ("nll", "likelihood", "trust_region")


@dataclass(frozen=True, kw_only=True, slots=True)
class InterleaveConfig:
    """Supervised updates between RL steps (ReLIFT, arXiv:2506.07527; docs/methods/relift.md)."""

    problems: int = 0
    """Number of problems without a correct rollout that trigger an update on their worked solutions; 0 for
    none. 64 in the authors' script.
    """

    def __post_init__(self) -> None:
        require(self.problems >= 0, f"problems must be 0 or more, got {self.problems}")


CREDITS = ("none", "milestones", "self_distillation")


@dataclass(frozen=True, kw_only=True, slots=True)
class CreditConfig:
    """How advantages are assigned to the tokens of a rollout (docs/methods/milestones.md)."""

    name: str = "none"
    """``none``: all tokens have the rollout's advantage. ``milestones``: each step has its own, by whether it
    reaches the worked solution's next value. ``self_distillation``: each token has its own, by how much more
    probable it is under the reference model that sees the worked solution (OPSD, arXiv:2601.18734); rewards
    are not used.
    """

    request: str = (
        "{question}\n\nHere is a correct solution:\n{hint}\n\nNow solve the problem in your own words."
    )
    """``self_distillation``: the prompt of the reference model, with the solution in place of ``{hint}``."""

    walk: str = "milestones"
    """How a response is compared with the milestones: ``milestones``, or a function of your own
    (``seele.reward.walks``): ``path/to/file.py:name`` or ``package.module:name``.
    """

    prior_rollouts: float = 2.0
    """Weight of the pass rate of other problems in a segment's baseline, in rollouts."""

    stop: bool = False
    """True if a rollout ends at its first sure error. The first rollout of each problem always continues."""

    stop_below: float = 0.03
    """Stopping is disabled for good once a larger share of the rollouts with a correct answer would have been
    stopped.
    """

    def __post_init__(self) -> None:
        require_one_of("name", self.name, CREDITS)
        require_request(self.request)
        require_not_negative("prior_rollouts", self.prior_rollouts)
        require_fraction("stop_below", self.stop_below)

    @property
    def gives_advantages(self) -> bool:
        """True if advantages come from the credit, not from a rollout's group."""
        return self.name != "none"

    @property
    def by_distillation(self) -> bool:
        """True if each token has an advantage of its own, from the reference model."""
        return self.name == "self_distillation"

    @property
    def by_milestones(self) -> bool:
        """True if each segment of a response has an advantage of its own."""
        return self.name == "milestones"

    @property
    def walks(self) -> bool:
        """True if responses are compared with the milestones of their problem."""
        return self.by_milestones or self.stop


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayConfig:
    """Which of the policy's own successes are replayed by ``seele.off_policy.source=replay`` (ExGRPO,
    arXiv:2510.02245).
    """

    problem_share: float = 0.5
    """Share of a step's problems that come from the pool, in [0, 1]."""

    start_accuracy: float = 0.35
    """Mean accuracy of a step that opens the pool for good."""

    bucket_sd: float = 1.0
    """Standard deviation, in successes, of a problem's weight, which is centred on half of its rollouts."""

    def __post_init__(self) -> None:
        require_fraction("problem_share", self.problem_share)
        require_fraction("start_accuracy", self.start_accuracy)
        require(0.0 < self.bucket_sd < math.inf, f"bucket_sd must be positive, got {self.bucket_sd}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LossTermConfig:
    """One term that is added to the actor's loss, a class derived from ``seele.losses.term.LossTerm``.

    On the command line:

        'seele.loss_terms=[{term: "my_term.py:MyTerm", coefficient: 0.1, settings: {power: 2}}]'
    """

    term: str
    """``path/to/file.py:Name``, ``package.module:Name`` or the name of an entry point in ``seele.losses``."""

    coefficient: float = 1.0
    """Weight of the term."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the class."""

    def __post_init__(self) -> None:
        require(math.isfinite(self.coefficient), f"coefficient must be finite, got {self.coefficient}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SftConfig:
    """The supervised stage of ``sft`` and ``sft_rl``. Defaults are those of the SFT baseline in LUFFY
    (arXiv:2504.14945), which was trained with OpenRLHF; the last one is OpenRLHF's own.
    """

    epochs: int = 3
    """Passes over the problems. ``method=sft`` also stops at ``trainer.total_training_steps``."""

    share: float = 1.0
    """Share of the problems that are trained on, in (0, 1]; ``sft_rl`` uses the rest in its RL stage."""

    train_files: tuple[str, ...] = ()
    """``sft_rl``: files of the problems of the supervised stage, whatever the share; the RL stage then uses
    all of ``data.train_files``. Empty: both stages use their part of ``data.train_files``.
    """

    batch_size: int = 64
    """Problems per step. ``method=sft`` uses ``data.train_batch_size``."""

    learning_rate: float = 5e-5
    """Peak learning rate. ``method=sft`` uses ``actor_rollout_ref.actor.optim.lr``."""

    warmup_ratio: float = 0.1
    """Share of the steps over which the learning rate rises to its peak, in [0, 1)."""

    final_lr_ratio: float = 0.1
    """Share of the learning rate that is left at the end, after half a cosine; 1 keeps it constant."""

    save_freq: int | None = None
    """Steps between checkpoints. None: one checkpoint per epoch, spread evenly; below 1: only the last."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")
        require_fraction("share", self.share, "(0, 1]")
        require(
            0.0 < self.learning_rate < math.inf, f"learning_rate must be positive, got {self.learning_rate}"
        )
        require_fraction("warmup_ratio", self.warmup_ratio, "[0, 1)")
        require_fraction("final_lr_ratio", self.final_lr_ratio)
