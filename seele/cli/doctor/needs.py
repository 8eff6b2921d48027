"""The least memory that a model's training takes: what does not fit cannot run, what fits may still not.

Only states are counted: no activations, no logits, no cache of keys and values. Bytes a parameter, as verl
0.9.1 trains with FSDP2 and ``model_dtype: fp32`` (``verl/workers/engine/fsdp/transformer_impl.py``):

    GPU, update     16   weights, gradients and Adam's two moments in single precision, over all GPUs
    GPU, rollout     2   the engine's weights in bfloat16, over the GPUs of one engine, and beside them
                    12   weights and moments, over all GPUs, unless they are offloaded
    host, loading    4   the whole model in single precision: on every rank where input and output embedding
                         are tied, else on the first rank alone, for the others begin without storage
    host, training   4   the reference model, always offloaded, and the 12 above where these are
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.cli.doctor.facts import GIB
from seele.errors import ConfigError

BYTES_OF_DTYPE = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """What the arithmetic needs to know of a model and of the settings of its preset."""

    parameters: float
    is_tied: bool
    """Whether input and output embedding are one matrix."""
    tensor_parallel: int = 1
    """GPUs of one engine."""
    is_offloaded: bool = False
    """Whether weights and optimizer wait on the host while the engine generates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Least memory in GiB: of one GPU, and of one node's host."""

    gpu_gib: float
    host_gib: float


_QWEN_1_5B = ModelSize(parameters=1.544e9, is_tied=True)
_QWEN_7B = ModelSize(parameters=7.616e9, is_tied=False)
_QWEN3_0_6B = ModelSize(parameters=0.596e9, is_tied=True)
_QWEN3_1_7B = ModelSize(parameters=1.721e9, is_tied=True)
_QWEN3_4B = ModelSize(parameters=4.022e9, is_tied=True)
_QWEN3_8B = ModelSize(parameters=8.191e9, is_tied=False, tensor_parallel=2, is_offloaded=True)
PRESETS: Mapping[str, ModelSize] = {
    "tiny": ModelSize(parameters=0.46e6, is_tied=True),
    "qwen2_5_1_5b": _QWEN_1_5B,
    "qwen2_5_math_1_5b": _QWEN_1_5B,
    "qwen2_5_math_1_5b_16k": _QWEN_1_5B,
    "qwen2_5_3b": ModelSize(parameters=3.086e9, is_tied=True),
    "llama3_2_3b": ModelSize(parameters=3.213e9, is_tied=True),
    "mathstral_7b": ModelSize(parameters=7.248e9, is_tied=False),
    "qwen2_5_7b": _QWEN_7B,
    "qwen2_5_7b_instruct": _QWEN_7B,
    "qwen2_5_math_7b": _QWEN_7B,
    "qwen2_5_math_7b_16k": _QWEN_7B,
    "qwen3_0_6b": _QWEN3_0_6B,
    "qwen3_0_6b_base": _QWEN3_0_6B,
    "qwen3_1_7b": _QWEN3_1_7B,
    "qwen3_1_7b_base": _QWEN3_1_7B,
    "qwen3_4b": _QWEN3_4B,
    "qwen3_4b_base": _QWEN3_4B,
    "qwen3_8b": _QWEN3_8B,
    "qwen3_8b_base": _QWEN3_8B,
}
"""Sizes of the published models behind ``model=NAME``, and how these presets divide and offload them."""


def least_memory(size: ModelSize, *, gpus: int) -> Needs:
    """The least memory of training ``size`` on one node with ``gpus`` GPUs, by the table above."""
    tensor_parallel = min(size.tensor_parallel, gpus)
    beside_engine = 0.0 if size.is_offloaded else 12.0 / gpus
    per_gpu = max(16.0 / gpus, 2.0 / tensor_parallel + beside_engine)
    loading = 4.0 * (gpus if size.is_tied else 1)
    training = 4.0 + (12.0 if size.is_offloaded else 0.0)
    bytes_of = size.parameters / GIB
    return Needs(gpu_gib=per_gpu * bytes_of, host_gib=max(loading, training) * bytes_of)


def find_model(name: str) -> ModelSize:
    """The preset ``name``, or the model in the folder ``name``.

    Raises:
        ConfigError: If it is neither, or the folder holds no config.json with safetensors beside it.
    """
    if name in PRESETS:
        return PRESETS[name]
    folder = Path(name)
    config, weights = folder / "config.json", sorted(folder.glob("*.safetensors"))
    if not config.is_file() or not weights:
        raise ConfigError(
            f"--model: got {name!r}; allowed are a folder with config.json and *.safetensors, or one of "
            f"{list(PRESETS)}"
        )
    settings: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    # transformers 5 writes "dtype", earlier releases "torch_dtype".
    dtype = settings.get("dtype") or settings.get("torch_dtype") or "float32"
    if dtype not in BYTES_OF_DTYPE:
        raise ConfigError(f"{config}: dtype {dtype!r}; allowed are {list(BYTES_OF_DTYPE)}")
    return ModelSize(
        parameters=sum(path.stat().st_size for path in weights) / BYTES_OF_DTYPE[dtype],
        # Qwen2 and Llama leave the key out where it is false; transformers' own default is true.
        is_tied=bool(settings.get("tie_word_embeddings", False)),
    )
