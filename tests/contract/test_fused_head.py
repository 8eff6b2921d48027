"""verl's fused kernels give the log-probabilities and gradients of the plain model, for every family that our
presets name, under FSDP2, with packed sequences.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")

# One process for all families: FSDP wants a process group, of one rank here.
PROGRAM = """
import importlib, json, sys, tempfile
import torch, transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.utils.fsdp_utils import apply_fsdp2
from verl.workers.config import FSDPEngineConfig

families, extension = json.loads(sys.argv[1]), sys.argv[2]
if extension:
    importlib.import_module(extension)
store = tempfile.NamedTemporaryFile()
torch.distributed.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
LENGTHS = (5, 9, 3)
IDS = torch.randint(0, 64, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(0))


def build(family, tied):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=tied, attn_implementation="sdpa",
    )
    return transformers.AutoModelForCausalLM.from_config(config).train()


def plain(family, tied):
    model, log_probs, entropies = build(family, tied), [], []
    for ids in IDS.split(LENGTHS, dim=1):
        logits = model(input_ids=ids).logits / 0.7
        scores = logits.log_softmax(-1)
        log_probs.append(scores[0, :-1].gather(-1, ids[0, 1:, None])[:, 0])
        entropies.append(-(scores.exp() * scores).sum(-1)[0, :-1])
    return results(model, torch.cat(log_probs), torch.cat(entropies))


def fused(family, tied):
    model = build(family, tied)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    apply_monkey_patch(model, use_remove_padding=True, use_fused_kernels=True, fused_kernels_backend="torch")
    policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    sharding = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": True}
    apply_fsdp2(model, sharding, FSDPEngineConfig(strategy="fsdp2"))
    # Packed as by verl's engine: the last token of a sequence is followed by another's first, and left out.
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    last = torch.tensor(LENGTHS).cumsum(0) - 1
    keep = torch.ones(sum(LENGTHS), dtype=torch.bool).index_fill(0, last, False)
    try:
        output = model(
            input_ids=IDS, attention_mask=None, position_ids=positions, use_cache=False, temperature=0.7,
            return_dict=True, shift_labels=IDS.roll(-1, 1),
        )
        return results(model, output.log_probs[0][keep], output.entropy[0][keep])
    except RuntimeError as error:
        return str(error)


def results(model, log_probs, entropies):
    (log_probs.sum() + 0.1 * entropies.sum()).backward()
    whole = lambda tensor: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    gradients = {name: whole(parameter.grad).norm().item() for name, parameter in model.named_parameters()}
    return {"log_probs": log_probs.tolist(), "entropies": entropies.tolist(), "gradients": gradients}


# verl patches a family's class for good: the plain ones come first.
plains = [plain(family, tied) for family, tied in families]
fuseds = [fused(family, tied) for family, tied in families]
print(json.dumps([*zip(plains, fuseds)]))
"""


def compare(runs: list[tuple[str, bool]], *, extension: str, folder: Path) -> list[Any]:
    """The plain and the fused model's results, or the error, of families that are tied or not."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    printed = subprocess.run(
        [sys.executable, str(program), json.dumps(runs), extension],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert printed.returncode == 0, printed.stderr
    rows: list[Any] = json.loads(printed.stdout.splitlines()[-1])
    return rows


def test_the_fused_model_is_the_plain_one(tmp_path: Path) -> None:
    runs = [(family, tied) for family in FAMILIES for tied in (True, False)]
    rows = compare(runs, extension="seele_verl.fused_head", folder=tmp_path)
    assert len(rows) == len(runs)
    for plain, fused in rows:
        assert fused["log_probs"] == pytest.approx(plain["log_probs"], abs=1e-5)
        assert fused["entropies"] == pytest.approx(plain["entropies"], abs=1e-5)
        assert fused["gradients"] == pytest.approx(plain["gradients"], rel=1e-4, abs=1e-5)


def test_without_our_extension_an_untied_output_layer_is_gathered_by_nothing(tmp_path: Path) -> None:
    ((_, tied), (_, untied)) = compare([("Qwen2", True), ("Qwen2", False)], extension="", folder=tmp_path)
    assert isinstance(tied, dict)
    assert "mixed torch.Tensor and DTensor" in untied, "verl gathers it now: drop seele_verl/fused_head.py"
