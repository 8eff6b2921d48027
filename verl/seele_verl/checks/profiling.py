"""What must hold of verl's profiler settings (docs/debugging.md)."""

import shutil

from omegaconf import DictConfig

from seele.errors import ConfigError

TOOLS = ("torch", "torch_memory", "nsys")


def check_profiler(config: DictConfig, *, supervised: bool) -> None:
    """Raise ``ConfigError`` where what was asked for would not be profiled, or the tool is missing."""
    tool, steps = config.global_profiler.tool, config.global_profiler.steps
    model = config.actor_rollout_ref
    enabled = [
        part for part in (model.actor, model.ref, model.rollout, config.critic) if part.profiler.enable
    ]
    if tool is None and not steps and not enabled:
        return
    if supervised:
        raise ConfigError(
            f"global_profiler: got tool {tool} and steps {steps}, but supervised training is not profiled; "
            "leave both null"
        )
    if tool not in TOOLS:
        raise ConfigError(f"global_profiler.tool: got {tool!r}; allowed are {list(TOOLS)}")
    if not steps:
        raise ConfigError(
            f"global_profiler.steps: got {steps}, so that no step is profiled; name some, such as [3]"
        )
    if not enabled:
        raise ConfigError(
            f"global_profiler.tool: {tool}, but no part is profiled; set "
            "actor_rollout_ref.actor.profiler.enable=true (docs/debugging.md lists the others)"
        )
    if tool == "torch_memory" and config.trainer.device == "cpu":
        raise ConfigError(
            "global_profiler.tool: torch_memory records the memory of GPUs; allowed with hardware=cpu is "
            "'torch'"
        )
    if tool == "nsys" and (config.trainer.device == "cpu" or shutil.which("nsys") is None):
        raise ConfigError(
            "global_profiler.tool: nsys is Nsight Systems, for GPUs, and must be on the PATH of every node; "
            "install it, or set the tool to torch"
        )
