"""Time an update by verl's engine and by ours, which computes a prompt and its hints once per group, in turn;
then a pass for log-probabilities; then our update when it reuses freed memory (``cpu/resources.py``).

    python benchmarks/packed_updates.py                    # 1 problem x 8 rollouts
    python benchmarks/packed_updates.py --rollouts 16

The model has SmolLM2-135M's shape and random weights. Groups are like GSM8K's: a prompt of 120 tokens, nested
hints of up to 60, none in one of four rollouts, responses of 60 to 120 tokens. The loss is SEELE's, with
imitation and entropy; an update ends with Adam's step, at a learning rate of 0, so that every turn has the
same weights. Gradients are compared before the first turn. Times are CPU times.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from seele.maths.tables import markdown_table
from seele_verl.cpu import ENVIRONMENT

SHAPE = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}
PROMPT_TOKENS, MOST_HINT_TOKENS, RESPONSE_TOKENS = 120, 60, (60, 120)


def batch_of(options: argparse.Namespace) -> Any:
    """The rows of an update, as the trainer sends them."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    from seele.losses.imitation import HINT_WEIGHTS, hint_token_weights

    draw = random.Random(options.seed)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(SHAPE["vocab_size"]) for _ in range(count)]

    columns: dict[str, list[torch.Tensor]] = {}
    for _ in range(options.problems):
        prompt, solution = tokens(PROMPT_TOKENS), tokens(MOST_HINT_TOKENS)
        for rollout in range(options.rollouts):
            hint = solution[: draw.randint(1, MOST_HINT_TOKENS) if rollout % 4 else 0]
            response = tokens(draw.randint(*RESPONSE_TOKENS))
            weights = hint_token_weights(
                len(prompt), len(hint), len(response), share=1.0, form="logprob_mean"
            )
            row = {
                "prompts": torch.tensor(prompt + hint),
                "responses": torch.tensor(response),
                "input_ids": torch.tensor(prompt + hint + response),
                "position_ids": torch.arange(len(prompt + hint + response)),
                "response_mask": torch.ones(len(response)),
                "loss_mask": torch.ones(len(response)),
                # about those of random weights
                "old_log_probs": torch.full((len(response),), -10.8),
                "ref_log_prob": torch.full((len(response),), -10.8),
                "advantages": torch.full((len(response),), 1.0 if rollout % 2 else -1.0),
                HINT_WEIGHTS: torch.tensor(weights),
            }
            for name, values in row.items():
                columns.setdefault(name, []).append(values)
    nested = {
        name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()
    }
    batch = TensorDict(nested, batch_size=[options.problems * options.rollouts])
    tu.assign_non_tensor(
        batch,
        use_dynamic_bsz=True,
        max_token_len_per_gpu=options.tokens,
        use_remove_padding=False,
        temperature=1.0,
        calculate_entropy=True,
        global_batch_size=len(batch),
    )
    return batch


def build(engine_class: type, folder: str) -> Any:
    """Return an engine as in ``hardware=cpu``."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig

    model = HFModelConfig(
        path=folder,
        load_tokenizer=False,
        use_remove_padding=False,
        enable_gradient_checkpointing=False,
        override_config={"attn_implementation": "sdpa"},
    )
    precision = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    settings = FSDPEngineConfig(
        strategy="fsdp2",
        model_dtype="fp32",
        dtype="float32",
        mixed_precision=precision,
        use_torch_compile=False,
    )
    engine = engine_class(model, settings, FSDPOptimizerConfig(lr=0.0), CheckpointConfig())
    engine.initialize()
    return engine


def gradients(engine: Any, batch: Any, loss: Any) -> dict[str, Any]:
    """Return an update's gradients by parameter."""
    with engine.train_mode():
        engine.forward_backward_batch(batch.copy(), loss)
        return {
            name: parameter.grad.full_tensor().clone() for name, parameter in engine.module.named_parameters()
        }


def update(engine: Any, batch: Any, loss: Any) -> None:
    with engine.train_mode():
        engine.train_batch(batch.copy(), loss)


def log_probs(engine: Any, batch: Any, _loss: Any) -> None:
    with engine.eval_mode():
        engine.infer_batch(batch.copy())


def seconds(call: Callable[..., None], *arguments: Any) -> float:
    """Return CPU seconds, on which other processes of the machine have little effect."""
    begin = time.process_time()
    call(*arguments)
    return time.process_time() - begin


def main() -> None:
    """Print what is computed, how far gradients differ, and both times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=1)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2048, help="at most in a micro-batch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    from seele.methods.loss_terms import LossTerms
    from seele_verl.cpu.resources import keep_freed_memory
    from seele_verl.losses import seele_loss
    from seele_verl.packed_engine import PackedEngine
    from seele_verl.packed_rows import pack_rows
    from seele_verl.settings import read_settings
    from seele_verl.train import compose

    torch.set_num_threads(options.threads)
    config = compose(["method=seele", "hardware=cpu", "job=tiny"])
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    loss = partial(seele_loss, config=actor, terms=LossTerms(read_settings(config)))
    batch = batch_of(options)
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        torch.manual_seed(options.seed)
        LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(folder)
        engines = [build(each, folder) for each in (FSDPEngineWithLMHead, PackedEngine)]
        verls, packed = (gradients(each, batch, loss) for each in engines)
        largest = max(gradient.abs().max().item() for gradient in verls.values())
        apart = max((packed[name] - gradient).abs().max().item() for name, gradient in verls.items())
        del verls, packed
        times = {
            name: [
                tuple(seconds(call, engine, batch, loss) for engine in engines) for _ in range(options.turns)
            ]
            for name, call in (("update", update), ("log-probabilities", log_probs))
        }
        keep_freed_memory()
        # The first turn allocates the memory.
        reusing = [seconds(update, engines[1], batch, loss) for _ in range(1 + options.turns)][1:]
        torch.distributed.destroy_process_group()
    lengths, prompts = (batch[name].offsets().diff().tolist() for name in ("input_ids", "prompts"))
    everything = torch.ones(sum(lengths), dtype=torch.bool)
    packing = pack_rows(batch["input_ids"].values().tolist(), lengths, prompts, everything)
    rows = [
        ["tokens of the rows", f"{sum(lengths)}"],
        ["tokens computed", f"{len(packing.source_C)}"],
        ["largest gradient", f"{largest:.3g}"],
        ["largest difference of a gradient", f"{apart:.1e}"],
    ]
    for name, pairs in times.items():
        theirs, ours = map(statistics.median, zip(*pairs, strict=True))
        ratios = sorted(slow / fast for slow, fast in pairs)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        rows += [
            [f"{name}, verl's engine, s (median)", f"{theirs:.1f}"],
            [f"{name}, packed, s (median)", f"{ours:.1f}"],
            [f"{name}, verl's / packed, median (smallest to largest)", spread],
        ]
    mapping = statistics.median(ours for _, ours in times["update"])
    rows += [
        ["update, packed, memory reused, s (median)", f"{statistics.median(reusing):.1f}"],
        ["update, packed, memory newly mapped / reused", f"{mapping / statistics.median(reusing):.2f}"],
    ]
    sys.stdout.write(markdown_table(["", "value"], rows) + "\n")


if __name__ == "__main__":
    main()
