"""The memory of a run, worked out by hand for a model small enough to."""

import dataclasses

import pytest

from seele.maths.memory import (
    CUDA_GRAPHS,
    ENGINE_CONTEXT,
    GIB,
    TRAINER_CONTEXT,
    Engine,
    Need,
    Passes,
    Plan,
    Trained,
    as_critic,
    gathered,
    head,
    kept_activations,
    layer_token,
    memory_table,
    peak,
    predict,
    reduced,
    total,
    update_peak,
)
from seele.maths.model_shapes import SHAPES, ModelShape

SHAPE = ModelShape(
    hidden_size=8,
    intermediate_size=6,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=10,
)
# A layer: q and o 64 each, k and v 32 each, gate, up and down 48 each, two norms of 8.
LAYER, EMBEDDING = 352, 80
PARAMETERS = 2 * LAYER + 2 * EMBEDDING + 8
PASSES = Passes(tokens=1024, longest=0)
POLICY = Trained(shape=SHAPE, shards=4)
ENGINE = Engine(shape=SHAPE, tensor_parallel=2, memory_share=0.5, window=100, sequences=4, batched_tokens=64)
PLAN = Plan(
    card=64 * GIB,
    ranks=4,
    ranks_per_node=4,
    policy=POLICY,
    update=PASSES,
    old_log_probs=PASSES,
    reference=PASSES,
    engine=ENGINE,
    checkpoints=3,
)


def parts_of(plan: Plan, phase: str) -> dict[str, float]:
    (need,) = (need for need in predict(plan) if need.phase == phase)
    return dict(need.parts)


def test_weights_gradients_and_moments_are_divided_over_the_ranks() -> None:
    assert (SHAPE.layer_parameters, SHAPE.parameters) == (LAYER, PARAMETERS)
    assert POLICY.weights == POLICY.gradients == PARAMETERS  # 4 bytes each, over 4 GPUs
    assert POLICY.moments == 2 * PARAMETERS
    whole = dataclasses.replace(POLICY, defers_sync=True)
    assert whole.gradients == 4 * PARAMETERS


def test_an_offloaded_model_is_away_while_the_engine_rolls_out_and_back_for_its_update() -> None:
    away = dataclasses.replace(POLICY, param_offload=True, optimizer_offload=True)
    assert away.resident == {}
    assert away.in_training == POLICY.in_training
    policy = dataclasses.replace(POLICY, cpu_policy=True)
    assert policy.resident == policy.in_training == {}


def test_adapters_are_all_that_has_gradients_and_moments() -> None:
    adapted = dataclasses.replace(POLICY, lora_rank=3)
    adapters = SHAPE.lora_parameters(3)
    assert (adapted.gradients, adapted.moments) == (adapters, 2 * adapters)
    assert adapted.weights == PARAMETERS + adapters
    assert update_peak(adapted, PASSES)["whole gradients"] == 0


def test_a_critic_has_no_output_layer() -> None:
    assert as_critic(POLICY).parameters == PARAMETERS - EMBEDDING


def test_whole_weights_and_gradients() -> None:
    assert gathered(SHAPE) == 2 * (EMBEDDING + 3 * LAYER)
    # In bfloat16, and for a layer twice in fp32.
    assert reduced(SHAPE) == 2 * EMBEDDING + (2 + 4 + 4) * LAYER


def test_gradient_checkpointing_keeps_a_layers_input() -> None:
    assert kept_activations(SHAPE, PASSES) == 1024 * 2 * 2 * 8
    # Norms 2 x 8 x 10; queries 3 x 8, keys and values 3 x 4, the residual 8; the MLP 4 x 6: two bytes each.
    assert layer_token(SHAPE, PASSES) == 160 + 2 * (24 + 12 + 8) + 48
    everything = dataclasses.replace(PASSES, has_checkpointing=False)
    assert kept_activations(SHAPE, everything) == 1024 * 2 * layer_token(SHAPE, PASSES)


def test_fused_kernels_hold_a_chunks_logits() -> None:
    fused = dataclasses.replace(PASSES, is_fused=True)
    assert head(SHAPE, fused, with_gradient=False) == 2 * 8 * 1024 + 14 * 512 * 10
    assert head(SHAPE, PASSES, with_gradient=False) == 2 * 8 * 1024 + 2 * 1024 * 10
    assert head(SHAPE, PASSES, with_gradient=True) == 3 * 2 * 8 * 1024 + 10 * 1024 * 10
    # 49,152 tokens of 152,064 words: 14 GiB of logits, and 56 more for their entropy.
    whole = Passes(tokens=49_152, longest=0, entropy="whole")
    words = 49_152 * 152_064
    assert head(SHAPES["qwen2.5-7b"], whole, with_gradient=False) == pytest.approx(10 * words, rel=0.01)


def test_chunks_spare_entropy_only_without_gradient() -> None:
    whole, chunked = (Passes(tokens=8192, longest=0, entropy=kind) for kind in ("whole", "chunked"))
    without = [head(SHAPE, passes, with_gradient=False) for passes in (whole, chunked)]
    with_gradient = [head(SHAPE, passes, with_gradient=True) for passes in (whole, chunked)]
    assert without[1] < without[0] and with_gradient[1] > with_gradient[0]


def test_a_micro_batch_of_short_sequences_holds_more_tokens_than_the_limit() -> None:
    assert Passes(tokens=24_576, longest=9216).packed_tokens == pytest.approx(24_576 * 1.25)


def test_the_engine_takes_its_share_whatever_it_needs() -> None:
    awake = ENGINE.awake(64 * GIB)
    assert sum(awake.values()) == pytest.approx(32 * GIB + CUDA_GRAPHS)
    fixed = dataclasses.replace(ENGINE, kv_cache=GIB)
    assert fixed.awake(64 * GIB)["engine's KV cache"] == GIB


def test_the_engine_must_hold_one_window() -> None:
    # Keys and values of two layers, 4 features, two bytes, over two GPUs.
    assert ENGINE.kv_token == 2 * 2 * 4 * 2 / 2
    assert ENGINE.start["KV cache of one window"] == 1600
    (start,) = (need for need in predict(PLAN) if need.place == "engine")
    assert start.available == 32 * GIB and start.fits
    # Heads are copied where there are more GPUs than heads.
    assert dataclasses.replace(ENGINE, tensor_parallel=8).kv_token == 16


def test_what_is_on_a_gpu_while_the_engine_rolls_out() -> None:
    parts = parts_of(PLAN, "rolling out")
    assert parts["Adam's moments"] == 2 * PARAMETERS
    assert "gradients" not in parts
    assert sum(parts.values()) == pytest.approx(3 * PARAMETERS + 32 * GIB + CUDA_GRAPHS + TRAINER_CONTEXT)


def test_an_engine_that_cannot_sleep_stays_beside_the_trainer() -> None:
    asleep = parts_of(PLAN, "update")["engine asleep"]
    assert asleep == 2 * ENGINE_CONTEXT + CUDA_GRAPHS
    awake = dataclasses.replace(PLAN, engine=dataclasses.replace(ENGINE, sleeps=False))
    assert parts_of(awake, "update")["engine's KV cache"] > 0


def test_tied_models_are_loaded_in_every_rank() -> None:
    def loading(tied: bool) -> float:
        shape = dataclasses.replace(SHAPE, tied=tied)
        plan = dataclasses.replace(PLAN, policy=Trained(shape=shape, shards=4))
        return parts_of(plan, "loading")["weights in fp32"]

    assert loading(tied=False) == 4 * PARAMETERS
    assert loading(tied=True) == 4 * 4 * (PARAMETERS - EMBEDDING)


def test_host_memory_of_a_node_holds_its_share_of_what_is_offloaded() -> None:
    two_nodes = dataclasses.replace(
        PLAN,
        ranks=8,
        policy=dataclasses.replace(POLICY, shards=8, param_offload=True, optimizer_offload=True),
    )
    steps = parts_of(two_nodes, "steps")
    assert steps["policy's weights"] == steps["reference"] == 4 * PARAMETERS / 2
    assert steps["policy's moments"] == 8 * PARAMETERS / 2


def test_checkpoints_hold_twelve_bytes_a_parameter_and_sixteen_with_a_whole_model() -> None:
    assert parts_of(PLAN, "checkpoints") == {"policy": 3 * 12 * PARAMETERS}
    supervised = dataclasses.replace(PLAN, engine=None, saves_whole_model=True)
    assert sum(parts_of(supervised, "checkpoints").values()) == 3 * 16 * PARAMETERS


def test_a_critic_trains_beside_the_policy() -> None:
    plan = dataclasses.replace(PLAN, critic=as_critic(POLICY), critic_passes=PASSES)
    update = parts_of(plan, "critic's update")
    assert update["policy's Adam's moments"] == 2 * PARAMETERS
    assert update["Adam's moments"] == 2 * (PARAMETERS - EMBEDDING)
    assert sum(parts_of(plan, "update").values()) > sum(parts_of(PLAN, "update").values())


def test_without_gpus_everything_is_in_host_memory() -> None:
    plan = dataclasses.replace(PLAN, card=0.0, engine=dataclasses.replace(ENGINE, kv_cache=GIB))
    needs = predict(plan, host=1.0)
    assert {need.place for need in needs} == {"host", "disk"}
    worst = peak(needs, "host")
    assert worst is not None and not worst.fits
    assert worst.parts["training"] == 4 * total(update_peak(POLICY, PASSES))


def test_what_is_not_known_is_not_short() -> None:
    assert Need(place="host", phase="steps", parts={"all": 1e15}, available=None).fits
    assert peak([], "GPU") is None


def test_a_table_shows_the_parts_that_count() -> None:
    need = Need(place="GPU", phase="update", parts={"small": 1.0, "logits": 2.0 * GIB}, available=None)
    assert memory_table([need]).splitlines()[2] == "| GPU | update | logits 2.0 | 2.0 | ? |"
