"""LoRA on the real stack: an adapter is trained, reaches the engine, is saved, resumed and merged. The same
two runs cover weights between engine and trainer, a profile, rollouts from a cache, and the controller and
loss term of examples/.
"""

import gzip
import json
from pathlib import Path

import pytest

from seele.data.storage.files import read_json_lines

EXAMPLES = Path(__file__).parents[2] / "examples"
LOSS = f"{EXAMPLES}/own_loss/right_responses.py:RightResponses"
SETTINGS = [
    f"seele.hints.controller={EXAMPLES}/own_controller/stairs.py:Stairs",
    "+seele.hints.settings.stride=0.4",
    f"seele.loss_terms=[{{term: '{LOSS}', coefficient: 0.1, settings: {{shortest: 2}}}}]",
    *("adapter=lora", "actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.actor.optim.lr=1e-2"),
    *("actor_rollout_ref.actor.use_kl_loss=true", "trainer.total_training_steps=2", "trainer.save_freq=1"),
    *("trainer.test_freq=-1", "trainer.val_before_train=false"),
    *("algorithm.rollout_correction.bypass_mode=false", "seele.rollout_correction=tis"),
]
PROFILE = [
    "global_profiler.tool=torch",
    "global_profiler.steps=[2]",
    "actor_rollout_ref.actor.profiler.enable=true",
]


def rows_of(path: Path) -> list[dict]:
    return [row for _, row in read_json_lines(path)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, train_command, finish, python) -> tuple[Path, Path]:
    """A run of two steps, and one that resumes after its first and replays the second."""
    folder = tmp_path_factory.mktemp("lora")
    settings = [*SETTINGS, f"seele.rollout_cache={folder}/cache"]
    whole, resumed = folder / "whole", folder / "resumed"
    finish([python, *train_command(whole, *settings, *PROFILE)[1:]], log=whole / "logs" / "train.log")
    back = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={whole}/global_step_1"]
    finish([python, *train_command(resumed, *settings, *back)[1:]], log=resumed / "logs" / "train.log")
    return whole, resumed


def test_the_adapter_learns_and_reaches_the_engine(runs):
    first, second = rows_of(runs[0] / "metrics.jsonl")
    assert first["actor/grad_norm"] > 0 and second["actor/grad_norm"] > 0
    # The reference is the model without the adapter, which has moved far from it. If the engine lacked the
    # adapter too, its log-probabilities would be the reference's.
    assert second["actor/kl_loss"] > 1e-3
    assert second["training/rollout_probs_diff_max"] < 1e-4
    for line in (first, second):
        assert line["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=1e-3)
        assert 1.0 <= line["rollout_corr/rollout_is_max"] < 1.01


def test_the_step_after_a_resumption_is_the_one_that_was_there_before(runs):
    before, after = (rows_of(run / "metrics.jsonl")[-1] for run in runs)
    assert before["step"] == after["step"] == 2
    assert before["tokens/generated"] == after["tokens/generated"] == after["tokens/from_cache"] > 0
    assert "tokens/from_cache" not in before
    for name in ("actor/pg_loss", "actor/kl_loss", "actor/imitation_loss", "actor/grad_norm"):
        assert after[name] == pytest.approx(before[name], rel=1e-3, abs=1e-6), name
    texts = [[row["text"] for row in rows_of(run / "rollouts" / "step_2.jsonl")] for run in runs]
    assert texts[0] == texts[1]


def test_the_controller_and_the_loss_of_the_examples_take_part(runs):
    for step, line in enumerate(rows_of(runs[0] / "metrics.jsonl"), start=1):
        rows = rows_of(runs[0] / "rollouts" / f"step_{step}.jsonl")
        assert any(row["reason"] == "correct" for row in rows) == (line["actor/right_response_loss"] > 0)
        by_problem = {(row["instance_id"], row["round"]): row for row in rows}
        assert len({row["hint_ratio"] for row in by_problem.values()}) > 1
        assert 0.0 < line["controller/mean_ratio"] < 1.0
    state = json.loads((runs[0] / "global_step_2" / "seele" / "controller.json").read_text())
    assert state["controller"] == "Stairs" and len(state["ratios"]) >= 16


def test_a_profile_of_the_step_is_in_the_run(runs):
    (trace,) = (runs[0] / "profile").glob("*step2*.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert {"actor_compute_log_prob", "actor_update"} <= {event.get("name") for event in events}


def test_the_merged_model_is_the_base_model_with_the_adapter(runs, base_model, finish, python):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    merged = Path(finish([python, "-m", "seele_verl.merge", str(runs[0])]).splitlines()[-1])
    config = json.loads((merged / "lora_adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (8, 32)
    assert config["base_model_name_or_path"] == str(base_model)
    tokens = torch.arange(20, 60)[None]
    base = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32)
    expected = PeftModel.from_pretrained(base, str(merged / "lora_adapter"))
    model = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    with torch.no_grad():
        found, wanted = (each(tokens).logits.softmax(-1) for each in (model, expected))
        with expected.disable_adapter():
            without = expected(tokens).logits.softmax(-1)
    # verl's merger rounds to bfloat16.
    assert (found - wanted).abs().max() < 0.01
    assert (wanted - without).abs().max() > 0.05
