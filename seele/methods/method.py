"""The description of a method, and the settings that a supervised stage does not allow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from seele.config import SeeleConfig
from seele.errors import ConfigError
from seele.methods.baselines import build_baseline
from seele.methods.sources import SOURCES, OffPolicySource, build_source

SETTINGS_OF_ROLLOUTS = {
    "curriculum.name": "uniform",
    "curriculum.spare_problems": 0,
    "selection.name": "none",
    "selection.prune_after": 0,
    "advantage.baseline": "pooled",
    "credit.name": "none",
    "credit.stop": False,
    "interleave.problems": 0,
    "loss_terms": (),
    "rollout_correction": "none",
    "rollout_cache": None,
    "max_generated_tokens": None,
    "data.validated_training_problems": 0,
}
"""Settings without effect if nothing is rolled out, with the values that turn them off."""


NO_HINTS = ("none",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A training method as a composition of parts that all methods share."""

    name: str
    """``method=NAME`` on the command line."""

    summary: str
    """One sentence on how it differs."""

    controllers: tuple[str, ...] = NO_HINTS
    """Hint controllers that the method allows; empty for any."""

    off_policy: str = "none"
    """``seele.off_policy.source`` of the method."""

    estimator: str = "grpo"
    """``algorithm.adv_estimator`` of the method: the trainer's name for its kind of advantages."""

    requires: Mapping[str, str] = field(default_factory=dict)
    """Settings without which it is another method, such as ``hints.when``, with the only value allowed."""

    needs_column: str = ""
    """Column of the training files, such as ``guided_by``; if all its values are 0, it is another method."""

    expects_column: str = ""
    """The same, but a run warns: the files of some tasks need no such column."""

    stages: tuple[str, ...] = ("rl",)
    """The method's training stages in order: ``sft`` on worked solutions, ``rl`` on rollouts."""

    @property
    def is_supervised(self) -> bool:
        """True if nothing is rolled out: all training is on worked solutions."""
        return self.stages == ("sft",)

    @property
    def has_supervised_stage(self) -> bool:
        """True if a stage trains on worked solutions."""
        return "sft" in self.stages

    @property
    def has_two_stages(self) -> bool:
        """True if a stage on rollouts follows one on worked solutions."""
        return self.stages == ("sft", "rl")

    @property
    def _reveals_hints(self) -> bool:
        """True if training prompts or responses may begin with a hint."""
        return self.controllers != NO_HINTS

    @property
    def has_critic(self) -> bool:
        """True if a second model is trained to predict the reward."""
        return self.estimator == "gae"

    @property
    def leaves_one_out(self) -> bool:
        """True if a rollout is compared only with its group's others."""
        return self.estimator == "rloo"

    def _takes_source(self, spec: str) -> bool:
        """True if the method allows the source: its own, and with rollouts but without a critic also a user's
        source or the policy's own successes.
        """
        built_in = SOURCES.get(spec)
        goes_with_any = built_in is None or (built_in.replays_visited and self.off_policy == "none")
        return spec == self.off_policy or (goes_with_any and not self.is_supervised and not self.has_critic)

    def check(self, config: SeeleConfig) -> None:
        """Refuse settings under which a run would not be this method.

        Raises:
            ConfigError: A controller, off-policy source, imitation term, baseline, required setting or
                setting of rollouts does not fit the method.
        """
        self._check_stages(config)
        if self.controllers and config.hints.controller not in self.controllers:
            what = "has its own hints" if self._reveals_hints else "trains without hints"
            raise ConfigError(
                f"seele.hints.controller: method {self.name} {what}, got {config.hints.controller!r}; "
                f"allowed are {list(self.controllers)}, or choose method=seele"
            )
        for name, value in self.requires.items():
            if (got := attrgetter(name)(config)) != value:
                raise ConfigError(
                    f"seele.{name}: method {self.name} has {value!r}, got {got!r}; leave it, or add "
                    "seele.method=seele, which allows any"
                )
        if not self._takes_source(config.off_policy.source):
            raise ConfigError(
                f"seele.off_policy.source: method {self.name} has {self.off_policy!r}, "
                f"got {config.off_policy.source!r}; choose another method for that source"
            )
        source = build_source(config.off_policy)
        source.check(config)
        if config.imitation.coefficient > 0.0 and (not self._reveals_hints or source.in_response):
            raise ConfigError(
                f"seele.imitation.coefficient: method {self.name} has no hint tokens to imitate, "
                f"got {config.imitation.coefficient}; allowed is 0"
            )
        if config.hints.placement == "user" and (source.in_response or config.imitation.coefficient > 0.0):
            raise ConfigError(
                "seele.hints.placement: 'user' puts hints into the question, which is not trained on; set "
                "seele.imitation.coefficient=0, or use placement 'assistant'"
            )
        self._check_refresh(config, source)
        build_baseline(config, leave_one_out=self.leaves_one_out, divide_by_std=False)
        has_own_means = config.off_policy.statistics == "on_policy" or (
            type(source).advantages is not OffPolicySource.advantages
        )
        if config.advantage.shift and (self.has_critic or config.credit.gives_advantages or has_own_means):
            raise ConfigError(
                f"seele.advantage.shift: {config.advantage.shift}, but advantages here are not differences "
                "from the group's mean; allowed is 0"
            )
        if config.credit.gives_advantages:
            self._check_credit(config, source)
        if self.has_critic and config.interleave.problems:
            raise ConfigError(
                f"seele.interleave.problems: method {self.name} has a critic, which would then judge a "
                f"policy that it has not seen, got {config.interleave.problems}; allowed is 0"
            )
        if self.has_critic and config.advantage.baseline != "pooled":
            raise ConfigError(
                f"seele.advantage.baseline: method {self.name} has its own advantages "
                f"(algorithm.adv_estimator={self.estimator}), got {config.advantage.baseline!r}; "
                "allowed is 'pooled', which leaves them unchanged"
            )

    def _check_stages(self, config: SeeleConfig) -> None:
        """Refuse settings of rollouts without an RL stage, and a share of the problems that leaves a stage
        without any or the rest without a stage.
        """
        share = config.sft.share
        if self.is_supervised:
            for name, off in SETTINGS_OF_ROLLOUTS.items():
                if (value := attrgetter(name)(config)) != off:
                    raise ConfigError(
                        f"seele.{name}: method {self.name} has no rollouts, got {value!r}; allowed is {off!r}"
                    )
            if share < 1.0:
                raise ConfigError(
                    f"seele.sft.share: method {self.name} trains on all problems, got {share}; allowed is 1, "
                    "or choose method=sft_rl, whose second stage uses the rest"
                )
            if config.sft.train_files:
                raise ConfigError(
                    f"seele.sft.train_files: method {self.name} trains on data.train_files, got "
                    f"{list(config.sft.train_files)}; set those, or choose method=sft_rl"
                )
        elif self.has_two_stages and share == 1.0:
            raise ConfigError(
                f"seele.sft.share: method {self.name} leaves no problems for its RL stage, got {share}; "
                "allowed is a share below 1"
            )

    def _check_refresh(self, config: SeeleConfig, source: OffPolicySource) -> None:
        """Refuse own solutions where another part needs the worked ones, or earlier hints."""
        if config.hints.refresh == "never":
            return
        # Imported here: most users of methods need no controller.
        from seele.hints import steers_on_milestones

        credit, name = config.credit, config.off_policy.source
        if source.reads_solutions or source.in_response:
            why = f"seele.off_policy.source={name} uses the worked ones"
        elif source.replays_visited and config.hints.placement == "user":
            why = f"seele.off_policy.source={name} needs the hints that successes had"
        elif credit.gives_advantages or credit.stop:
            why = f"seele.credit ({credit.name}, stop={credit.stop}) uses the worked ones"
        elif steers_on_milestones(config.hints.controller):
            controller = config.hints.controller
            why = f"seele.hints.controller={controller} goes by the milestones of the worked ones"
        elif config.interleave.problems:
            why = f"seele.interleave.problems={config.interleave.problems} uses the worked ones"
        else:
            return
        raise ConfigError(f"seele.hints.refresh: 'epoch' changes solutions, but {why}; allowed is 'never'")

    def _check_credit(self, config: SeeleConfig, source: OffPolicySource) -> None:
        """Refuse settings that contradict a credit, which gives advantages to all rollouts that need them."""
        if self.has_critic:
            why = f"method {self.name} has its own advantages (algorithm.adv_estimator={self.estimator})"
        elif source.marks_tokens and not (source.replays_visited and config.credit.by_milestones):
            why = f"seele.off_policy.source={config.off_policy.source} puts other tokens into responses"
        elif config.advantage.baseline != "pooled":
            why = f"seele.advantage.baseline={config.advantage.baseline} compares whole rollouts; remove it"
        elif config.credit.by_distillation and config.hints.gives_hints:
            why = (
                f"seele.hints.controller={config.hints.controller} shows the policy what only the reference "
                "model should see"
            )
        else:
            return
        raise ConfigError(f"seele.credit.name: {config.credit.name!r} is not possible here: {why}")
