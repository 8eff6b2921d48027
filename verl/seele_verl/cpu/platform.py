"""A verl platform for the CPU.

verl 0.9.1 ships platforms for CUDA, ROCm and NPU (``verl/plugin/platform``) and asks the platform for
everything that depends on the device. Source of the contract:
``verl.plugin.platform.platform_base.PlatformBase``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase

DEVICE = "cpu"


def cpu_device_module() -> ModuleType:
    """Return a module with the part of ``torch.cuda``'s interface that verl calls, for the host's memory and
    generator.
    """
    module = ModuleType("torch_cpu_device")

    def nothing(*_args: Any, **_kwargs: Any) -> None: ...

    def zero_bytes(*_args: Any, **_kwargs: Any) -> int:
        return 0

    def mem_get_info(*_args: Any, **_kwargs: Any) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"):
        setattr(module, name, nothing)
    for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
        setattr(module, name, zero_bytes)
    functions: dict[str, Any] = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "mem_get_info": mem_get_info,
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "get_device_name": lambda *_: DEVICE,
    }
    for name, function in functions.items():
        setattr(module, name, function)
    return module


class CpuPlatform(PlatformBase):
    """verl's platform contract on the host. Ray is told of logical GPUs, one per FSDP rank, so that
    placement works.
    """

    _device_module = cpu_device_module()

    @property
    def device_name(self) -> str:
        return DEVICE

    @property
    def vendor_name(self) -> str:
        return DEVICE

    @property
    def device_module(self) -> ModuleType:
        return self._device_module

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:  # type: ignore[override]
        # verl moves batches with ``.to(get_device_id())``; an index would mean an accelerator to torch.
        return DEVICE

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        # The logical GPUs that ``ray.init(num_gpus=...)`` declares in hardware/cpu.yaml.
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        # Weights then travel from trainer to engine through shared memory.
        return False

    def cudart(self) -> Any:
        return None
