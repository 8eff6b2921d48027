"""The contract of off-policy sources: which response tokens of a group the policy did not write in this step.

A user's own source derives from ``OffPolicySource`` and is named in ``seele.off_policy.source``. Rollout
workers, the trainer and the checks before a run each build one from the settings, so a source must not keep
state from one problem to the next.
"""

from typing import ClassVar

from seele.config import OffPolicyConfig, SeeleConfig
from seele.errors import ConfigError
from seele.maths.irt import Array
from seele.methods.baselines import BASELINES, Group
from seele.records import Completion, Instance, Origin
from seele.rollout.solutions import EncodedProblem
from seele.rollout.templates import Tokenizer

KEY = "seele.off_policy.source"


class OffPolicySource:
    """The base of all sources, itself without off-policy tokens."""

    adds_rollouts: ClassVar[bool] = False
    """True if ``given`` returns whole rollouts, which replace generated ones."""

    in_response: ClassVar[bool] = False
    """True if a hint is in the response and not in the prompt; its tokens are then off-policy."""

    reads_solutions: ClassVar[bool] = False
    """True if ``given`` reads the tokens of the worked solution."""

    replays: ClassVar[bool] = False
    """True if problems are drawn from the pool of earlier successes, which are passed to ``given``."""

    replays_visited: ClassVar[bool] = False
    """True if ``given`` receives an earlier success of each problem that has one."""

    has_log_probs: ClassVar[bool] = True
    """True if off-policy tokens come with log-probabilities, which the update uses as the old ones. Otherwise
    it uses the trainer's.
    """

    origin: ClassVar[Origin] = Origin.TRACE
    """The author of the given rollouts."""

    def __init__(self, settings: OffPolicyConfig) -> None:
        self.settings = settings

    @property
    def marks_tokens(self) -> bool:
        """True if any response token may be off-policy."""
        return self.adds_rollouts or self.in_response

    @property
    def has_own_loss(self) -> bool:
        """True if off-policy tokens are excluded from the surrogate of the others."""
        return self.adds_rollouts and self.settings.loss != "surrogate"

    def given(
        self,
        instance: Instance,
        encoded: EncodedProblem,
        tokenizer: Tokenizer,
        *,
        replayed: Completion | None = None,
    ) -> list[Completion]:
        """Responses given to a group, not generated; fewer than the group has rollouts.

        Args:
            instance: The problem.
            encoded: Its tokens; those of the solution only if ``reads_solutions`` or hints need them.
            tokenizer: The model's tokenizer.
            replayed: An earlier success, if ``replays`` and the problem was drawn from the pool, or if
                ``replays_visited``.

        Returns:
            Completions with a log-probability for each token, any number without ``has_log_probs``. Those
            longer than a response are cut.
        """
        return []

    def response_tokens(self, instance: Instance, encoded: EncodedProblem, tokenizer: Tokenizer) -> int:
        """Tokens of the longest given response, to find problems that do not fit; 0 without any."""
        return max((len(each.token_ids) for each in self.given(instance, encoded, tokenizer)), default=0)

    def advantages(self, group: Group) -> tuple[Array, Array] | None:
        """Two (G,) arrays, advantages of generated tokens and of off-policy tokens; None if the run's
        baseline gives both.
        """
        return None

    def check(self, config: SeeleConfig) -> None:
        """Refuse settings that contradict the source.

        Raises:
            ConfigError: The message names the setting and a way out.
        """
        settings, hints, name = config.off_policy, config.hints, config.off_policy.source
        if self.adds_rollouts and not (hints.rounds == 1 and hints.rollouts_per_prompt >= 2):
            raise ConfigError(
                f"seele.off_policy.source {name!r} needs hints.rounds=1 and at least two rollouts per "
                f"prompt, got {hints.rounds} and {hints.rollouts_per_prompt}"
            )
        baseline = config.advantage.baseline
        has_means_of_its_own = self.in_response or settings.statistics == "on_policy"
        if baseline != "pooled" and (has_means_of_its_own or (self.marks_tokens and baseline in BASELINES)):
            raise ConfigError(
                f"seele.advantage.baseline must be 'pooled' with off-policy rows, got {baseline!r}: they do "
                "not belong to a round, and source and statistics decide what they are compared with"
            )
        reads_advantages = settings.has_advantages or not self.has_own_loss
        if settings.entropy_share < 1.0 and not (self.in_response and reads_advantages):
            raise ConfigError(
                "seele.off_policy.entropy_share below 1 needs source 'prefix', whose tokens have their own "
                f"advantages; got source {name!r}, with which it must be 1"
            )
        if settings.loss == "trust_region" and not self.in_response:
            raise ConfigError(
                f"seele.off_policy.loss 'trust_region' needs source 'expert_prefix', got {name!r}; choose "
                "method=trapo"
            )
        if self.in_response and not self.has_own_loss and settings.loss != "surrogate":
            raise ConfigError(
                f"seele.off_policy: loss of a prefix must be 'surrogate', got {settings.loss!r}; the "
                "prefix's probabilities under its author are unknown"
            )
        if not settings.clip and not self.adds_rollouts:
            raise ConfigError(
                f"seele.off_policy.clip must be true with source {name!r}, which adds no off-policy rows"
            )
