"""LoRA: checks verl's settings, and merges an adapter into its base model (docs/lora.md)."""

import json
from pathlib import Path

from omegaconf import DictConfig

from seele.errors import ConfigError
from seele.methods import METHODS

MODEL = "actor_rollout_ref.model"
ADAPTER = "lora_adapter"
"""Folder beside the merged weights, as verl's merger names it."""


def check_lora(config: DictConfig) -> None:
    """Raise ``ConfigError`` where a run with an adapter would stop, or train something unintended."""
    model = config.actor_rollout_ref.model
    if model.lora.rank:
        raise ConfigError(
            f"{MODEL}.lora.rank: got {model.lora.rank}, but that is Megatron's; set {MODEL}.lora_rank"
        )
    if model.lora_adapter_path is not None:
        raise ConfigError(
            f"{MODEL}.lora_adapter_path: got {model.lora_adapter_path!r}, but KL would go to the model "
            f"without that adapter; merge the two into a folder, and set {MODEL}.path to it"
        )
    if config.critic.model.lora_rank:
        raise ConfigError(
            f"critic.model.lora_rank: got {config.critic.model.lora_rank}, but verl would leave the critic's "
            "value head as it was drawn; allowed is 0"
        )
    if not model.lora_rank:
        return
    if METHODS[config.seele.method].has_supervised_stage:
        raise ConfigError(
            f"{MODEL}.lora_rank: got {model.lora_rank}, but a supervised stage trains the whole model: its "
            "checkpoints must be models that the engine can load. Set it to 0, or train with method=sft "
            "first, and with another method and LoRA on its merged model"
        )
    if model.lora.merge and config.trainer.device == "cpu":
        raise ConfigError(
            f"{MODEL}.lora.merge: true, but verl would send the merged weights in bfloat16, and here engine "
            "and trainer compute in single precision; set it to false"
        )
    rollout = config.actor_rollout_ref.rollout
    if rollout.layered_summon and rollout.load_format == "dummy":
        raise ConfigError(
            "actor_rollout_ref.rollout.layered_summon: true, but then the engine must load the base model "
            "itself; set actor_rollout_ref.rollout.load_format=safetensors, as adapter=lora does"
        )


def check_saved_adapter(config: DictConfig, checkpoint: Path) -> None:
    """Raise ``ConfigError`` where a checkpoint holds an adapter of another rank or alpha than the run trains:
    another alpha would rescale the policy.
    """
    meta, model = checkpoint / "actor" / "lora_train_meta.json", config.actor_rollout_ref.model
    saved = json.loads(meta.read_text()) if meta.is_file() else {"r": 0}
    for name, key in (("lora_rank", "r"), ("lora_alpha", "lora_alpha")):
        # Without an adapter, alpha means nothing; the rank is compared first.
        if model[name] != saved.get(key, model[name]):
            raise ConfigError(
                f"{MODEL}.{name}: got {model[name]}, but {checkpoint} was saved with {saved[key]}; set it to "
                "that, use another trainer.default_local_dir, or start from scratch with "
                "trainer.resume_mode=disable"
            )


def join_adapter(folder: Path, base: str | None) -> None:
    """Merge ``FOLDER/lora_adapter`` into the base model in ``FOLDER``. The adapter stays there.

    Args:
        folder: As verl's merger leaves it: the base model's weights, and the adapter apart.
        base: Name or path of the base model, for the adapter's own configuration.
    """
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    merged = PeftModel.from_pretrained(model, str(folder / ADAPTER)).merge_and_unload(safe_merge=True)
    merged.save_pretrained(folder)
    path = folder / ADAPTER / "adapter_config.json"
    adapter = json.loads(path.read_text()) | {"base_model_name_or_path": base}
    path.write_text(json.dumps(adapter, indent=1, sort_keys=True) + "\n")
