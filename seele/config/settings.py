"""The ``seele:`` block of a run's configuration: settings for which verl has no key.

verl's own settings (batch sizes, learning rate, KL) keep verl's names and are in the YAML files. Defaults
are those of the SEELE paper (arXiv:2509.06923v1, section 5.1) unless a field says otherwise;
``verl/seele_verl/config/seele.yaml`` has the same defaults for the same keys.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from seele.config.build import (
    require,
    require_fraction,
    require_not_negative,
    require_one_of,
    require_request,
)
from seele.config.run import DataConfig, MemoryConfig, RunWide
from seele.config.training import (
    CreditConfig,
    InterleaveConfig,
    LossTermConfig,
    OffPolicyConfig,
    ReplayConfig,
    SftConfig,
)
from seele.records import BOX_REQUEST, Chat

MODEL_RUNNERS = ("v1", "v2")
HINT_UNITS = ("step", "sentence", "token")
KINDS = ("prefix", "tiers")
WHEN = ("always", "after_failure", "until_success", "rescue")
PLACEMENTS = ("assistant", "user")
PREFIX_REQUEST = (
    "{question}\n\nHere is the beginning of a correct solution:\n{hint}\n\nWrite the whole solution."
)
RUN_WIDE = {"name", *(each.name for each in fields(RunWide))}
"""Arguments that a controller gets from the run, not from its own settings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HintConfig:
    """How much of the worked solution is revealed, and how the amount is chosen."""

    controller: str = "bayes"
    """Name of a controller in ``seele.hints``, or a class of your own, ``path/to/file.py:Name`` or
    ``package.module:Name``, derived from ``seele.hints.SequentialController`` (docs/extending.md).
    """

    target_accuracy: float = 0.5
    """Accuracy that the controller aims at in each round, in (0, 1); a* in the paper. 0.5 maximises a(1-a).
    """

    rounds: int = 4
    """Rollout rounds per problem and step; m in the paper. At least 1."""

    rollouts_per_prompt: int = 32
    """Rollouts of a problem in one step, split evenly over the rounds; mn in the paper."""

    round_sizes: tuple[int, ...] | None = None
    """Rollouts of each round where they differ, such as [4, 2, 1, 1]; None for rounds of equal size. If
    rollouts_per_prompt is a multiple of their sum, they are scaled up to it.
    """

    kind: str = "prefix"
    """Kind of hint: ``prefix``, the first steps of the worked solution; or ``tiers``, a separate text from
    the problem's column ``tiers``, each stronger than the previous one (``seele data hints``). Hint ratios
    are then k/(K+1) for tier k of K. For solutions in the model's own words, see ``seele data own``.
    """

    placement: str = "assistant"
    """Place of a hint: ``assistant``, at the beginning of the assistant's turn, which continues from it; or
    ``user``, in the user's turn, so that the assistant writes a whole solution. With
    ``method=prefix_rft`` and ``method=trapo``, a hint is part of the response itself and trained on.
    """

    request: str = PREFIX_REQUEST
    """``placement=user``: the user's message if there is a hint. ``kind=tiers`` needs a different text,
    because the default says that the hint is the beginning of a solution.
    """

    when: str = "always"
    """When hints are given. ``always``. ``after_failure``: the first round has no hint, later ones only if it
    failed (``seele.hints.conditions``). ``until_success``: the first round has no hint; a round that failed
    is discarded and rolled out again with the controller's next hint, until the controller repeats one. Each
    round then has all of ``rollouts_per_prompt``. ``rescue``: the first round has all of them, without a
    hint; if it failed, a second one tries every hint once, and the weakest that succeeds replaces one of the
    failures.
    """

    failing_accuracy: float = 0.0
    """Unless ``when`` is ``always``: the largest accuracy of a round that counts as failed, in [0, 1)."""

    passing_accuracy: float = 1.0
    """``when=until_success``: the largest accuracy at which a round with a hint is kept, above
    ``failing_accuracy``; an easier round is discarded too, and rolled out again (BREAD).
    """

    dropout: float = 0.0
    """Probability that a rollout loses its hint, in [0, 1)."""

    round_quorum: float = 1.0
    """Share of a round's rollouts that must be graded before the problem's next round begins, in (0, 1];
    below 1 only for controllers that tolerate partial rounds, such as ``bayes``. See ``docs/rollout.md``.
    """

    unit: str = "step"
    """Unit of a hint: ``step``, as in the problems' files, ``sentence`` or ``token``. The paper does not
    state its unit; its annotated steps fit what it shows.
    """

    refresh: str = "never"
    """``epoch``: the policy's own correct response in a visit, if it ended by itself, is the problem's
    solution in later visits, so that hints are what the policy might have written
    (``seele.data.own_solutions``).
    """

    revealing: str = "allow"
    """``forbid``: no hint may state the answer (``seele.data.steps.leakage``). The paper does not check."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the controller, checked by the controller itself."""

    def __post_init__(self) -> None:
        require_fraction("target_accuracy", self.target_accuracy, "(0, 1)")
        require(self.rounds >= 1, f"rounds must be at least 1, got {self.rounds}")
        require(
            self.rollouts_per_prompt >= 1
            and (self.round_sizes is not None or self.retries or self.rollouts_per_prompt % self.rounds == 0),
            f"rollouts_per_prompt ({self.rollouts_per_prompt}) must be a positive multiple of "
            f"rounds ({self.rounds})",
        )
        sizes = self.round_sizes
        require(
            sizes is None
            or (len(sizes) == self.rounds and min(sizes) >= 1 and self.rollouts_per_prompt % sum(sizes) == 0),
            f"round_sizes must be {self.rounds} numbers (rounds), each at least 1, that add up to "
            f"{self.rollouts_per_prompt} (rollouts_per_prompt) or a divisor of it, got "
            f"{sizes and list(sizes)}",
        )
        require(
            sizes is None or not self.retries,
            f"round_sizes must be null with when={self.when}: its first round has all rollouts, got {sizes}",
        )
        require(
            self.when != "rescue" or self.rounds == 2,
            f"rounds must be 2 with when=rescue, whose second round tries all hints, got {self.rounds}",
        )
        require_one_of(
            "placement",
            self.placement,
            PLACEMENTS,
            "; for hints in the response choose method=prefix_rft or method=trapo, which place them there by "
            "themselves",
        )
        require_one_of(
            "kind",
            self.kind,
            KINDS,
            "; for hints in the model's own words train with kind=prefix on the file that "
            "'seele data own FILE --model M' makes, or set refresh=epoch",
        )
        require(
            self.kind == "prefix" or self.placement == "user",
            "kind=tiers needs placement=user, because a tier is not the beginning of a response",
        )
        require(
            self.kind == "prefix" or (self.unit == "step" and self.revealing == "allow"),
            f"kind=tiers leaves unit={self.unit} and revealing={self.revealing} without effect: tiers are "
            "shown as they are; leave both out",
        )
        require_request(self.request)
        require(
            self.kind == "prefix" or self.request != PREFIX_REQUEST,
            "kind=tiers needs another request, such as '{question} Here is a hint: {hint}': the default says "
            "that the hint is the beginning of a solution, which a tier is not",
        )
        require_one_of("when", self.when, WHEN)
        require(
            self.when == "always" or self.rounds >= 2,
            f"when={self.when} needs at least two rounds, the first without hint, got {self.rounds}",
        )
        require(
            self.when == "always" or self.round_quorum == 1.0,
            f"when={self.when} needs whole rounds, since failure is only known once a round is graded: "
            f"round_quorum must be 1, got {self.round_quorum}",
        )
        for name in ("failing_accuracy", "dropout"):
            require_fraction(name, getattr(self, name), "[0, 1)")
        require(
            self.failing_accuracy < self.passing_accuracy <= 1.0,
            f"passing_accuracy must lie in ({self.failing_accuracy}, 1] (above failing_accuracy), got "
            f"{self.passing_accuracy}",
        )
        require_fraction("round_quorum", self.round_quorum, "(0, 1]")
        require_one_of("unit", self.unit, HINT_UNITS)
        require(
            self.unit != "token" or self.placement != "user",
            "unit=token needs placement=assistant: a hint in the user's turn changes the whole prompt, which "
            "would be encoded once for each token of the solution",
        )
        require_one_of("refresh", self.refresh, ("never", "epoch"))
        require(
            self.refresh == "never" or self.kind == "prefix",
            "refresh=epoch needs kind=prefix: tiers do not follow a solution; set refresh=never",
        )
        require_one_of("revealing", self.revealing, ("allow", "forbid"))
        nameless = [key for key in self.settings if not isinstance(key, str)]
        require(not nameless, f"settings: keys must be names of settings, got {nameless}")
        run_wide = RUN_WIDE & self.settings.keys()
        require(not run_wide, f"settings: {sorted(run_wide)} belong to the run, not to the controller")

    @property
    def user_request(self) -> str | None:
        """The user's message if there is a hint; None if hints are in the assistant's turn."""
        return self.request if self.placement == "user" else None

    @property
    def retries(self) -> bool:
        """True if a problem is rolled out again after a round that failed."""
        return self.when in ("until_success", "rescue")

    @property
    def rollouts_of_rounds(self) -> tuple[int, ...]:
        """Rollouts of a problem in each round; n in the paper."""
        if self.when == "rescue":
            return (self.rollouts_per_prompt,)
        if self.retries:
            return (self.rollouts_per_prompt,) * self.rounds
        shares = self.round_sizes or (1,) * self.rounds
        return tuple(share * self.rollouts_per_prompt // sum(shares) for share in shares)

    @property
    def gives_hints(self) -> bool:
        """True if hints are ever given; if not, their units do not matter."""
        return self.controller != "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class CurriculumConfig:
    """Which problems a step rolls out. Defaults of ``sec`` are those of SEC's 3B runs (arXiv:2505.14970)."""

    name: str = "uniform"
    """``uniform``: every problem once per epoch. ``ordered``: sorted by ``columns``. ``sec``: a bandit
    over groups of problems that share their values in ``columns``. Or a class of your own,
    ``path/to/file.py:Name`` or ``package.module:Name`` (docs/extending.md).
    """

    columns: tuple[str, ...] = ("level",)
    """Columns of the problems' files by which problems are sorted or grouped into SEC's arms."""

    learning_rate: float = 0.5
    """``sec`` only: weight of a step's reward in an arm's value, in (0, 1]; alpha in the paper."""

    temperature: float = 1.0
    """``sec`` only: temperature of the softmax over the arms' values, positive; tau in the paper."""

    with_replacement: bool = False
    """``sec`` only: whether an arm may repeat a problem before all its problems have had their turn."""

    spare_problems: int = 0
    """Problems of later steps that are rolled out along with a step's own. The step ends when the number it
    trains on is done; the others are restarted in the next step, which waits for them.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a curriculum of your own: its constructor's keyword arguments."""

    def __post_init__(self) -> None:
        require(bool(self.columns) or self.name == "uniform", "columns must name at least one column")
        require_fraction("learning_rate", self.learning_rate, "(0, 1]")
        require(0.0 < self.temperature < math.inf, f"temperature must be positive, got {self.temperature}")
        require(self.spare_problems >= 0, f"spare_problems must not be negative, got {self.spare_problems}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionConfig:
    """Which groups (a problem's rollouts of one step) an update learns from. Defaults of ``lze`` are those of
    its paper's experiments (arXiv:2605.17003): 40 % of the groups, after a first epoch with all of them.
    """

    name: str = "none"
    """``none`` or ``lze``, or a class of your own, ``path/to/file.py:Name`` or ``package.module:Name``
    (docs/extending.md).
    """

    ratio: float = 0.4
    """``lze``: share of the groups that an update learns from, in (0, 1]."""

    warmup_epochs: float = 1.0
    """``lze``: initial epochs that learn from every group."""

    transition_epochs: float = 0.0
    """``lze``: epochs over which the share falls to ``ratio`` afterwards."""

    momentum: float = 0.3
    """``lze``: weight of the change of a problem's pass rate in its energy; alpha in the paper."""

    decay: float = 0.9
    """``lze``: decay of the moving average of a problem's pass rate, in [0, 1)."""

    noise: float = 0.05
    """``lze``: scale of the Gumbel noise on energies, relative to their spread."""

    prune_after: int = 0
    """Visits in a row with only correct rollouts after which a problem is not rolled out; 0 prunes nothing.
    Works with any ``name``.
    """

    replay_share: float = 0.1
    """Share of the pruned problems that is rolled out again in each epoch, in [0, 1]; at least one of them.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a selection of your own: its constructor's keyword arguments."""

    def __post_init__(self) -> None:
        require_fraction("ratio", self.ratio, "(0, 1]")
        for name in ("warmup_epochs", "transition_epochs", "momentum", "noise", "prune_after"):
            require_not_negative(name, getattr(self, name))
        require_fraction("decay", self.decay, "[0, 1)")
        require_fraction("replay_share", self.replay_share)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageConfig:
    """The baseline with which a rollout's reward is compared."""

    baseline: str = "pooled"
    """``pooled``: the mean over all rounds of the problem, as in the paper. ``per_round``: the mean of the
    round. ``hinted_apart``: separate means of the rollouts with and without a hint (ADHint,
    arXiv:2512.13095). ``hint_conditional``: the mean of the other rollouts under the same hint, shrunk
    towards the accuracy that the controller expects there. Or a function of your own,
    ``path/to/file.py:name`` or ``package.module:name``, from a ``seele.methods.baselines.Group`` to (G,)
    advantages.
    """

    prior_rollouts: float = 4.0
    """``hint_conditional`` only: weight of the controller's expectation, in rollouts."""

    shift: float = 0.0
    """``pooled`` only, without division by a standard deviation: offset added to the mean; below 0, successes
    weigh more than failures (AsymRE, arXiv:2506.20520).
    """

    def __post_init__(self) -> None:
        require(
            self.shift == 0.0 or (self.baseline == "pooled" and -1.0 <= self.shift <= 1.0),
            f"shift must lie in [-1, 1], and be 0 with a baseline other than 'pooled'; got {self.shift}",
        )
        require_not_negative("prior_rollouts", self.prior_rollouts)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImitationConfig:
    """The supervised term on hint tokens (paper Eq. 10)."""

    coefficient: float = 0.001
    """Weight of the term; gamma in the paper. 0 disables it."""

    form: str = "logprob_mean"
    """``logprob_mean`` or ``logprob_sum`` over the hint's tokens; ``token_mean`` over the tokens of all hints
    of an update, as in UFT's code; or ``prob``: the probability of the whole hint, as printed in the paper,
    which vanishes for hints of more than a few tokens. The default is ours; ``method=seele`` sets ``prob``.
    """

    def __post_init__(self) -> None:
        require_not_negative("coefficient", self.coefficient)
        require_one_of("form", self.form, ("logprob_mean", "logprob_sum", "token_mean", "prob"))


# Arguments of transformers' apply_chat_template that are not template variables: SEELE passes them.
_GIVEN_TO_CHAT = frozenset(
    {"conversation", "add_generation_prompt", "continue_final_message", "tokenize", "tokenizer_kwargs"}
    | {"padding", "truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptConfig:
    """The prompt around the question."""

    template: str = "r1_zero"
    """Name of a template in ``seele.rollout.templates``; ``chat`` is the tokenizer's own."""

    stop: tuple[str, ...] | None = None
    """Strings at which validation ends a response: None for the template's, empty for none.
    Training rollouts continue to the end of the sequence, as in the published methods."""

    system: str | None = None
    """Template ``chat`` only: text of a system message before the question; None for none."""

    chat_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Template ``chat`` only: values of its variables, such as ``enable_thinking``. Follows verl's
    ``data.apply_chat_template_kwargs``."""

    open_thinking: bool = False
    """Template ``chat`` only: whether the prompt ends with ``<think>`` and a newline, which thinking models
    write by themselves, so that a hint is inside the thoughts."""

    ask: str = BOX_REQUEST
    """Template ``chat`` only: text after the question, unless that or the system message already has
    ``\\boxed``; empty for none. A ``\\boxed`` in a hint or a solution that the user states does not count."""

    @property
    def chat(self) -> Chat:
        """Inputs of the chat template besides the question."""
        return Chat(self.system, self.chat_kwargs, self.open_thinking, self.ask)

    def __post_init__(self) -> None:
        chat = {
            "system": self.system,
            "chat_kwargs": self.chat_kwargs or None,
            "open_thinking": self.open_thinking or None,
            "ask": None if self.ask == BOX_REQUEST else self.ask,
        }
        for name, value in chat.items():
            require(
                value is None or self.template == "chat",
                f"{name} needs template 'chat', whose text is the tokenizer's; got {self.template!r}"
                + (" (data.apply_chat_template_kwargs sets it)" if name == "chat_kwargs" else ""),
            )
        reserved = sorted(_GIVEN_TO_CHAT.intersection(self.chat_kwargs))
        require(
            not reserved,
            f"chat_kwargs sets variables of the chat template, and {reserved} are not "
            "(data.apply_chat_template_kwargs)",
        )
        require(all(self.stop or ()), f"stop must contain only non-empty texts, got {list(self.stop or ())}")


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardConfig:
    """The grader and its limits. A response that cannot be graded within them counts as wrong."""

    grader: str = "mathruler"
    """``mathruler`` (the paper's), ``math_verify``, ``strict+`` or ``multiple_choice``; or your own reward
    function, as ``path/to/file.py:function`` or ``package.module:function``: docs/grading.md.
    """

    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Custom function only: further keyword arguments of every call."""

    isolation: str = "process"
    """Custom function only: ``process`` calls it in a process that is killed at the limits; ``none`` calls it
    in the rollout worker's process, for judges that need a network or a GPU.
    """

    correct_from: float = 1.0
    """Custom function only: reward from which a rollout counts as solved, in (0, 1]."""

    time_limit_s: float = 5.0
    """Most processor time for one answer, in seconds; not stated in the paper. With ``isolation`` ``none``,
    wall-clock seconds."""

    max_answer_chars: int = 1000
    """Longer answers are not graded, and neither are answers to problems with a longer reference answer. A
    custom function gets responses of any length."""

    memory_limit_mb: int = 2048
    """Address space of one grading process, in MiB; for a custom function, beyond what importing it takes."""

    num_workers: int = 1
    """Grading processes per rollout worker; with ``isolation`` ``none``, concurrent calls."""

    truncated_is_wrong: bool = False
    """True if a response that hit the length limit counts as wrong, whatever it says. Otherwise nothing keeps
    a policy from writing on after its answer; not stated in the paper."""

    after_thinking: bool = False
    """True if only the text after ``</think>`` is graded, and thoughts that never end are wrong, as in
    LUFFY's code; not with hints in the assistant's turn, which may end the thoughts.
    """

    format_score: float = 0.0
    """Reward of a wrong answer in the requested form, in [0, 1); 0.1 in SEC's reasoning tasks. Accuracies and
    the observations of hint controllers stay 0 or 1. A custom function returns its whole reward itself."""

    def __post_init__(self) -> None:
        require_one_of("isolation", self.isolation, ("process", "none"))
        require_fraction("correct_from", self.correct_from, "(0, 1]")
        nameless = [key for key in self.kwargs if not isinstance(key, str)]
        require(not nameless, f"kwargs: keys must be names of arguments, got {nameless}")
        require_fraction("format_score", self.format_score, "[0, 1)")
        for name in ("time_limit_s", "max_answer_chars", "memory_limit_mb", "num_workers"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"{name} must be finite and positive, got {value}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """Settings of the engine that vLLM itself does not have."""

    model_runner: str = "v1"
    """vLLM's model runner on GPUs: ``v1``, where seeds are drawn as on a CPU, or ``v2``, for architectures
    that vLLM itself runs with it (docs/rollout.md)."""

    def __post_init__(self) -> None:
        require_one_of("model_runner", self.model_runner, MODEL_RUNNERS)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeeleConfig:
    """One run's settings besides verl's."""

    method: str
    """Name of a method in ``seele.methods``."""

    seed: int = 0
    """Seed of the run: order of the problems, sampling, controller."""

    training_steps: int | None = None
    """Planned number of training steps, over which schedules stretch; None if unknown."""

    rollout_correction: str = "none"
    """Weight of a token by its probability under the trainer relative to the engine: ``none``, ``tis``
    (truncated) or ``mis`` (masked importance sampling), through verl's own weights
    (docs/rollout_correction.md).
    """

    rollout_correction_level: str = "token"
    """``token``: one weight per token; ``sequence``: one per response, the product over its tokens."""

    rollout_correction_threshold: float = 2.0
    """Largest weight: larger ones are cut down to it by ``tis``, and to 0 by ``mis``."""

    rollout_cache: str | None = None
    """Folder in which training rollouts are stored, and looked up before the engine is called; None for none
    (docs/debugging.md).
    """

    packed_updates: bool = False
    """True if update and log-probabilities compute a prompt and its hints once for all rows of a group, and
    logits only for tokens that are learnt from: ``docs/rollout.md``.
    """

    max_generated_tokens: int | None = None
    """Tokens that the run may generate in training: the step after the one that reaches this number is the
    last, and is validated and saved as such. None for no limit but the number of steps. For comparisons at
    equal cost.
    """

    save_every_minutes: float | None = None
    """Also save after a step if the last checkpoint is older than this; None for ``trainer.save_freq`` alone.
    Where all checkpoints are kept, this one is removed once a later one is written.
    """

    dump_tokens: bool = False
    """True if ``rollouts/step_N.jsonl`` contains each token of the responses, its advantage, and the
    trainer's log-probability minus the engine's. ``seele view`` colours tokens by them.
    """

    loss_terms: tuple[LossTermConfig, ...] = ()
    """Terms of your own that are added to the actor's loss: ``LossTermConfig``."""

    callbacks: tuple[str, ...] = ()
    """Classes of your own that are notified of steps, validations and checkpoints (``seele.callbacks``)."""

    data: DataConfig = field(default_factory=DataConfig)
    hints: HintConfig = field(default_factory=HintConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    off_policy: OffPolicyConfig = field(default_factory=OffPolicyConfig)
    interleave: InterleaveConfig = field(default_factory=InterleaveConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)

    def __post_init__(self) -> None:
        partly = self.credit.stop and not self.credit.by_milestones and self.reward.format_score
        require(
            not partly,
            f"credit.stop: a stopped rollout earns 0, but a problem's first rollout, which is never stopped, "
            f"may earn reward.format_score={partly}; set reward.format_score=0 or credit.name=milestones",
        )
        _require_positive_or_none("max_generated_tokens", self.max_generated_tokens)
        _require_positive_or_none("save_every_minutes", self.save_every_minutes)
        _require_seed(self.seed)
        require_one_of("rollout_correction", self.rollout_correction, ("none", "tis", "mis"))
        require_one_of("rollout_correction_level", self.rollout_correction_level, ("token", "sequence"))
        _require_threshold(self.rollout_correction_threshold)


def _require_threshold(value: float) -> None:
    # 1 is the weight of a token on which engine and trainer agree.
    require(1.0 < value < math.inf, f"rollout_correction_threshold must be finite and above 1, got {value}")


def _require_seed(value: int) -> None:
    require(value >= 0, f"seed must be 0 or more, got {value}")


def _require_positive_or_none(name: str, value: float | None) -> None:
    require(value is None or value > 0, f"{name} must be positive or null, got {value}")
