"""Least memory for training a model: one that does not fit cannot run; one that fits may still fail.

Only states count; ``seele.maths.memory`` adds activations, logits and the KV cache for a whole configuration
(``python -m seele_verl.memory``). Bytes per parameter, as verl 0.9.1 trains with FSDP2 and
``model_dtype: fp32`` (``verl/workers/engine/fsdp/transformer_impl.py``):

    GPU, update     16   weights, gradients and Adam's two moments in single precision, over all GPUs
    GPU, rollout     2   the engine's weights in bfloat16, plus
                    12   weights and moments, over all GPUs
    host, loading    4   the whole model in single precision: on every rank if input and output embeddings
                         are tied, else on the first rank only, because the others start without storage
    host, training   4   the reference model, always offloaded

With FSDP2's ``offload_policy``, the host also holds the update's 16 bytes, and the GPU none of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.cli.doctor.facts import GIB
from seele.data.storage.files import distinct_weight_files
from seele.errors import ConfigError
from seele.maths.model_shapes import SHAPES, SHAPES_OF_PRESETS

BYTES_OF_DTYPE = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Properties of a model that the arithmetic needs."""

    parameters: float
    is_tied: bool
    """True if input and output embeddings are one matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Least memory, in GiB, of one GPU and of one node's host."""

    gpu_gib: float
    host_gib: float


PRESETS: Mapping[str, ModelSize] = {
    "tiny": ModelSize(parameters=0.46e6, is_tied=True),
    "smollm2_135m": ModelSize(parameters=134.5e6, is_tied=True),
    **{
        preset: ModelSize(parameters=SHAPES[name].parameters, is_tied=SHAPES[name].tied)
        for preset, name in SHAPES_OF_PRESETS.items()
    },
}
"""Sizes of the published models behind ``model=NAME``."""


def least_memory(size: ModelSize, *, gpus: int, nodes: int = 1, offload_policy: bool = False) -> Needs:
    """Return the least memory to train ``size`` on ``nodes`` with ``gpus`` GPUs each, by the table above."""
    shards = gpus * nodes
    per_gpu = 2.0 if offload_policy else max(16.0 / shards, 2.0 + 12.0 / shards)
    loading = 4.0 * (gpus if size.is_tied else 1)
    training = 4.0 + (16.0 if offload_policy else 0.0)
    bytes_of = size.parameters / GIB
    return Needs(gpu_gib=per_gpu * bytes_of, host_gib=max(loading, training) * bytes_of)


def find_model(name: str) -> ModelSize:
    """Return the size of the preset ``name``, or of the model in the folder ``name``.

    Raises:
        ConfigError: If it is neither, or the folder lacks config.json or weights.
    """
    if name in PRESETS:
        return PRESETS[name]
    folder = Path(name)
    config = folder / "config.json"
    weights = distinct_weight_files(folder)
    if not config.is_file() or not weights:
        raise ConfigError(
            f"--model: got {name!r}; allowed are a folder with config.json and *.safetensors (else *.bin), "
            f"or one of {list(PRESETS)}"
        )
    try:
        settings: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"--model: {config} is not JSON ({error}); copy the model again") from error
    # transformers 5 writes "dtype", earlier releases "torch_dtype".
    dtype = settings.get("dtype") or settings.get("torch_dtype") or "float32"
    if dtype not in BYTES_OF_DTYPE:
        raise ConfigError(f"{config}: dtype {dtype!r}; allowed are {list(BYTES_OF_DTYPE)}")
    return ModelSize(
        parameters=sum(path.stat().st_size for path in weights) / BYTES_OF_DTYPE[dtype],
        # Qwen2 and Llama leave the key out where it is false; transformers' own default is true.
        is_tied=bool(settings.get("tie_word_embeddings", False)),
    )
