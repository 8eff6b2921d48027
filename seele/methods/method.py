"""What a method says about itself."""

from dataclasses import dataclass

from seele.config import SeeleConfig
from seele.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A training method as a composition of parts that all methods share."""

    name: str
    """``method=NAME`` on the command line."""

    summary: str
    """One sentence: how it differs."""

    reveals_hints: bool
    """Whether training prompts may carry a hint."""

    def check(self, config: SeeleConfig) -> None:
        """Refuse settings under which a run would not be this method.

        Raises:
            ConfigError: If a method without hints is given a controller that reveals some, or an imitation
            term.
        """
        if self.reveals_hints:
            return
        if config.hints.controller != "none":
            raise ConfigError(
                f"seele.hints.controller: method {self.name} trains without hints, "
                f"got {config.hints.controller!r}; allowed is 'none', or choose method=seele"
            )
        if config.imitation.coefficient > 0.0:
            raise ConfigError(
                f"seele.imitation.coefficient: method {self.name} has no hint tokens to imitate, "
                f"got {config.imitation.coefficient}; allowed is 0"
            )
