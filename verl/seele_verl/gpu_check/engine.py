"""vLLM as verl uses it: started with dummy weights, put to sleep, sent new weights, woken, asked to generate.

The log-probabilities that it then gives its tokens must match those of transformers with the sent weights;
before the weights are sent, they must not.
"""

import asyncio
import concurrent.futures
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from seele_verl.gpu_check.agreement import (
    CheckFailed,
    compare,
    distance,
    in_precision,
    make_tiny_model,
    save_tiny_model,
    token_log_probs,
)

PROMPT_LENGTHS = (3, 8, 17, 40)
NEW_TOKENS = 32
CACHE_BYTES = 2**28
BUCKET_MIB = 8
MEMORY_SHARE = 0.1
"""Share of each GPU's memory that must be free; the engine takes less, because its cache size is given."""
DUMMY_DISTANCE = 0.1
"""Log-probabilities of dummy weights must be further off than this, or later agreement proves nothing."""

Generated = list[tuple[list[int], int, list[float]]]
"""Prompt and generated tokens, length of the prompt, log-probabilities of the generated tokens."""


def check(device: str, *, tensor_parallel: int = 1, runner: int = 0) -> str:
    """Check one engine over ``tensor_parallel`` GPUs.

    Args:
        device: ``cuda`` or ``cpu``. On a CPU the engine runs in single precision and does not sleep.
        tensor_parallel: Number of the engine's GPUs.
        runner: vLLM's model runner, 0 for the first, 1 for "V2".
    """
    on_gpu = device == "cuda"
    # Set before vLLM is imported. Trainer and engine meet on a socket that verl names after the job.
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(runner)
    os.environ["VERL_RAY_JOB_ID"] = f"doctor{os.getpid()}"
    os.environ["VERL_REPLICA_RANK"] = "0"
    if on_gpu:
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # as in verl's Ray actors
    else:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # V2 does not run Qwen2 (``seele_verl.engine.model_runner``).
    model = make_tiny_model(0, model_type="qwen3" if runner else "qwen2")
    if not on_gpu:
        model = in_precision(model, torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        save_tiny_model(model, Path(folder))
        engine = _start(folder, on_gpu=on_gpu, tensor_parallel=tensor_parallel)
    model = model.to(device)
    before = _generate(engine)
    if (off := distance(_engines(before), _trainers(model, before)).mean) < DUMMY_DISTANCE:
        raise CheckFailed(
            f"even with dummy weights, log-probabilities are only {off:.2g} off: nothing is tested"
        )
    said = []
    if on_gpu:
        said.append(_sleep(engine, tensor_parallel))
        engine.wake_up(tags=["weights"])
    _send_weights(engine, model, on_gpu=on_gpu)
    if on_gpu:
        engine.wake_up(tags=["kv_cache"])
    engine.reset_prefix_cache()
    after = _generate(engine)
    plain = _trainers(model, after)
    single = _trainers(in_precision(model, torch.float32), after)
    said.append(compare("log-probabilities", _engines(after), plain, single))
    return f"{'; '.join(said)}; {off:.2g} with dummy weights"


def _start(folder: str, *, on_gpu: bool, tensor_parallel: int) -> Any:
    """Return a small engine with the arguments of verl's own (``vllm_async_server.py: launch_server``)."""
    from vllm import LLM

    arguments: dict[str, Any] = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 2048}
    if on_gpu:
        arguments |= {
            "dtype": "bfloat16",
            "distributed_executor_backend": "mp",
            "enable_sleep_mode": True,
            "enable_chunked_prefill": True,
        }
    else:  # as in hardware/cpu.yaml
        arguments |= {
            "dtype": "float32",
            "distributed_executor_backend": "uni",
            "enforce_eager": True,
            "enable_chunked_prefill": False,
            "block_size": 16,
        }
    engine = LLM(
        model=folder,
        load_format="dummy",
        worker_extension_cls="verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension",
        tensor_parallel_size=tensor_parallel,
        enable_prefix_caching=True,
        logprobs_mode="processed_logprobs",
        gpu_memory_utilization=MEMORY_SHARE,
        kv_cache_memory_bytes=CACHE_BYTES,
        seed=0,
        **arguments,
    )
    vocabulary = engine.model_config.get_vocab_size()
    engine.collective_rpc("monkey_patch_model", kwargs={"vocab_size": vocabulary})
    return engine


def _sleep(engine: Any, tensor_parallel: int) -> str:
    """Put the engine to sleep as verl does, and check that it frees memory on each of its GPUs."""
    free = [torch.cuda.mem_get_info(rank)[0] for rank in range(tensor_parallel)]
    engine.sleep(level=2)
    freed = min(torch.cuda.mem_get_info(rank)[0] - before for rank, before in enumerate(free))
    if freed < 0.9 * CACHE_BYTES:
        raise CheckFailed(
            f"asleep, the engine freed {freed / 2**20:.0f} MiB of a GPU, less than its cache of "
            f"{CACHE_BYTES / 2**20:.0f} MiB"
        )
    return f"asleep it frees {freed / 2**20:.0f} MiB"


def _send_weights(engine: Any, model: Any, *, on_gpu: bool) -> None:
    """Send the weights through verl's buckets to each engine rank, from a thread on the same GPU."""
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    def send(rank: int, handle: str) -> None:
        if on_gpu:
            torch.cuda.set_device(rank)
        device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
        weights = ((name, weight.to(device)) for name, weight in model.state_dict().items())
        sender = BucketedWeightSender(handle, bucket_size_mb=BUCKET_MIB, use_shm=not on_gpu)
        asyncio.run(sender.async_send_weights(weights))

    handles = engine.collective_rpc("_get_zmq_handle")
    # Not in a with-block, which would wait for the other end of a transfer after one end failed.
    pool = concurrent.futures.ThreadPoolExecutor()
    work = [pool.submit(engine.collective_rpc, "update_weights_from_ipc", kwargs={"use_shm": not on_gpu})]
    work += [pool.submit(send, rank, handle) for rank, handle in enumerate(handles)]
    done, _ = concurrent.futures.wait(work, return_when=concurrent.futures.FIRST_EXCEPTION)
    for each in done:
        each.result()


def _generate(engine: Any) -> Generated:
    from vllm import SamplingParams

    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 256, (n,), generator=generator).tolist() for n in PROMPT_LENGTHS]
    outputs = engine.generate(
        [{"prompt_token_ids": ids} for ids in prompts],
        [
            SamplingParams(temperature=1.0, max_tokens=NEW_TOKENS, logprobs=0, ignore_eos=True, seed=seed)
            for seed in range(len(prompts))
        ],
        use_tqdm=False,
    )
    generated = []
    for ids, output in zip(prompts, outputs, strict=True):
        answer = output.outputs[0]
        tokens = list(answer.token_ids)
        log_probs = [at[token].logprob for token, at in zip(tokens, answer.logprobs, strict=True)]
        generated.append((ids + tokens, len(ids), log_probs))
    return generated


def _engines(generated: Generated) -> torch.Tensor:
    """Return (all generated tokens,) log-probabilities from the engine."""
    return torch.tensor([log_prob for _, _, log_probs in generated for log_prob in log_probs])


@torch.no_grad()
def _trainers(model: Any, generated: Generated) -> torch.Tensor:
    """Return (all generated tokens,) log-probabilities from ``model``, independently of the engine."""
    rows = [
        token_log_probs(model, torch.tensor(ids, device=model.device))[prompt - 1 :]
        for ids, prompt, _ in generated
    ]
    return torch.cat(rows).cpu()
