"""Prints what torch and transformers report about this machine, as one line of JSON, for ``seele doctor``.

    python -m seele_verl.checks.machine_probe

If torch cannot be imported, the process ends with a traceback, of which the doctor shows the last line.
"""

import ctypes
import json
import os
import sys
import urllib.request
from typing import Any

# Set before huggingface_hub is imported: the probe must only find a kernel in the cache, not download it.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch

KERNEL = "kernels-community/flash-attn2"
"""The kernel that transformers 5.9.0 uses without flash-attn (``modeling_flash_attention_utils.py``)."""
HUB_TIMEOUT_S = 5
LOADING_ERRORS = (ImportError, OSError, RuntimeError, ValueError)


def probe() -> dict[str, Any]:
    """Return the fields of ``seele.cli.doctor.facts.Environment``."""
    said: dict[str, Any] = {
        "cuda_build": torch.version.cuda,
        "cuda_available": torch.cuda.is_available(),
        "devices": [],
    }
    if torch.version.cuda is None:
        return said | {"cuda_error": f"torch {torch.__version__} is built without CUDA"}
    said["driver_cuda"] = _cuda_of_driver()
    said["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    if said["cuda_available"]:
        said["devices"] = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())]
    else:
        said["cuda_error"] = _why_no_gpu()
    return said | _attention()


def _cuda_of_driver() -> str | None:
    """Return the newest CUDA version that the driver supports, which torch does not report."""
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:  # no driver
        return None
    return None if failed else f"{version.value // 1000}.{version.value % 1000 // 10}"  # 13000: CUDA 13.0


def _why_no_gpu() -> str:
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]
    return "torch.cuda.is_available() is false"


def _attention() -> dict[str, Any]:
    """Import flash attention as transformers will: flash-attn where it is installed, else the kernel."""
    from huggingface_hub.errors import LocalEntryNotFoundError
    from transformers.modeling_flash_attention_utils import lazy_import_flash_attention
    from transformers.utils import is_flash_attn_2_available

    name = "flash-attn" if is_flash_attn_2_available() else KERNEL
    try:
        lazy_import_flash_attention("flash_attention_2")
    except LOADING_ERRORS as error:
        # transformers wraps what the hub's library raises.
        if isinstance(error.__context__, LocalEntryNotFoundError):
            return {"attention_error": f"{name} is not in the cache", "hub_reachable": _hub_answers()}
        return {"attention_error": f"{name}: {str(error).splitlines()[0]}"}
    return {"attention": name}


def _hub_answers() -> bool:
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    try:
        with urllib.request.urlopen(f"{endpoint}/api/models/{KERNEL}", timeout=HUB_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe()) + "\n")
