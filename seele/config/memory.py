"""Settings of the check that a run fits its memory."""

import math
from dataclasses import dataclass

from seele.config.require import require

CHECKS = ("refuse", "warn", "off")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryConfig:
    """What becomes of a run that does not fit by arithmetic (docs/memory.md)."""

    check: str = "refuse"
    """``refuse``: it does not start. ``warn``: it starts, and says so. ``off``: nothing is counted."""

    gpu_gib: float = 79.0
    """Memory of a GPU in GiB where the driver's node has none to ask; each hardware file says its own. 79 is
    what CUDA finds on a card of 80 GB.
    """

    def __post_init__(self) -> None:
        require(self.check in CHECKS, f"check must be one of {list(CHECKS)}, got {self.check!r}")
        require(0.0 < self.gpu_gib < math.inf, f"gpu_gib must be positive, got {self.gpu_gib}")
