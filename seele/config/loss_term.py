"""Settings of a loss term of the user's own."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seele.config.require import require


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
