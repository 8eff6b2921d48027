"""Completions from a Hugging Face folder with vLLM in this process, on a CPU or a GPU.

Knows prompts as text and completions as records; neither benchmarks nor grading. vLLM is imported only when
there is something to generate, after everything that a user can get wrong has been checked.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.errors import ConfigError, DataError
from seele.records import Completion, Finish
from seele.rollout.templates import Tokenizer, encode_prompt, encode_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One completion to draw."""

    question: str
    template: str
    temperature: float
    """0 is greedy."""
    seed: int
    hint: tuple[str, ...] = ()
    """Steps of the worked solution that the response goes on from. Evaluation proper has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How vLLM is started."""

    max_tokens: int
    """Longest response in tokens."""
    seed: int = 0
    tensor_parallel: int = 1
    gpu_memory_share: float = 0.9
    gpu_dtype: str = "auto"
    """vLLM's type of the weights on a GPU; on a CPU they are in single precision."""


@dataclass(frozen=True, slots=True)
class TokenPrompts:
    """Prompts as token ids, with the context they need."""

    token_ids: tuple[tuple[int, ...], ...]
    context_tokens: int
    """Longest prompt plus longest response."""


def tokenize_prompts(model: Path, requests: Sequence[Request], *, max_tokens: int) -> TokenPrompts:
    """The requests' prompts, rendered and encoded as in training.

    Raises:
        DataError: If the folder holds no configuration or tokenizer that transformers can read.
        ConfigError: If a template is unknown, or the longest prompt plus ``max_tokens`` exceeds the context.
    """
    from transformers import AutoConfig, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
        context_limit = AutoConfig.from_pretrained(model).max_position_embeddings
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{model}: not a model folder that transformers can read: {error}") from error
    token_ids = tuple(tuple(_encode(tokenizer, request)) for request in requests)
    longest = max(len(ids) for ids in token_ids)
    if longest >= context_limit:
        raise ConfigError(
            f"{model}: the longest prompt ({longest} tokens) does not fit the context of {context_limit}"
        )
    if longest + max_tokens > context_limit:
        raise ConfigError(
            f"--max-tokens {max_tokens} plus the longest prompt ({longest} tokens) exceed the model's "
            f"context of {context_limit}; choose at most {context_limit - longest}"
        )
    return TokenPrompts(token_ids, longest + max_tokens)


def _encode(tokenizer: Tokenizer, request: Request) -> list[int]:
    prompt = encode_prompt(tokenizer, request.question, request.template)
    return prompt + [token for step in encode_steps(tokenizer, request.hint) for token in step]


def generate(
    model: Path, requests: Sequence[Request], prompts: TokenPrompts, settings: EngineSettings
) -> list[Completion]:
    """One completion per request, in order. Each ends at an end-of-sequence token or at ``max_tokens``."""
    engine = start_engine(model, settings, context_tokens=prompts.context_tokens)
    return complete(engine, requests, prompts, max_tokens=settings.max_tokens)


def start_engine(model: Path, settings: EngineSettings, *, context_tokens: int) -> Any:
    """vLLM with this model, in this process."""
    # The engine core in this process: no second interpreter to start, and none left behind by a kill.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # Read by vLLM's CPU back end only: GiB of cache, and no pinning to cores, which a container may not own.
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    from vllm import LLM

    return LLM(
        model=str(model),
        max_model_len=context_tokens,
        seed=settings.seed,
        enable_prefix_caching=True,
        disable_log_stats=True,
        **_device_settings(settings),
    )


def load_weights(engine: Any, model: Path) -> None:
    """Give a running engine the weights of another model of the same architecture."""
    engine.collective_rpc("reload_weights", kwargs={"weights_path": str(model)})
    engine.reset_prefix_cache()


def complete(
    engine: Any, requests: Sequence[Request], prompts: TokenPrompts, *, max_tokens: int
) -> list[Completion]:
    """One completion per request, in order, from an engine that runs."""
    completions: dict[int, Completion] = {}
    # vLLM's CPU sampler ignores the seeds of all requests of a batch in which one has none, and a greedy one
    # has none (vllm/v1/sample/ops/topk_topp_sampler.py, forward_cpu).
    for is_greedy in (True, False):
        chosen = [index for index, request in enumerate(requests) if (request.temperature == 0) is is_greedy]
        outputs = engine.generate(
            [{"prompt_token_ids": list(prompts.token_ids[index])} for index in chosen],
            [_sampling_params(requests[index], max_tokens=max_tokens) for index in chosen],
            use_tqdm=sys.stderr.isatty(),
        )
        for index, output in zip(chosen, outputs, strict=True):
            completions[index] = _to_completion(output.outputs[0])
    return [completions[index] for index in range(len(requests))]


def _sampling_params(request: Request, *, max_tokens: int) -> Any:
    from vllm import SamplingParams

    seed = request.seed if request.temperature > 0 else None
    return SamplingParams(temperature=request.temperature, max_tokens=max_tokens, seed=seed)


def _to_completion(output: Any) -> Completion:
    return Completion(
        text=output.text,
        token_ids=tuple(output.token_ids),
        log_probs=(),
        finish=Finish.STOP if output.finish_reason == "stop" else Finish.LENGTH,
    )


def _device_settings(settings: EngineSettings) -> dict[str, Any]:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        # Compiling costs more than it saves on a model small enough for a CPU; many CPUs emulate bfloat16.
        # A prefill in pieces makes vLLM rewind a seeded request's generator, which torch cannot do on a CPU.
        return {"dtype": "float32", "enforce_eager": True, "enable_chunked_prefill": False}
    return {
        "tensor_parallel_size": settings.tensor_parallel,
        "gpu_memory_utilization": settings.gpu_memory_share,
        "dtype": settings.gpu_dtype,
    }
