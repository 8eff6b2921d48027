"""Attention without flash-attn: transformers takes a compiled kernel of the hub's, offline from the cache.

The kernel itself needs a GPU. A stand-in in the cache shows where it is looked for, and what it is handed
when sequences are packed, as verl packs them.
"""

import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

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
