"""Settings of supervised fine-tuning on the worked solutions."""

import math
from dataclasses import dataclass

from seele.config.require import require


@dataclass(frozen=True, kw_only=True, slots=True)
class SftConfig:
    """The supervised stage of ``sft`` and ``sft_rl``. Defaults are those of the SFT baseline in LUFFY
    (arXiv:2504.14945), which was trained with OpenRLHF; the last one is OpenRLHF's own.
    """

    epochs: int = 3
    """How often each problem is trained on. ``method=sft`` also stops at ``trainer.total_training_steps``."""

    share: float = 1.0
    """Share of the problems that are trained on, in (0, 1]; what ``sft_rl`` leaves is for its RL stage."""

    train_files: tuple[str, ...] = ()
    """``sft_rl``: files of the problems of the supervised stage, whatever the share; the RL stage then takes
    all of ``data.train_files``. Empty: both take their part of those.
    """

    batch_size: int = 64
    """Problems of one step. ``method=sft`` takes ``data.train_batch_size``."""

    learning_rate: float = 5e-5
    """Highest learning rate. ``method=sft`` takes ``actor_rollout_ref.actor.optim.lr``."""

    warmup_ratio: float = 0.1
    """Share of the steps over which the learning rate rises to its highest, in [0, 1)."""

    final_lr_ratio: float = 0.1
    """Share of the learning rate that is left at the end, after half a cosine; 1 keeps it constant."""

    save_freq: int | None = None
    """Steps between checkpoints; None: as many as epochs, evenly over the run; below 1: the last only."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")
        require(0.0 < self.share <= 1.0, f"share must lie in (0, 1], got {self.share}")
        require(
            0.0 < self.learning_rate < math.inf, f"learning_rate must be positive, got {self.learning_rate}"
        )
        require(0.0 <= self.warmup_ratio < 1.0, f"warmup_ratio must lie in [0, 1), got {self.warmup_ratio}")
        require(
            0.0 <= self.final_lr_ratio <= 1.0, f"final_lr_ratio must lie in [0, 1], got {self.final_lr_ratio}"
        )
