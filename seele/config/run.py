"""Settings of the run as a whole: its problems, its memory check, and what it passes to a hint controller."""

import math
from dataclasses import dataclass

from seele.config.build import require, require_one_of
from seele.errors import ConfigError

OVERLONG = ("drop", "refuse", "truncate")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Handling of the problems in ``data.train_files`` and ``data.val_files``."""

    overlong: str = "drop"
    """Handling of a problem that does not fit ``data.max_prompt_length`` and ``data.max_response_length``.
    ``drop``: it is skipped and counted. ``refuse``: the run does not start. ``truncate``: a worked solution
    in the response is cut at the limit, as in LUFFY, and hints are kept short enough; only a prompt that is
    too long by itself is skipped.
    """

    validated_training_problems: int = 0
    """Number of training problems, spread evenly over the files and without guided copies, that every
    validation includes without a hint. Their accuracy has the training file's name
    (``val/accuracy/chains/train``).
    """

    def __post_init__(self) -> None:
        require(
            self.validated_training_problems >= 0,
            f"validated_training_problems must not be negative, got {self.validated_training_problems}",
        )
        require_one_of("overlong", self.overlong, OVERLONG)


CHECKS = ("refuse", "warn", "off")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryConfig:
    """Handling of a run whose estimated memory does not fit (docs/memory.md)."""

    check: str = "refuse"
    """``refuse``: the run does not start. ``warn``: it starts with a warning. ``off``: no estimate."""

    gpu_gib: float = 79.0
    """Memory of a GPU in GiB if the driver's node has no GPU to query; each hardware file sets its own. 79 is
    what CUDA reports on an 80 GB card.
    """

    def __post_init__(self) -> None:
        require_one_of("check", self.check, CHECKS)
        require(0.0 < self.gpu_gib < math.inf, f"gpu_gib must be positive, got {self.gpu_gib}")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunWide:
    """Values that a controller may take as constructor arguments.

    Raises:
        ConfigError: If a value is not allowed.
    """

    rounds: int
    """Rounds of a visit, at least 1 (m in the paper)."""

    rollouts_per_round: int
    """Rollouts of a round, at least 1 (n in the paper); those of the first round if rounds differ."""

    seed: int = 0
    """Seed of everything that the controller draws."""

    target_accuracy: float = 0.5
    """Accuracy a* in (0, 1) that a hint aims at; 0.5 in the paper (section 5.1)."""

    training_steps: int | None = None
    """Planned number of training steps; None if unknown."""

    def __post_init__(self) -> None:
        for key in ("rounds", "rollouts_per_round"):
            count = getattr(self, key)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ConfigError(f"seele.hints.{key}: expected a whole number of at least 1, got {count!r}")
        target = self.target_accuracy
        if not isinstance(target, int | float) or not 0.0 < target < 1.0:
            raise ConfigError(f"seele.hints.target_accuracy: expected a number in (0, 1), got {target!r}")
