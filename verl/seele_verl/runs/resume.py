"""Decides where a run begins: from scratch, after the last checkpoint in its folder, or after a named one."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from seele.errors import ConfigError
from seele.methods import METHODS
from seele.report.run_folder import FIRST_STAGE, TRACKER
from seele_verl.checks.critic_settings import has_critic
from seele_verl.lora import check_saved_adapter
from seele_verl.runs.card import read_run_card
from seele_verl.runs.checkpoints import (
    check_not_among_later,
    damage_of,
    damaged_checkpoints,
    drop_later_checkpoints,
    drop_unfinished_checkpoints,
    last_complete_step,
    load_part,
    repair_tracker,
    step_folder,
    step_of,
)
from seele_verl.runs.log import METRICS, last_step, rows_of

MODEL = "actor_rollout_ref.model.path"


def check_checkpoint(config: DictConfig, *, supervised: bool) -> None:
    """Check the checkpoint to resume from: the named one, or the last in the run folder.

    Raises:
        ConfigError: The named checkpoint is not a complete one of such a run, or would not be used, or the
            run folder has checkpoints of another run; or the checkpoint was saved with another number of
            GPUs or another LoRA rank.
    """
    mode, path = config.trainer.resume_mode, config.trainer.resume_from_path
    run = Path(config.trainer.default_local_dir).resolve()
    models = ("",) if supervised else ("actor", "critic") if has_critic(config) else ("actor",)
    if mode != "resume_path":
        if path is not None:
            raise ConfigError(
                f"trainer.resume_from_path: has no effect with trainer.resume_mode={mode}, got {path!r}; set "
                "the mode to resume_path, or the path to null"
            )
        last = last_complete_step(run) if mode == "auto" else None
        if mode == "auto" and last is None and (damaged := damaged_checkpoints(run)):
            lacks = "; ".join(f"{folder.name}: {damage}" for folder, damage in damaged.items())
            raise ConfigError(
                f"trainer.resume_mode: no checkpoint in {run} is intact ({lacks}); start from scratch with "
                "trainer.resume_mode=disable, or use another trainer.default_local_dir"
            )
        if last is not None:
            _check_shards(config, step_folder(run, last), models)
            check_saved_adapter(config, step_folder(run, last))
        return
    parts = ("huggingface", "data_0.pt") if supervised else (*models, "data.pt")
    checkpoint = Path(str(path or "")).resolve()
    if step_of(checkpoint) is None or not all((checkpoint / part).exists() for part in parts):
        raise ConfigError(
            "trainer.resume_from_path: expected a checkpoint folder, RUN/global_step_N with "
            f"{' and '.join(parts)} in it, got {path!r}"
        )
    if damage := damage_of(checkpoint):
        raise ConfigError(f"trainer.resume_from_path: {path} is damaged: {damage}; use an earlier one")
    _check_shards(config, checkpoint, models)
    check_saved_adapter(config, checkpoint)
    if checkpoint.parent != run and last_complete_step(run) is not None:
        raise ConfigError(
            f"trainer.resume_from_path: {path} is another run's, and {run} has its own checkpoints; resume "
            "from these with trainer.resume_mode=auto, or use another trainer.default_local_dir"
        )


def _check_shards(config: DictConfig, checkpoint: Path, models: Sequence[str]) -> None:
    """Raise ``ConfigError`` if verl would not find a model's shards, whose names contain the number of
    ranks.
    """
    trainer = config.trainer
    for model in models:
        if model == "critic" and not (checkpoint / model).is_dir():
            raise ConfigError(
                f"{checkpoint}: has no critic, because it is another method's or incomplete; remove that "
                f"folder and {TRACKER} to resume from an earlier checkpoint, use another "
                "trainer.default_local_dir, or start from scratch with trainer.resume_mode=disable"
            )
        shards = (checkpoint / model).glob("model_world_size_*_rank_0.pt")
        saved = [path.name.split("_")[3] for path in shards]
        if not saved:
            raise ConfigError(
                f"{checkpoint}: has no {model or 'model'} shards (model_world_size_N_rank_0.pt), so a run "
                "would go on with the base model's weights; resume from another checkpoint, use another "
                "trainer.default_local_dir, or start from scratch with trainer.resume_mode=disable"
            )
        if str(trainer.nnodes * trainer.n_gpus_per_node) not in saved:
            raise ConfigError(
                f"trainer.n_gpus_per_node: got {trainer.n_gpus_per_node} on {trainer.nnodes} nodes, but "
                f"{checkpoint} was saved by {' and '.join(saved)} ranks; resume with that many, or merge the "
                "checkpoint (scripts/eval.sh does) and start a new run with that model"
            )


def check_same_run(config: DictConfig) -> None:
    """Check that the run folder holds this run: its contents would be continued or overwritten.

    Raises:
        ConfigError: Its steps or checkpoints have another method, seed or base model, or it holds the first
            stage of a method with two.
    """
    run = Path(config.trainer.default_local_dir).resolve()
    if not METHODS[config.seele.method].has_two_stages and (run / FIRST_STAGE / METRICS).is_file():
        raise ConfigError(
            f"{run / FIRST_STAGE}: the first stage of another method's run, whose cost would be added to "
            "this run's; remove it, or choose another trainer.default_local_dir"
        )
    settings = run / "resolved.yaml"
    if config.trainer.resume_mode == "disable" or not settings.exists():
        return
    if last_complete_step(run) is None and not any(row["step"] > 0 for row in rows_of(run)):
        return
    before = OmegaConf.load(settings)
    for key in ("seele.method", "seele.seed", MODEL):
        was, is_now = OmegaConf.select(before, key), OmegaConf.select(config, key)
        if was is None or was == is_now or (key == MODEL and _is_moved(was, is_now)):
            continue
        raise ConfigError(
            f"{key}: got {is_now!r}, but {run} holds a run with {was!r}; set it to that, "
            "use another trainer.default_local_dir, or start from scratch with trainer.resume_mode=disable"
        )


def check_not_finished(config: DictConfig) -> None:
    """Check that the run would not erase one that has finished.

    Raises:
        ConfigError: The run folder holds a finished run without a checkpoint of its last step, unless that
            is damaged or ``trainer.resume_from_path`` names an earlier one.
    """
    run, mode = Path(config.trainer.default_local_dir).resolve(), config.trainer.resume_mode
    if mode == "disable" or read_run_card(run).get("status") != "finished":
        return
    saved, steps = last_complete_step(run), last_step(run)
    goes_back_to_an_earlier = saved is not None and (mode == "resume_path" or damaged_checkpoints(run))
    if steps > (saved or 0) and not goes_back_to_an_earlier:
        lacks = "without checkpoints" if saved is None else f"whose last checkpoint is of step {saved}"
        raise ConfigError(
            f"trainer.default_local_dir: {run} holds a finished run of {steps} steps {lacks}, "
            "and its later metrics and rollouts would be removed; use another folder, or start again with "
            "trainer.resume_mode=disable"
        )


def check_validation_alone(config: DictConfig) -> None:
    """Check that ``trainer.val_only`` removes no steps.

    Raises:
        ConfigError: The run folder has steps after the checkpoint that would be validated.
    """
    run = Path(config.trainer.default_local_dir).resolve()
    if not config.trainer.get("val_only") or config.trainer.resume_mode == "disable":
        return
    if (last := last_step(run)) > (step := find_start(config) or 0):
        raise ConfigError(
            f"trainer.val_only: {run} has steps up to {last}, and those after {step}, its checkpoint, would "
            "be removed; validate after the run has ended, or evaluate the checkpoint with `seele eval`"
        )


def _is_moved(was: str, is_now: str) -> bool:
    """True if two paths or names may refer to the same model."""
    same_place = Path(was).resolve() == Path(is_now).resolve()
    return same_place or (not Path(was).exists() and Path(was).name == Path(is_now).name)


def checkpoint_to_resume(config: DictConfig, step: int) -> Path:
    """Return the folder of the checkpoint of ``step`` that the run resumes from."""
    if config.trainer.resume_mode == "resume_path":
        return Path(config.trainer.resume_from_path).resolve()
    return step_folder(Path(config.trainer.default_local_dir).resolve(), step)


def saved_line(checkpoint: Path) -> dict[str, float]:
    """Return a checkpoint's copy of its step's line in ``metrics.jsonl``."""
    line: dict[str, float] = load_part(checkpoint, "metrics", otherwise={})
    return line


def final_step(config: DictConfig, generated: Mapping[int, float], *, total_steps: int) -> int:
    """Return the step that ends the run: the last of the ``total_steps`` planned ones, or the one after the
    step that used up the token budget.

    Args:
        config: The run's configuration.
        generated: Step -> tokens that the run had generated after it.
        total_steps: Number of steps planned for the run.
    """
    budget = config.seele.max_generated_tokens
    enough = [step for step, tokens in generated.items() if budget is not None and tokens >= budget]
    return min([total_steps, *(step + 1 for step in enough)])


def is_validation_due(config: DictConfig, step: float, *, ends_at: int) -> bool:
    """Return True if the run validates after ``step``: every ``trainer.test_freq`` steps, and at its end."""
    every: int = config.trainer.test_freq
    return every > 0 and (step >= ends_at or step % every == 0)


def missed_validation(config: DictConfig, line: Mapping[str, float], *, ends_at: int) -> bool:
    """Return True if a run was killed between a checkpoint and the validation that was due after it.

    Args:
        config: The run's configuration.
        line: The line of the checkpoint's step.
        ends_at: The run's ``final_step``.
    """
    is_due = is_validation_due(config, line.get("step", 0), ends_at=ends_at)
    return is_due and not any(name.startswith("val/") for name in line)


def find_start(config: DictConfig) -> int | None:
    """Return the step after which the run resumes; None if it starts from scratch.

    Raises:
        ConfigError: The run would remove a checkpoint that holds its base model.
    """
    run, step = Path(config.trainer.default_local_dir).resolve(), None
    if config.trainer.resume_mode == "auto":
        return last_complete_step(run)
    if config.trainer.resume_mode == "resume_path":
        step = step_of(Path(config.trainer.resume_from_path).resolve())
        assert step is not None, "the path was checked"
    if goes_back(config):
        check_not_among_later(run, step, needed=Path(OmegaConf.select(config, MODEL)))
    return step


def goes_back(config: DictConfig) -> bool:
    """Return True if a start removes checkpoints: all, or those after the one of this run that it names."""
    trainer = config.trainer
    if trainer.resume_mode == "resume_path":
        return Path(trainer.resume_from_path).resolve().parent == Path(trainer.default_local_dir).resolve()
    return bool(trainer.resume_mode == "disable")


def prepare_start(config: DictConfig) -> int | None:
    """Remove later and unfinished checkpoints from the run folder, and make the tracker name the step after
    which the run resumes, so that a run that is killed before it saves resumes there again.

    Returns:
        As ``find_start``.
    """
    step, run = find_start(config), Path(config.trainer.default_local_dir).resolve()
    if config.trainer.resume_mode == "auto":
        repair_tracker(run)
        drop_unfinished_checkpoints(run, needed=Path(OmegaConf.select(config, MODEL)))
    elif goes_back(config):
        drop_later_checkpoints(run, step)
    return step
