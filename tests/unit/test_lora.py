"""What LoRA is refused with, and how an adapter is merged. Training with one is in tests/integration."""

import json

import pytest

pytest.importorskip("peft", reason="peft is not installed")

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from seele.errors import ConfigError
from seele_verl.checks.preflight import check_settings
from seele_verl.lora import ADAPTER, check_lora, check_saved_rank, join_adapter
from seele_verl.train import compose

REFUSED = [
    ("actor_rollout_ref.model.lora.rank=8", "that is Megatron's; set actor_rollout_ref.model.lora_rank"),
    ("actor_rollout_ref.model.lora_adapter_path=a", "KL would go to the model without that adapter"),
    ("method=ppo critic.model.lora_rank=8", "critic.model.lora_rank: got 8, .*value head as it was drawn"),
    ("method=sft adapter=lora", "a supervised stage trains the whole model"),
    ("method=sft_rl adapter=lora", "a supervised stage trains the whole model"),
    ("adapter=lora actor_rollout_ref.model.lora.merge=true", "would send the merged weights in bfloat16"),
    (
        "actor_rollout_ref.model.lora_rank=8 actor_rollout_ref.rollout.layered_summon=true",
        "set actor_rollout_ref.rollout.load_format=safetensors, as adapter=lora does",
    ),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED, ids=[overrides for overrides, _ in REFUSED])
def test_what_cannot_work_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        check_lora(compose(["hardware=cpu", "job=tiny", *overrides.split()]))


@pytest.mark.parametrize("rank", ["-1", "513", "8.5"])
def test_ranks_that_the_engine_does_not_know_are_refused(rank):
    overrides = ["hardware=cpu", "job=tiny", f"actor_rollout_ref.model.lora_rank={rank}"]
    with pytest.raises(ConfigError, match=r"lora_rank: expected a whole number from 0 \(no LoRA\) to 512"):
        check_settings(compose(overrides), overrides)


@pytest.mark.parametrize("method", ["seele", "grpo", "luffy", "ppo"])
def test_methods_that_roll_out_take_an_adapter(method):
    overrides = [f"method={method}", "hardware=gpu8", "model=qwen3_4b_base", "adapter=lora"]
    config = compose(overrides)
    check_settings(config, overrides)
    check_lora(config)
    assert config.actor_rollout_ref.model.lora_rank == 32
    assert config.actor_rollout_ref.rollout.load_format == "safetensors"


def test_a_checkpoint_of_another_rank_is_not_gone_on_with(tmp_path):
    whole, adapted = (compose(["hardware=cpu", "job=tiny", f"adapter={name}"]) for name in ("none", "lora"))
    (tmp_path / "actor").mkdir()
    check_saved_rank(whole, tmp_path)
    with pytest.raises(ConfigError, match=r"lora_rank: got 32, but .* was saved with 0"):
        check_saved_rank(adapted, tmp_path)
    (tmp_path / "actor" / "lora_train_meta.json").write_text('{"r": 32}')
    check_saved_rank(adapted, tmp_path)
    with pytest.raises(ConfigError, match=r"lora_rank: got 0, but .* was saved with 32"):
        check_saved_rank(whole, tmp_path)


def test_an_adapter_joins_a_qwen3_model(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 64}
    base = Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, tie_word_embeddings=True))
    base.save_pretrained(tmp_path)
    adapted = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:  # drawn as zeros, which change nothing
                parameter.normal_()
    adapted.save_pretrained(tmp_path / ADAPTER)
    join_adapter(tmp_path, "Qwen/Qwen3-0.6B-Base")
    tokens = torch.arange(32)[None]
    with torch.no_grad():
        wanted = adapted(tokens).logits
        found = AutoModelForCausalLM.from_pretrained(tmp_path)(tokens).logits
        with adapted.disable_adapter():
            assert (wanted - adapted(tokens).logits).abs().max() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    config = json.loads((tmp_path / ADAPTER / "adapter_config.json").read_text())
    assert (config["r"], config["base_model_name_or_path"]) == (4, "Qwen/Qwen3-0.6B-Base")
    # The adapter is as it was.
    fresh = PeftModel.from_pretrained(adapted.unload(), str(tmp_path / ADAPTER))
    with torch.no_grad():
        torch.testing.assert_close(fresh(tokens).logits, wanted)
