"""A model's files, and responses from them with vLLM in this process, on a CPU or a GPU.

The files are in a Hugging Face folder, or on the hub, from which they are fetched once. This module handles
prompts as token ids and responses as records; it knows nothing of benchmarks or grading. vLLM is imported
only when there is something to generate, after all checks of the user's input.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.data.storage.files import weight_files
from seele.errors import DataError, DependencyError
from seele.host import check_bfloat16
from seele.records import Finish
from seele_eval.prompts import Prompt, Request, Response, Responses, encode_requests, longest_prompt

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")

# Files that transformers and vLLM read; repositories hold many others.
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
_OLDER_WEIGHTS = ["pytorch_model*.bin"]


def find_model(name: str, *, revision: str | None = None) -> Path:
    """The folder of the model called ``name``.

    Args:
        name: A folder, or ``owner/name`` on the Hugging Face hub.
        revision: Commit, tag or branch on the hub; the main branch when not given.

    Raises:
        DataError: If neither a folder nor a model on the hub has this name.
        DependencyError: If the hub is needed and ``huggingface_hub`` is not installed.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    if not _HUB_NAME.fullmatch(name):
        raise DataError(
            f"{name}: no such model folder; expected a Hugging Face folder with config.json and weights, "
            "or a name on the hub such as Qwen/Qwen2.5-1.5B"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise DependencyError(
            f"{name} from the hub needs 'huggingface_hub'; run: pip install huggingface_hub"
        ) from error
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=_OLDER_WEIGHTS))
        return folder
    except (OSError, ValueError) as error:
        raise DataError(
            f"{name}: no such folder, and the Hugging Face hub did not provide it: {error}. Gated models "
            "need HF_TOKEN; without a network, name a folder"
        ) from error


def find_weights(model: Path) -> list[Path]:
    """The weight files of a Hugging Face folder, sorted by name.

    Raises:
        DataError: If its configuration or its weights are missing.
    """
    if not (model / "config.json").is_file():
        raise DataError(
            f"{model}: holds no config.json; an FSDP checkpoint must be merged first (scripts/eval.sh)"
        )
    weights = weight_files(model)
    if not weights:
        raise DataError(f"{model}: holds no weights (*.safetensors or *.bin)")
    return weights


Stamps = Mapping[Path, tuple[int, ...] | None]
"""Inode, size and time of files, which differ once a file is replaced; None for a missing one."""


def stamp(files: Iterable[Path]) -> Stamps:
    """Return the stamps of these files now."""
    stamps: dict[Path, tuple[int, ...] | None] = {}
    for file in files:
        stamps[file] = None
        with contextlib.suppress(FileNotFoundError):
            status = file.stat()
            stamps[file] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of sampling and of vLLM."""

    max_tokens: int
    """Longest response in tokens."""
    top_p: float = 1.0
    seed: int = 0
    tensor_parallel: int = 1
    """GPUs per copy of the model."""
    gpu_memory_share: float = 0.9
    dtype: str = "auto"
    """vLLM's data type for the weights; ``auto`` is single precision on a CPU."""


def complete_here(model: Path, requests: Sequence[Request], settings: EngineSettings) -> Responses:
    """Draw one response per request with vLLM in this process.

    Raises:
        SeeleError: As ``encode_requests``, before vLLM is loaded.
    """
    return generate(model, encode_requests(model, requests, max_tokens=settings.max_tokens), settings)


def generate(model: Path, prompts: Sequence[Prompt], settings: EngineSettings) -> Responses:
    """Draw one response per prompt from an engine that is started for them."""
    engine = start_engine(model, settings, context_tokens=longest_prompt(prompts) + settings.max_tokens)
    yield from complete(engine, prompts, settings)


def complete(engine: Any, prompts: Sequence[Prompt], settings: EngineSettings) -> Responses:
    """Draw one response per prompt. Each ends at an end-of-sequence token, a stop string or ``max_tokens``.

    Greedy prompts come first, in batches of their own: vLLM's CPU sampler ignores all seeds of a batch in
    which one request has none, and greedy requests have none
    (vllm/v1/sample/ops/topk_topp_sampler.py, forward_cpu).
    """
    for is_greedy in (True, False):
        for index, prompt in enumerate(prompts):
            if (prompt.temperature == 0) is is_greedy:
                params = _sampling_params(prompt, settings)
                engine.add_request(str(index), {"prompt_token_ids": list(prompt.token_ids)}, params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    yield int(output.request_id), _to_response(output.outputs[0])


def start_engine(model: Path, settings: EngineSettings, *, context_tokens: int) -> Any:
    """Start vLLM with this model in this process."""
    # The engine core runs in this process: no second interpreter starts, and a kill leaves none behind.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # Only vLLM's CPU back end reads these: GiB of cache, and no pinning to cores that a container may lack.
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    # Seeds work as in training (docs/rollout.md).
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
    # FlashInfer's sampler does not take seeds, and its compilation at the start needs nvcc.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    from vllm import EngineArgs, LLMEngine
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext

    # On GPUs the usage context sets a batch's number of sequences and tokens: many, as in vLLM's own LLM.
    context = UsageContext.ENGINE_CONTEXT if current_platform.is_cpu() else UsageContext.LLM_CLASS
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=str(model),
            # A folder may hold Mistral's own files beside Hugging Face's.
            config_format="hf",
            tokenizer_mode="hf",
            max_model_len=context_tokens,
            seed=settings.seed,
            enable_prefix_caching=True,
            disable_log_stats=True,
            use_tqdm_on_load=False,
            **_device_settings(settings),
        ),
        usage_context=context,
    )


def load_weights(engine: Any, model: Path) -> None:
    """Give a running engine the weights of another model of the same architecture."""
    engine.collective_rpc("reload_weights", kwargs={"weights_path": str(model)})
    engine.reset_prefix_cache()


def _sampling_params(prompt: Prompt, settings: EngineSettings) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=prompt.temperature,
        top_p=settings.top_p,
        max_tokens=settings.max_tokens,
        seed=prompt.seed if prompt.temperature > 0 else None,
        stop=list(prompt.stop),
        # Marks such as <|im_end|> are special tokens, which vLLM would leave out of the text
        # that it searches.
        skip_special_tokens=not prompt.stop,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _to_response(output: Any) -> Response:
    return Response(
        text=output.text,
        num_tokens=len(output.token_ids),
        finish=Finish.STOP if output.finish_reason == "stop" else Finish.LENGTH,
    )


def _device_settings(settings: EngineSettings) -> dict[str, Any]:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        dtype = "float32" if settings.dtype == "auto" else settings.dtype
        if dtype == "bfloat16":
            check_bfloat16("--dtype: got 'bfloat16'")
        # On a model small enough for a CPU, compiling costs more than it saves.
        # Chunked prefill makes vLLM rewind a seeded request's generator, which torch cannot do on a CPU.
        return {"dtype": dtype, "enforce_eager": True, "enable_chunked_prefill": False}
    return {
        "tensor_parallel_size": settings.tensor_parallel,
        "gpu_memory_utilization": settings.gpu_memory_share,
        "dtype": settings.dtype,
    }
