"""Measure vLLM alone, in one process, on the reference job's requests: the most a rollout path can reach.

    python benchmarks/engine.py     # its last line: tokens per second by kind of request

``seeded``: one request per rollout, with our rollout's seed. ``n samples``: one request per problem, without
seeds. Settings are those of hardware/cpu.yaml. vLLM loads our plug-in, as in a run, so seeded requests are
sampled at once (``seele_verl/engine/seeded_sampling.py``).
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROMPTS, ROLLOUTS, MAX_TOKENS = 32, 32, 88

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}


def requests(model: Path, problems: Path, step: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the prompt and seeds of each problem in a training step, as ``seele_verl`` requests them."""
    from transformers import AutoTokenizer

    from seele.curriculum import UniformCurriculum
    from seele.data.storage.schema import read_problems
    from seele.rollout.sampling import rollout_seed
    from seele.rollout.templates import encode_prompt

    tokenizer, instances = AutoTokenizer.from_pretrained(model), read_problems(problems)
    curriculum = UniformCurriculum(len(instances), seed=0)
    *_, problems_of_step = (curriculum.draw(PROMPTS) for _ in range(step))
    for problem in problems_of_step:
        instance = instances[problem]
        seeds = [rollout_seed(0, step, instance.instance_id, 0, rollout) for rollout in range(ROLLOUTS)]
        yield encode_prompt(tokenizer, instance.question, "plain"), seeds


def main() -> None:
    """Generate ``--steps`` steps of each kind of request, and one of each before them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("models/chains"))
    parser.add_argument("--problems", type=Path, default=Path("data/prepared/chains/train.parquet"))
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    import seele_verl.cpu.plugin as cpu

    cpu.answer_for_vllm_version()
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    engine = LLM(
        str(options.model.resolve()),
        dtype="float32",
        max_model_len=176,
        max_num_batched_tokens=4096,
        max_num_seqs=512,
        enforce_eager=True,
        enable_chunked_prefill=False,
        block_size=16,
        distributed_executor_backend="uni",
    )
    common: dict[str, Any] = {
        "temperature": 1.0,
        "max_tokens": MAX_TOKENS,
        "logprobs": 0,
        "detokenize": False,
    }
    speeds: dict[str, list[float]] = {"seeded": [], "n samples": []}
    for step in range(1, options.steps + 2):
        problems = list(requests(options.model, options.problems, step))
        batches = {
            "seeded": [
                (ids, SamplingParams(**common, seed=seed)) for ids, seeds in problems for seed in seeds
            ],
            "n samples": [(ids, SamplingParams(**common, n=ROLLOUTS)) for ids, _ in problems],
        }
        for kind, batch in batches.items():
            prompts = [TokensPrompt(prompt_token_ids=ids) for ids, _ in batch]
            start = time.perf_counter()
            outputs = engine.generate(prompts, [params for _, params in batch], use_tqdm=False)
            seconds = time.perf_counter() - start
            tokens = sum(len(sample.token_ids) for output in outputs for sample in output.outputs)
            speeds[kind].append(tokens / seconds)
    medians = {kind: statistics.median(values[1:]) for kind, values in speeds.items()}
    sys.stdout.write(json.dumps(medians) + "\n")


if __name__ == "__main__":
    main()
