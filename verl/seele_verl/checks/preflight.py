"""Every check that can be made before Ray starts, so that a run does not fail an hour later."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from omegaconf import DictConfig, OmegaConf

from seele.callbacks import Callbacks
from seele.config import SeeleConfig
from seele.curriculum import check_curriculum, check_selection, columns_needed
from seele.data.overlong import Fits, Problem, keep_fitting
from seele.data.steps.hint_units import check_unit, for_hints
from seele.data.storage.files import nearest_existing, try_to_write
from seele.data.storage.schema import read_columns, read_problem_files
from seele.errors import ConfigError, DataError
from seele.hints import check_controller, steers_on_milestones
from seele.host import check_bfloat16
from seele.maths.model_shapes import HUB_NAMES
from seele.methods import METHODS, check_method
from seele.methods.sources import build_source
from seele.records import Instance
from seele.reward.milestones import milestones_of
from seele.reward.reasoning import check_reference
from seele.reward.walks import find_walk
from seele.rollout.templates import CHAT, check_template
from seele_models.command import command_that_makes
from seele_verl.checks.cluster import LOCAL, check_capability, check_cpus, cluster_address, cpus_by_ray
from seele_verl.checks.command_line import OPEN_SECTIONS
from seele_verl.checks.compositions import check_composition
from seele_verl.checks.critic_settings import check_critic, check_value_head
from seele_verl.checks.secrets import refuse_secrets
from seele_verl.checks.verl_settings import FUSED_HEAD, check_profiler, check_verl_settings
from seele_verl.checks.without_effect import check_has_effect, check_part_is_used
from seele_verl.engine.model_runner import check_model_runner
from seele_verl.lora import check_lora
from seele_verl.memory import check_memory
from seele_verl.model_config import read_model_config
from seele_verl.reward_function import check_reward_function
from seele_verl.rollout_cache import check_rollout_cache
from seele_verl.runs.overlong import Kept, keep_problems
from seele_verl.runs.resume import check_checkpoint
from seele_verl.settings import read_settings, sequence_parallel_size
from seele_verl.sft.preflight import check_supervised

# verl sets no value for this key; it belongs to a reward model, which is off.
MISSING_IN_VERL = {"reward.reward_model.rollout.name"}
CHANGES_LOGITS = {
    "final_logit_softcapping": None,
    "logits_scaling": 1,
    "logit_scale": 1,
    "lm_head_multiplier": 1,
    "lm_head_bias": False,
}
"""What changes logits after the output layer's product in a model's configuration -> the value at which it
does not.
"""
INSTEAD_UNDER_SFT = {
    "trainer.total_epochs": "set seele.sft.epochs",
    "actor_rollout_ref.actor.optim.lr_scheduler_type": "the schedule is half a cosine; "
    "seele.sft.final_lr_ratio=1 keeps the learning rate constant",
    "actor_rollout_ref.actor.optim.min_lr_ratio": "set seele.sft.final_lr_ratio",
    "actor_rollout_ref.actor.optim.lr_warmup_steps": "set seele.sft.warmup_ratio",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": "set seele.sft.warmup_ratio",
}
WITH_OUTPUT_BIAS = ("codegen", "ctrl", "gptj", "phi")
"""Types of models in transformers whose output layer always has a bias."""

OF_FIXED_MICRO_BATCHES = {
    f"actor_rollout_ref.{section}_micro_batch_size_per_gpu": (
        f"actor_rollout_ref.{switch}",
        f"actor_rollout_ref.{section}_max_token_len_per_gpu",
    )
    for section, switch in (
        ("actor.ppo", "actor.use_dynamic_bsz"),
        ("rollout.log_prob", "rollout.log_prob_use_dynamic_bsz"),
        ("ref.log_prob", "ref.log_prob_use_dynamic_bsz"),
    )
}
"""Rows of a micro-batch -> the switch under which they are not read, and what is read instead."""


Machine = Callable[[], AbstractContextManager[Any]]
"""Makes the context of a check that concerns only this machine; it may turn the check's error into a warning
(``seele_verl.check``).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The results of the checks of a run that passed."""

    seele: SeeleConfig
    num_problems: int
    num_unhintable: int
    """Training problems without a legal hint, because their solution is too short or shows the answer at
    once; they are kept."""
    num_validation: int
    num_validation_trained_on: int
    """Validation problems whose question is that of a training problem, word for word."""
    fits: tuple[Fits, Fits] = (Fits(), Fits())
    """How the token limits affected training and validation problems; the numbers above count those that are
    kept.
    """
    to_keep_all: str = ""
    """Overrides under which all problems would fit as they are; empty if they do."""
    has_model: bool = True
    """False if the model is not on this machine, so that no token was counted (``check_run``)."""

    @property
    def is_supervised(self) -> bool:
        """True if verl's SFT trainer runs instead of its RL trainer."""
        return METHODS[self.seele.method].stages == ("sft",)


def check_run(config: DictConfig, overrides: Sequence[str], *, machine: Machine = nullcontext) -> Preflight:
    """Check settings, model, data and lengths.

    Args:
        config: The composed configuration.
        overrides: What the user typed, to tell added keys from known ones.
        machine: Makes the context of the checks of this machine: its devices, its memory, and whether it has
            the model. Where the context swallows that the model is missing, no tokens are counted.

    Raises:
        ConfigError: A setting is unknown, missing, or contradicts another; the model is missing; the run
            folder cannot be written to.
        DataError: A data file is missing or broken, too few problems fit the length limits, or no problem
            has what the method learns from.
    """
    seele = check_settings(config, overrides)
    supervised = check_method(seele).stages == ("sft",)
    _check_run_folder(Path(config.trainer.default_local_dir).resolve())
    check_checkpoint(config, supervised=supervised)
    _check_validation_only(config, supervised=supervised)
    check_template(seele.prompt.template)
    check_controller(seele)
    Callbacks(seele.callbacks)  # imports and builds them
    _check_micro_batches(config, supervised=supervised)
    if not supervised:
        check_batches(config, seele)
        check_critic(config, overrides)
    check_composition(config, seele)
    _check_strategy(config)
    with machine():
        _check_device(config, supervised=supervised)
    check_lora(config)
    check_rollout_cache(config, seele)
    check_profiler(config, supervised=supervised)
    if not supervised:
        _check_cluster(config, machine)
    _check_default_validation(config, overrides)
    training, validation = (
        _read(config.data.train_files, "train_files", config.data.train_max_samples),
        _read(config.data.val_files, "val_files", config.data.val_max_samples),
    )
    _check_splits(config, seele, training, validation)
    begun = config.data.train_batch_size + seele.curriculum.spare_problems
    if len(training) < begun and not supervised:
        raise DataError(
            f"data.train_files: {len(training)} problems are fewer than the {begun} of one step; add data or "
            "lower data.train_batch_size or seele.curriculum.spare_problems"
        )
    if seele.credit.walks or steers_on_milestones(seele.hints.controller):
        find_walk(seele.credit.walk)
        _check_milestones(seele, [instance for instance, _ in training])
    check_reward_function(seele, training[0][0])
    _check_curriculum(config.data.train_files, seele, num_problems=begun)
    _check_own_tokenizer(config)
    tokenizer: Any = None
    with machine():
        tokenizer = _load_tokenizer(config)
    if tokenizer is not None:
        _check_model(config, overrides, seele, tokenizer)
    if tokenizer is not None or config.actor_rollout_ref.model.path in HUB_NAMES:
        with machine():
            check_memory(config, seele, supervised=supervised, num_problems=len(training))
    if seele.hints.kind == "tiers" and not any(instance.tiers for instance, _ in training):
        raise DataError(
            f"data.train_files: none of the {len(training)} problems has tiers, which seele.hints.kind=tiers "
            "gives as hints; `seele data hints` writes that column (see docs/data.md)"
        )
    _check_columns_of_method(config.data.train_files, seele)
    _check_solutions(seele, [instance for instance, _ in training])
    if tokenizer is not None or seele.hints.unit != "token":
        training = [(for_hints(instance, seele.hints, tokenizer), path) for instance, path in training]
    if supervised:
        check_supervised(config, seele, training)
    if tokenizer is None:
        kept = Kept(training=keep_fitting(training, ()), validation=keep_fitting(validation, ()))
    else:
        kept = keep_problems(
            config,
            seele,
            tokenizer,
            training=training,
            validation=validation,
            needed=seele.sft.batch_size if supervised else begun,
            supervised=supervised,
        )
    _check_hints(seele, kept.training)
    questions = {problem.instance.question for problem in kept.training}
    return Preflight(
        seele=seele,
        num_problems=len(kept.training),
        num_unhintable=sum(not problem.may_be_hinted for problem in kept.training),
        num_validation=len(kept.validation),
        num_validation_trained_on=sum(problem.instance.question in questions for problem in kept.validation),
        fits=kept.fits,
        to_keep_all=kept.to_keep_all,
        has_model=tokenizer is not None,
    )


def _check_splits(
    config: DictConfig,
    seele: SeeleConfig,
    training: Sequence[tuple[Instance, Path]],
    validation: Sequence[tuple[Instance, Path]],
) -> None:
    """Raise an error where the accuracies of different validation problems would have the same name."""
    train_files, val_files = (
        [Path(file).resolve() for file in _listed(config.data[key])] for key in ("train_files", "val_files")
    )
    validates_training = seele.data.validated_training_problems > 0
    if validates_training and train_files == val_files:
        raise ConfigError(
            "seele.data.validated_training_problems: data.val_files are the training files, which are "
            "validated whole; set it to 0"
        )
    files: dict[str, Path] = {}
    for instance, path in validation:
        name = f"{instance.data_source}/{path.stem}"
        if files.setdefault(name, path) != path:
            raise DataError(
                f"data.val_files: {files[name]} and {path} are both reported as {name!r}, from data set and "
                "file name; rename one of the files"
            )
    for instance, path in training if validates_training else ():
        name = f"{instance.data_source}/{path.stem}"
        if name in files:
            raise DataError(
                f"seele.data.validated_training_problems: problems of {path} and the validation file "
                f"{files[name]} would both be reported as {name!r}, from data set and file name; rename one "
                "of the files, or set it to 0"
            )


def _check_solutions(seele: SeeleConfig, training: Sequence[Instance]) -> None:
    """Raise ``DataError`` if a part reads worked solutions, and no problem has one."""
    readers = {
        "seele.interleave": seele.interleave.problems,
        "the teacher of seele.credit.name=self_distillation": seele.credit.by_distillation,
        f"seele.off_policy.source={seele.off_policy.source}": build_source(seele.off_policy).reads_solutions,
    }
    for reader in (name for name, is_used in readers.items() if is_used):
        if not any(instance.steps for instance in training):
            raise DataError(
                f"data.train_files: none of the {len(training)} problems has a worked solution, which "
                f"{reader} needs; prepare problems with solutions (docs/data.md has their sources), or "
                "train without solutions: method=grpo"
            )


def _check_hints(seele: SeeleConfig, training: Sequence[Problem]) -> None:
    """Raise ``DataError`` if the run gives hints and no problem can be hinted, unless later visits have the
    policy's own solutions.
    """
    if not seele.hints.gives_hints or seele.hints.refresh == "epoch":
        return
    if any(problem.may_be_hinted for problem in training):
        return
    without = sum(not (problem.instance.steps or problem.instance.tiers) for problem in training)
    unfit = len(training) - without
    why = [f"{without} have no worked solution"] if without else []
    why += [f"{unfit} have one of a single step, or none of its hints is allowed or fits"] if unfit else []
    raise DataError(
        f"data.train_files: none of the {len(training)} problems can be hinted, but "
        f"seele.hints.controller={seele.hints.controller} gives hints: {' and '.join(why)}; prepare problems "
        "with solutions of two steps or more (docs/data.md), or train without hints: method=grpo"
    )


def _check_run_folder(folder: Path) -> None:
    """Raise ``ConfigError`` unless files can be written to the run folder, or to where it would be made."""
    try:
        try_to_write(nearest_existing(folder))
    except OSError as error:
        raise ConfigError(
            f"trainer.default_local_dir: got {folder}, which cannot be written to: {error.strerror}; name "
            "another folder"
        ) from error


def _check_milestones(seele: SeeleConfig, training: Sequence[Instance]) -> None:
    if seele.hints.kind == "tiers" and seele.hints.gives_hints:
        raise ConfigError(
            "seele.hints.kind: 'tiers', but seele.credit or seele.hints.controller uses the milestones "
            "that a hint states, which are counted in the solution's steps; allowed is 'prefix'"
        )
    if not any(len(milestones_of(instance)) > 1 for instance in training):
        raise DataError(
            f"data.train_files: none of the {len(training)} problems has a milestone before its answer, but "
            "seele.credit or seele.hints.controller uses them; `seele data milestones FILE` writes "
            "them into FILE and counts them, and docs/milestones.md says where they come from"
        )


def check_settings(config: DictConfig, overrides: Sequence[str]) -> SeeleConfig:
    """Return the ``seele`` block after the checks that are cheap: keys must be known and values allowed.

    Raises:
        ConfigError, DataError: As ``check_run``.
    """
    _check_keys(config, overrides)
    check_verl_settings(config)
    refuse_secrets(config)
    seele = read_settings(config)
    check_method(seele)
    check_part_is_used(overrides, seele)
    return seele


def _check_keys(config: DictConfig, overrides: Sequence[str]) -> None:
    for override in overrides:
        key: str = override.split("=")[0]
        if key.startswith("+") and not f"{key.lstrip('+')}.".startswith(OPEN_SECTIONS):
            raise ConfigError(
                f"{key.lstrip('+')}: unknown key, or a known one, which is set without '+'; '+' adds keys "
                f"only under {[name[:-1] for name in OPEN_SECTIONS]}. `--cfg job` prints all known keys"
            )
        if key in INSTEAD_UNDER_SFT and OmegaConf.select(config, "seele.method") == "sft":
            raise ConfigError(f"{key}: has no effect on supervised training; {INSTEAD_UNDER_SFT[key]}")
        if key == "trainer.total_epochs" and config.trainer.total_training_steps is not None:
            raise ConfigError(
                f"{key}: has no effect with trainer.total_training_steps "
                f"({config.trainer.total_training_steps}), which methods and jobs set; set that to null"
            )
        switch, instead = OF_FIXED_MICRO_BATCHES.get(key, (None, None))
        if switch is not None and OmegaConf.select(config, switch):
            raise ConfigError(f"{key}: has no effect while {switch} is true; set {instead}")
    check_has_effect(overrides)
    missing = sorted(OmegaConf.missing_keys(config) - MISSING_IN_VERL)
    if missing:
        raise ConfigError(
            f"{missing[0]}: no value; give one on the command line or choose a group that sets it"
        )


def check_batches(config: DictConfig, seele: SeeleConfig) -> None:
    """Raise ``ConfigError`` unless prompts, mini-batches, rollouts and ranks divide evenly."""
    prompts, mini = config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size
    if prompts % mini:
        raise ConfigError(
            f"data.train_batch_size ({prompts}) must be a multiple of "
            f"actor_rollout_ref.actor.ppo_mini_batch_size ({mini})"
        )
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    rows = mini * seele.hints.rollouts_per_prompt
    if rows % ranks:
        raise ConfigError(
            f"actor_rollout_ref.actor.ppo_mini_batch_size ({mini}) times seele.hints.rollouts_per_prompt "
            f"({seele.hints.rollouts_per_prompt}) must be a multiple of the {ranks} training ranks"
        )
    actor = config.actor_rollout_ref.actor
    divisor = ranks * (1 if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu or 1)
    if seele.interleave.problems % divisor:
        raise ConfigError(
            f"seele.interleave.problems ({seele.interleave.problems}) must be a multiple of {divisor}, the "
            "training ranks times actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu where that is fixed"
        )
    rollouts = config.actor_rollout_ref.rollout.n
    if rollouts != seele.hints.rollouts_per_prompt:
        raise ConfigError(
            f"actor_rollout_ref.rollout.n: got {rollouts}; set seele.hints.rollouts_per_prompt "
            f"({seele.hints.rollouts_per_prompt}) instead, from which it is derived"
        )
    if config.trainer.v1.trainer_mode != "sync":
        raise ConfigError(
            f"trainer.v1.trainer_mode: got {config.trainer.v1.trainer_mode!r}; allowed is 'sync'"
        )


def _check_validation_only(config: DictConfig, *, supervised: bool) -> None:
    """Raise ``ConfigError`` where a validation-only run would train."""
    if config.trainer.val_only and supervised:
        raise ConfigError(
            "trainer.val_only: a supervised run is validated only after its training; set it to false, or "
            "evaluate a checkpoint with scripts/eval.sh"
        )
    if config.trainer.val_only and not config.trainer.val_before_train:
        raise ConfigError("trainer.val_only: needs trainer.val_before_train=true, got false")


def _check_micro_batches(config: DictConfig, *, supervised: bool) -> None:
    """Raise ``ConfigError`` unless every micro-batch holds the longest sequence: verl would stop at the first
    sequence that does not fit, which may be hours later.
    """
    model = config.actor_rollout_ref
    longest = config.data.max_prompt_length + config.data.max_response_length
    used = {"actor.ppo_max_token_len_per_gpu": model.actor.use_dynamic_bsz}
    if not supervised:
        used["rollout.log_prob_max_token_len_per_gpu"] = model.rollout.log_prob_use_dynamic_bsz
        used["ref.log_prob_max_token_len_per_gpu"] = (
            model.actor.use_kl_loss and model.ref.log_prob_use_dynamic_bsz
        )
    for name in (name for name, is_used in used.items() if is_used):
        tokens = OmegaConf.select(model, name)
        section = model.ref if name.startswith("ref.") else model.actor
        if longest > tokens * sequence_parallel_size(section):
            raise ConfigError(
                f"actor_rollout_ref.{name}: got {tokens}, must hold data.max_prompt_length plus "
                f"data.max_response_length, which are {longest} together"
            )


def _check_cpu_dtypes(config: DictConfig) -> None:
    """Raise ``ConfigError`` if engine or trainer would emulate bfloat16."""
    own = config.actor_rollout_ref
    dtypes = {
        "rollout.dtype": own.rollout.dtype,
        "actor.fsdp_config.mixed_precision.param_dtype": own.actor.fsdp_config.mixed_precision.param_dtype,
    }
    for key, dtype in dtypes.items():
        if dtype in ("bf16", "bfloat16"):
            check_bfloat16(f"actor_rollout_ref.{key}: got {dtype!r}")


def _check_strategy(config: DictConfig) -> None:
    if config.trainer.device == "cpu" and config.actor_rollout_ref.actor.strategy != "fsdp2":
        raise ConfigError(
            f"actor_rollout_ref.actor.strategy: got {config.actor_rollout_ref.actor.strategy!r}; "
            "allowed on a CPU is 'fsdp2'"
        )


def _check_device(config: DictConfig, *, supervised: bool) -> None:
    """Raise ``ConfigError`` unless this node's GPUs can train. The GPUs of a cluster are checked once the run
    has joined it (``seele_verl.checks.cluster``): this node may have none.
    """
    if config.trainer.device == "cpu":
        _check_cpu_dtypes(config)
    joins = cluster_address(config) != LOCAL
    if config.trainer.device != "cuda" or (joins and not supervised):
        return
    import torch

    if not torch.cuda.is_available():
        where = "; supervised training runs on this node, not on the Ray cluster" if joins else ""
        raise ConfigError(
            "trainer.device: 'cuda', but torch sees no GPU, or one with too old a driver; "
            f"allowed here is hardware=cpu{where}"
        )
    here, wanted = torch.cuda.device_count(), config.trainer.n_gpus_per_node
    if here < wanted:
        raise ConfigError(
            f"trainer.n_gpus_per_node: got {wanted}, but torch sees {here} GPUs; allowed here are 1 to {here}"
        )
    check_capability(torch.cuda.get_device_capability(), node="this node")


def _check_cluster(config: DictConfig, machine: Machine) -> None:
    """Raise ``ConfigError`` where Ray would fail or wait forever: resources for a cluster that has its own,
    several nodes without a cluster, or fewer CPUs than verl and TransferQueue reserve. A cluster's resources
    are known only once it is joined (``seele_verl.checks.cluster``).
    """
    ray_init, nodes = config.ray_kwargs.ray_init, config.trainer.nnodes
    address = cluster_address(config)
    if address != LOCAL:
        for key in ("num_cpus", "num_gpus"):
            if ray_init.get(key) is not None:
                raise ConfigError(
                    f"ray_kwargs.ray_init.{key}: got {ray_init[key]}, but the Ray cluster at {address!r}, "
                    "which the run joins, has its own; set it to null, or ray_kwargs.ray_init.address "
                    "to 'local'"
                )
        return
    if ray_init.num_cpus and nodes == 1:
        check_cpus(config, ray_init.num_cpus)
        return
    with machine():
        if nodes > 1:
            raise ConfigError(
                f"trainer.nnodes: got {nodes}, but the run would start Ray only on this node; start Ray on "
                "all nodes (docs/cluster.md), then set RAY_ADDRESS=auto"
            )
        check_cpus(config, cpus_by_ray())


def _check_default_validation(config: DictConfig, overrides: Sequence[str]) -> None:
    """Raise ``DataError`` if own training problems would be validated on a default that is missing."""
    given = {override.lstrip("+").partition("=")[0] for override in overrides}
    if "data.train_files" not in given or "data.val_files" in given:
        return
    if missing := [path for path in _listed(config.data.val_files) if not Path(path).is_file()]:
        raise DataError(
            f"data.val_files: has its default, and {missing[0]} does not exist; give your own with "
            "data.val_files=[FILE]; `seele data prepare ... --set heldout_share=0.2` makes a held-out part"
        )


def _listed(files: Any) -> list[str]:
    """Return the files of a setting that takes one or several."""
    return [files] if isinstance(files, str) else [*files]


def _read(files: Any, key: str, max_samples: int) -> list[tuple[Instance, Path]]:
    """Return a run's problems, at most ``max_samples`` (-1 for all), and the file of each."""
    try:
        problems = read_problem_files(files, max_samples)
        for instance, path in problems:
            _check_answer(instance, path)
    except DataError as error:
        raise DataError(f"data.{key}: {error}") from error
    if not problems:
        raise DataError(f"data.{key}: no problems in {files}")
    counts = Counter(instance.instance_id for instance, _ in problems)
    instance_id, count = counts.most_common(1)[0]
    if count > 1:
        raise DataError(
            f"data.{key}: instance id {instance_id!r} occurs in {count} files; ids must be unique in a run"
        )
    return problems


def _check_answer(instance: Instance, path: Path) -> None:
    try:
        check_reference(instance)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _check_curriculum(files: Any, seele: SeeleConfig, *, num_problems: int) -> None:
    check_selection(seele.selection, seed=seele.seed)
    names = columns_needed(seele.curriculum)
    rows = [row for path in _listed(files) for row in read_columns(Path(path), names)] if names else []
    num_problems = min(num_problems, len(rows))
    check_curriculum(seele.curriculum, rows, seed=seele.seed, num_problems=num_problems)


def _check_columns_of_method(files: Any, seele: SeeleConfig) -> None:
    """Refuse, or warn of, training files without a column that makes the method what it is."""
    method = METHODS[seele.method]
    page = f"docs/methods/{method.name}.md has the command that writes it"
    if method.needs_column and not _has_values(files, method.needs_column):
        raise DataError(
            f"data.train_files: no problem has a value above 0 in column {method.needs_column!r}, which "
            f"method {method.name} needs; {page}"
        )
    own = seele.hints.refresh == "epoch"
    if method.expects_column and not own and not _has_values(files, method.expects_column):
        sys.stderr.write(
            f"warning: data.train_files: no problem has a value above 0 in column {method.expects_column!r}, "
            f"so method {method.name} takes the worked solutions for the model's own; {page}, or set "
            "seele.hints.refresh=epoch\n"
        )


def _has_values(files: Any, column: str) -> bool:
    """True if a problem of the files has a value in the column that is neither 0 nor missing."""
    paths = [path for path in _listed(files) if column in pq.read_schema(path).names]
    return any(any(pq.read_table(path, columns=[column])[column].to_pylist()) for path in paths)


def _check_model(config: DictConfig, overrides: Sequence[str], seele: SeeleConfig, tokenizer: Any) -> None:
    """Raise ``ConfigError`` where the settings do not fit the model or its tokenizer."""
    path = config.actor_rollout_ref.model.path
    if seele.prompt.template == CHAT and tokenizer.chat_template is None:
        raise ConfigError(f"seele.prompt.template: 'chat', but the tokenizer of {path} has no chat template")
    check_value_head(config)
    check_model_runner(config, seele)
    _check_template_is_meant(config, overrides, tokenizer)
    own = read_model_config(config)
    _check_window(config, own)
    _check_heads(config, own)
    _check_fused_head(config, own)
    if seele.packed_updates:
        _check_packing(config, own)
    check_unit(seele.hints, tokenizer)


def _check_own_tokenizer(config: DictConfig) -> None:
    model = config.actor_rollout_ref.model
    for key in ("tokenizer_path", "custom_chat_template"):
        if model[key] is not None:
            raise ConfigError(
                f"actor_rollout_ref.model.{key}: got {model[key]!r}, but all parts of a run take the model's "
                "own tokenizer; save yours in the model's folder, and set this to null"
            )


def _load_tokenizer(config: DictConfig) -> Any:
    path = config.actor_rollout_ref.model.path
    command = command_that_makes(Path(path))
    remedy = f"run: {command}" if command else "allowed are a Hugging Face folder or a name on the hub"
    if _is_a_path(path) and not Path(path).exists():
        raise ConfigError(f"actor_rollout_ref.model.path: no folder {Path(path).absolute()}; {remedy}")
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from transformers import AutoTokenizer

    model = config.actor_rollout_ref.model
    try:
        read_model_config(config)
        tokenizer: Any = AutoTokenizer.from_pretrained(path, trust_remote_code=model.trust_remote_code)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if HF_HUB_OFFLINE and not Path(path).exists():
            reason = "no folder, and the hub is switched off by HF_HUB_OFFLINE=1, which hardware=cpu sets"
            remedy = f"run: {command or f'seele model fetch {path}'}, and pass its folder"
        raise ConfigError(
            f"actor_rollout_ref.model.path: no model and tokenizer at {str(path)!r} ({reason}); {remedy}"
        ) from error
    return tokenizer


def _check_template_is_meant(config: DictConfig, overrides: Sequence[str], tokenizer: Any) -> None:
    """Warn where a model of one's own would get the template of the default one."""
    typed = {override.lstrip("+").partition("=")[0] for override in overrides}
    is_own = (
        "actor_rollout_ref.model.path" in typed and not {"model", "recipe", "seele.prompt.template"} & typed
    )
    if not is_own or config.seele.prompt.template != "plain":
        return
    # Not above: it imports torch, which must see the run's variables.
    from seele_models.tokenizer import CHAT_TEMPLATE

    if tokenizer.chat_template not in (None, CHAT_TEMPLATE):
        sys.stderr.write(
            "warning: seele.prompt.template: plain, the default model's, but the tokenizer of "
            f"{config.actor_rollout_ref.model.path} has a chat template; set seele.prompt.template, and "
            "seele.reward.truncated_is_wrong (docs/training.md), or model=NAME for one of our models\n"
        )


def _is_a_path(model: str) -> bool:
    """True if the name of a model cannot be ``OWNER/NAME`` on the hub."""
    return model.startswith(("/", "./", "../", "models/")) or model.count("/") > 1


def _check_window(config: DictConfig, model_config: Any) -> None:
    """Raise ``ConfigError`` unless prompt and response fit the window that the engine will have, and have the
    same limits there as in the data.
    """
    path, rollout = config.actor_rollout_ref.model.path, config.actor_rollout_ref.rollout
    given, own = rollout.max_model_len, getattr(model_config, "max_position_embeddings", None)
    prompt, response = config.data.max_prompt_length, config.data.max_response_length
    for name, expected in {"prompt_length": prompt, "response_length": response}.items():
        if rollout[name] != expected:
            raise ConfigError(
                f"actor_rollout_ref.rollout.{name}: got {rollout[name]}; set data.max_{name}, "
                f"which is {expected}"
            )
    windows = {f"the window of {path}": own, "actor_rollout_ref.rollout.max_model_len": given}
    for name, window in windows.items():
        if window is not None and prompt + response > window:
            raise ConfigError(
                f"{name} ({window}) is shorter than data.max_prompt_length ({prompt}) plus "
                f"data.max_response_length ({response})"
            )
    if given is not None and own is not None and given > own:
        raise ConfigError(
            f"actor_rollout_ref.rollout.max_model_len: got {given}, but {path} has a window of {own} tokens; "
            f"allowed are at most {own}"
        )


def _check_heads(config: DictConfig, own: Any) -> None:
    """Raise ``ConfigError`` where a model's attention heads cannot be divided over GPUs."""
    path, own = config.actor_rollout_ref.model.path, own.get_text_config()
    heads = getattr(own, "num_attention_heads", None)
    if heads is None:
        return
    size = config.actor_rollout_ref.rollout.tensor_model_parallel_size
    if heads % size:
        raise ConfigError(
            f"actor_rollout_ref.rollout.tensor_model_parallel_size: got {size}, which must divide the "
            f"{heads} attention heads of {path}"
        )
    of_keys = getattr(own, "num_key_value_heads", None) or heads
    sizes = {
        f"actor_rollout_ref.{name}": sequence_parallel_size(config.actor_rollout_ref[name])
        for name in ("actor", "ref")
    }
    sizes["critic.fsdp"] = config.critic.fsdp.ulysses_sequence_parallel_size
    for name, size in sizes.items():
        if heads % size or (of_keys % size and size % of_keys):
            raise ConfigError(
                f"{name}.ulysses_sequence_parallel_size: got {size}, which must divide the {heads} attention "
                f"heads of {path}, and divide or be a multiple of its {of_keys} key-value heads"
            )


def _check_fused_head(config: DictConfig, own: Any) -> None:
    """Raise ``ConfigError`` where verl's fused kernels would meet an output layer that nothing gathers, or
    leave out what a model does to its logits: they compute only ``hidden @ lm_head.weight``.
    """
    model = config.actor_rollout_ref.model
    if not model.use_fused_kernels:
        return
    values = {name: getattr(own, name, None) for name in CHANGES_LOGITS}
    found = [f"{key}={value}" for key, value in values.items() if value not in (None, CHANGES_LOGITS[key])]
    if found or own.model_type in WITH_OUTPUT_BIAS:
        raise ConfigError(
            f"actor_rollout_ref.model.path: {model.path} has {(found or ['an output bias'])[0]}, which "
            "verl's fused kernels leave out, so another distribution would be trained; set "
            "actor_rollout_ref.model.use_fused_kernels=false"
        )
    if config.actor_rollout_ref.actor.strategy != "fsdp2":
        return
    libraries = [model.external_lib] if isinstance(model.external_lib, str) else [*(model.external_lib or [])]
    if FUSED_HEAD not in libraries and not own.tie_word_embeddings:
        raise ConfigError(
            f"actor_rollout_ref.model.external_lib: got {model.external_lib!r}; with use_fused_kernels and a "
            f"model whose output layer is not its embedding, {FUSED_HEAD!r} must be among them"
        )


def _check_packing(config: DictConfig, own: Any) -> None:
    """Raise ``ConfigError`` where ``seele_verl.packed_engine`` cannot compute a group's rows together."""
    model, actor = config.actor_rollout_ref.model, config.actor_rollout_ref.actor
    # Qwen2's configuration has a window even if the model does not use it.
    window = getattr(own, "sliding_window", None) if getattr(own, "use_sliding_window", True) else None
    layers = {*(getattr(own, "layer_types", None) or ()), "full_attention"}
    problems = {
        # Their forward pass takes one label per token (verl/models/transformers/dense_common.py, line 114),
        # but a prompt's last token predicts the first token of every response.
        "actor_rollout_ref.model.use_fused_kernels is true": model.use_fused_kernels,
        "sequences are divided over GPUs (ulysses_sequence_parallel_size)": sequence_parallel_size(actor) > 1
        or sequence_parallel_size(config.actor_rollout_ref.ref) > 1,
        "actor_rollout_ref.actor.calculate_sum_pi_squared is true": actor.calculate_sum_pi_squared,
        f"a token of {model.path} does not attend to all before it": window is not None or len(layers) > 1,
    }
    if found := [problem for problem, holds in problems.items() if holds]:
        raise ConfigError(
            f"seele.packed_updates: true, but {found[0]}; change that, or set seele.packed_updates=false"
        )
