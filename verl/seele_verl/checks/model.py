"""Does the model fit the settings? Checked from its configuration and its tokenizer; no weights are read."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seele.config import SeeleConfig
from seele.data.steps.hint_units import check_unit
from seele.errors import ConfigError
from seele.rollout.templates import CHAT
from seele_models.command import command_that_makes
from seele_verl.checks.critic_settings import check_value_head
from seele_verl.checks.verl_settings import FUSED_HEAD
from seele_verl.engine.model_runner import check_model_runner
from seele_verl.model_config import read_model_config
from seele_verl.settings import sequence_parallel_size

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
WITH_OUTPUT_BIAS = ("codegen", "ctrl", "gptj", "phi")
"""Types of models in transformers whose output layer always has a bias."""


def check_own_tokenizer(config: DictConfig) -> None:
    """Raise ``ConfigError`` if a part would take another tokenizer than the model's."""
    model = config.actor_rollout_ref.model
    for key in ("tokenizer_path", "custom_chat_template"):
        if model[key] is not None:
            raise ConfigError(
                f"actor_rollout_ref.model.{key}: got {model[key]!r}, but all parts of a run take the model's "
                "own tokenizer; save yours in the model's folder, and set this to null"
            )


def load_tokenizer(config: DictConfig) -> Any:
    """Return the model's tokenizer; ``ConfigError`` if there is no model, or none that transformers loads."""
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


def check_model(config: DictConfig, overrides: Sequence[str], seele: SeeleConfig, tokenizer: Any) -> None:
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


def _is_a_path(model: str) -> bool:
    """True if the name of a model cannot be ``OWNER/NAME`` on the hub."""
    return model.startswith(("/", "./", "../", "models/")) or model.count("/") > 1
