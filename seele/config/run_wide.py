"""What the run, not its own settings, tells a hint controller."""

from dataclasses import dataclass

from seele.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class RunWide:
    """Values that a controller may name among its constructor's arguments.

    Raises:
        ConfigError: A value is not allowed.
    """

    rounds: int
    """Rounds of a visit, at least 1 (m in the paper)."""

    rollouts_per_round: int
    """Rollouts of a round, at least 1 (n in the paper)."""

    seed: int = 0
    """Seeds whatever the controller draws."""

    target_accuracy: float = 0.5
    """Accuracy a* in (0, 1) that a hint aims at; 0.5 in the paper (section 5.1)."""

    training_steps: int | None = None
    """Steps that the run is planned for; None where they are not known."""

    def __post_init__(self) -> None:
        for key in ("rounds", "rollouts_per_round"):
            count = getattr(self, key)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ConfigError(f"seele.hints.{key}: expected a whole number of at least 1, got {count!r}")
        target = self.target_accuracy
        if not isinstance(target, int | float) or not 0.0 < target < 1.0:
            raise ConfigError(f"seele.hints.target_accuracy: expected a number in (0, 1), got {target!r}")
