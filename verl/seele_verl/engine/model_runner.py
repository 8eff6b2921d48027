"""Which of vLLM's two model runners a run on GPUs uses (``seele.engine.model_runner``)."""

from omegaconf import DictConfig

from seele.config import SeeleConfig
from seele.errors import ConfigError
from seele_verl.model_config import read_model_config

VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
V2_ARCHITECTURES = (
    "DeepseekV2ForCausalLM",
    "GraniteMoeForCausalLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3ForCausalLM",
)
"""Architectures that vLLM 0.24.0 runs with V2 by default (``vllm/config/vllm.py``)."""


def runner_variables(config: DictConfig) -> dict[str, str]:
    """Return the environment of the engine's processes; on a CPU vLLM chooses its runner itself."""
    if config.trainer.device != "cuda":
        return {}
    return {VARIABLE: "1" if config.seele.engine.model_runner == "v2" else "0"}


def check_model_runner(config: DictConfig, seele: SeeleConfig) -> None:
    """Raise ``ConfigError`` where ``v2`` cannot run: on a CPU, or with another architecture."""
    if seele.engine.model_runner == "v1":
        return
    if seele.credit.stop:
        raise ConfigError(
            "seele.engine.model_runner: got 'v2', but seele.credit.stop=true ends responses in vLLM's runner "
            "V1; set it to 'v1'"
        )
    if config.trainer.device == "cpu":
        raise ConfigError("seele.engine.model_runner: got 'v2', which needs a GPU; allowed here is 'v1'")
    path = config.actor_rollout_ref.model.path
    architectures = read_model_config(config).architectures or []
    if not set(architectures) & set(V2_ARCHITECTURES):
        raise ConfigError(
            f"seele.engine.model_runner: got 'v2', but vLLM does not run {', '.join(architectures)} ({path}) "
            f"with it, only {', '.join(V2_ARCHITECTURES)}; set it to 'v1'"
        )
