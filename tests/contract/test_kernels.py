"""Kernels in the place of plain ones: verl's fused head, and attention from the hub."""

import json
import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")


# --- verl's fused kernels give the log-probabilities and gradients of the plain model, for every family
# that our presets name, under FSDP2, with packed sequences


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


# --- Attention without flash-attn: transformers takes a compiled kernel of the hub's, offline from the
# cache
# The kernel itself needs a GPU. A stand-in in the cache shows where it is looked for, and what it is handed
# when sequences are packed, as verl packs them.


REPOSITORY = "kernels-community/flash-attn2"

STAND_IN = """
import torch


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    raise AssertionError("packed sequences take the other function")


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    dropout_p=0.0, softmax_scale=None, causal=False, deterministic=False,
):
    # q, k, v: (tokens, heads, width), of one sequence after the other
    print("lengths", *cu_seqlens_q.diff().tolist())
    out = []
    for start, end in zip(cu_seqlens_q[:-1].tolist(), cu_seqlens_q[1:].tolist()):
        q_, k_, v_ = (each[start:end].transpose(0, 1) for each in (q, k, v))
        groups = {"enable_gqa": True, "scale": softmax_scale}
        out.append(torch.nn.functional.scaled_dot_product_attention(q_, k_, v_, is_causal=causal, **groups))
    return torch.cat(out, dim=1).transpose(0, 1)
"""

RUN = """
import os
import sys
from pathlib import Path
import torch
from kernels import install_kernel
from kernels.utils import build_variant
from transformers import Qwen2Config, Qwen2ForCausalLM

repository, stand_in = sys.argv[1:]
sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
config = Qwen2Config(vocab_size=64, intermediate_size=64, **sizes)


def model(attention):
    torch.manual_seed(0)
    return Qwen2ForCausalLM._from_config(config, attn_implementation=attention)


# The layout of the hub's cache: a branch that names a commit, the commit's files.
cached = Path(os.environ["HF_HUB_CACHE"]) / f"models--{repository.replace('/', '--')}"
build = cached / "snapshots" / "c0ffee" / "build" / build_variant()
for path, text in ((build / "__init__.py", stand_in), (cached / "refs" / "main", "c0ffee")):
    path.parent.mkdir(parents=True)
    path.write_text(text)

# README.md's command, which offline takes what is there
print("fetched", install_kernel(repository, "main")[1] == build)
tokens, positions = torch.arange(7)[None], torch.tensor([[0, 1, 2, 3, 0, 1, 2]])
with torch.no_grad():
    parts = [model("sdpa")(part).logits for part in (tokens[:, :4], tokens[:, 4:])]
    packed = model("flash_attention_2")
    print("attention", packed.config._attn_implementation)
    logits = packed(tokens, position_ids=positions, use_cache=False).logits
    print("equal", torch.allclose(logits, torch.cat(parts, dim=1), atol=1e-5))
"""


@pytest.mark.skipif(
    not list(distributions(name="kernels")), reason="kernels is not installed: not the GPU stack's versions"
)
def test_kernel_of_the_cache_takes_flash_attns_place_offline(tmp_path: Path) -> None:
    # As on a node without network; another cache than the user's.
    environment = {name: value for name, value in os.environ.items() if "KERNELS_CACHE" not in name}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", RUN, REPOSITORY, STAND_IN],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "fetched True",
        f"attention {REPOSITORY}",
        *["lengths 4 3"] * 2,  # a layer each
        "equal True",
    ]
