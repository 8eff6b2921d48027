"""Settings of rows that the policy did not write in this step."""

import math
from dataclasses import dataclass

from seele.config.require import require

LOSSES = ("shaped", "nll", "surrogate")
STATISTICS = ("all", "on_policy")


@dataclass(frozen=True, kw_only=True, slots=True)
class OffPolicyConfig:
    """Which response tokens are off-policy, and what they are trained with. Hints in the prompt are not
    responses: see ``ImitationConfig``.
    """

    source: str = "none"
    """``none``; ``trace``: one rollout of each problem is its worked solution (LUFFY); ``prefix``: a hint is
    part of the response, and trained like it (Prefix-RFT); ``replay``: one rollout of some problems is an old
    success of the policy (ExGRPO). Or a class of your own derived from
    ``seele.methods.sources.OffPolicySource``: ``path/to/file.py:Name`` or ``package.module:Name``, under any
    method of rollouts without a critic.
    """

    loss: str = "shaped"
    """Of an off-policy token. ``shaped``: -f(r) A with f(x) = x / (x + shaping), r the ratio of its
    probability to that under whoever wrote it (1 for a trace), without clipping. ``nll``: the negative
    log-likelihood. ``surrogate``: as every other token.
    """

    shaping: float = 0.1
    """gamma in LUFFY's f(x), positive."""

    coefficient: float = 1.0
    """Weight of the off-policy loss."""

    clip: bool = True
    """Whether the ratio of tokens that the policy wrote is clipped, to verl's ``clip_ratio_low``, ``_high``
    and ``_c``. False: not in steps that have off-policy rows, as in the code of LUFFY and ExGRPO.
    """

    statistics: str = "all"
    """Whose rewards a group's mean and standard deviation are taken over: ``all`` rollouts, or those
    ``on_policy``, as in LUFFY's code for RL with an SFT loss.
    """

    entropy_share: float = 1.0
    """Share of the batch's off-policy tokens that keep their advantage, those of the highest entropy, in
    (0, 1].
    """

    def __post_init__(self) -> None:
        for name, allowed in {"loss": LOSSES, "statistics": STATISTICS}.items():
            value = getattr(self, name)
            require(value in allowed, f"{name} must be one of {list(allowed)}, got {value!r}")
        require(0.0 < self.shaping < math.inf, f"shaping must be positive, got {self.shaping}")
        require(
            0.0 <= self.coefficient < math.inf,
            f"coefficient must be finite and not negative, got {self.coefficient}",
        )
        share = self.entropy_share
        require(0.0 < share <= 1.0, f"entropy_share must lie in (0, 1], got {share}")

    @property
    def has_advantages(self) -> bool:
        """Whether advantages weigh the loss of off-policy tokens."""
        return self.loss != "nll"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayConfig:
    """Which of the policy's own successes are replayed (ExGRPO, arXiv:2510.02245)."""

    problem_share: float = 0.5
    """Share of a step's problems that come from the pool, in [0, 1]."""

    start_accuracy: float = 0.35
    """Mean accuracy of a step that opens the pool for good."""

    bucket_sd: float = 1.0
    """Standard deviation, in successes, of the weight of a problem around half of its rollouts."""

    def __post_init__(self) -> None:
        for name in ("problem_share", "start_accuracy"):
            value = getattr(self, name)
            require(0.0 <= value <= 1.0, f"{name} must lie in [0, 1], got {value}")
        require(0.0 < self.bucket_sd < math.inf, f"bucket_sd must be positive, got {self.bucket_sd}")
