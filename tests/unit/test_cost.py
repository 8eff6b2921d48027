"""What a run costs, by arithmetic: time, FLOPs, parameters, memory."""

import dataclasses
import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.cli.main import main
from seele.maths.efficiency import reward_variance, unbiased_reward_variance
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
from seele.maths.model_shapes import HUB_NAMES, SHAPES, ModelShape, model_flops
from seele.simulate.cost import (
    cut_mean,
    decode_step_s,
    draw_lengths,
    forward_pass_s,
    prefill_s,
    rollout_s,
    step_cost,
    update_s,
    weight_sync_s,
)
from seele.simulate.cost_setup import GPUS, WEIGHT_BYTES, Cluster, Efficiency, Gpu, Job, Setup

# --- The arithmetic of a training step's cost: by hand, at its limits, and against published measurements


IDEAL = Efficiency(
    forward_mfu=1.0, update_mfu=1.0, decode_bandwidth=1.0, layer_s=0.0, link_share=1.0, sync_overhead_s=0.0
)
"""All that the datasheet says."""


def build(model="qwen2.5-7b", gpu="h100", *, efficiency=None, **changes):
    """A setup; keywords go to the cluster where it has such a field, else to the job."""
    cluster = {name: changes.pop(name) for name in list(changes) if name in Cluster.__dataclass_fields__}
    return Setup(
        model=SHAPES[model],
        gpu=GPUS[gpu],
        cluster=Cluster(**({"num_gpus": 8} | cluster)),
        job=Job(**changes),
        efficiency=efficiency or Efficiency(),
    )


def clockwork(**changes):
    """A machine whose every decode step takes one second, whatever the batch."""
    endless = Gpu(
        peak_flops=math.inf,
        memory_bandwidth=math.inf,
        memory=math.inf,
        intra_node_bandwidth=math.inf,
        inter_node_bandwidth=math.inf,
    )
    unit = ModelShape(
        hidden_size=1,
        intermediate_size=1,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        vocab_size=1,
    )
    return replace(
        build(**changes), gpu=endless, model=unit, efficiency=replace(IDEAL, layer_s=1.0, sync_overhead_s=0.0)
    )


# By hand


def test_one_sequence_decodes_as_fast_as_the_weights_are_read():
    # 7.616e9 - 0.545e9 parameters are multiplied, 2 bytes each: 14.142e9 B / 3.35e12 B/s = 4.2215 ms.
    setup = build(efficiency=IDEAL, tensor_parallel=1)
    assert decode_step_s(setup, np.array(1.0), np.array(0.0)) == pytest.approx(4.2215e-3, rel=1e-4)
    two = build(efficiency=IDEAL, tensor_parallel=2)
    assert decode_step_s(two, np.array(1.0), np.array(0.0)) == pytest.approx(4.2215e-3 / 2, rel=1e-4)


def test_the_cache_is_read_at_two_vectors_a_layer_and_head():
    # 2 * 28 layers * 4 heads * 128 * 2 B = 57,344 B a token; 1e6 tokens / 3.35e12 B/s = 17.118 ms.
    setup = build(efficiency=IDEAL, tensor_parallel=1)
    assert setup.model.kv_token(WEIGHT_BYTES) == 57_344
    more = decode_step_s(setup, np.array(1.0), np.array(1e6)) - decode_step_s(
        setup, np.array(1.0), np.array(0.0)
    )
    assert more == pytest.approx(17.118e-3, rel=1e-4)


def test_a_large_batch_is_bound_by_compute():
    # 2 * 7.071e9 * 10,000 / 989e12 = 142.99 ms, far above the 4 ms of reading the weights.
    setup = build(efficiency=IDEAL, tensor_parallel=1)
    assert decode_step_s(setup, np.array(1e4), np.array(0.0)) == pytest.approx(142.99e-3, rel=1e-4)


def test_update_is_six_and_log_probs_two_flops_a_parameter_and_token():
    # 64 sequences of 100 + 150 + 250 = 500 tokens: 32,000. 6 * 7.071e9 * 32,000 / 989e12 = 1.3727 s.
    job = {
        "prompts": 4,
        "rollouts": 16,
        "prompt_tokens": 100.0,
        "hint_tokens": 150.0,
        "response_tokens": 250.0,
    }
    setup = build(efficiency=IDEAL, num_gpus=1, tensor_parallel=1, **job)
    assert update_s(setup) == pytest.approx(1.3727, rel=1e-4)
    assert forward_pass_s(setup) == pytest.approx(1.3727 / 3, rel=1e-4)
    assert update_s(replace(setup, job=replace(setup.job, ppo_epochs=2))) == pytest.approx(
        2 * 1.3727, rel=1e-4
    )


def test_traffic_that_does_not_hide_behind_compute_takes_the_networks_time():
    # 4 sequences on 16 GPUs: 4 mini-batches of one micro-batch. Each gathers 2 B twice and reduces 4 B a
    # parameter, 15/16 of them from others: 4 * 8 * 7.616e9 * 15/16 = 228.48e9 B over 8 * 50e9 B/s = 0.5712 s.
    setup = build(efficiency=IDEAL, num_gpus=16, prompts=4, rollouts=4)
    assert update_s(setup) == pytest.approx(0.5712, rel=1e-4)
    # One gather of 2 B for the whole batch.
    assert forward_pass_s(setup) == pytest.approx(0.5712 / 16, rel=1e-4)


def test_prefill_counts_a_prompt_once_a_round_or_once():
    # 256 prompts; 200 + 300 tokens, then three rounds of 300 (cached) or 500 tokens: 1,400 or 2,000 each.
    # 2 * 7.071e9 * 256 * 1,400 / (8 * 989e12) = 0.64062 s.
    cached = build(efficiency=IDEAL)
    assert prefill_s(cached) == pytest.approx(0.64062, rel=1e-4)
    uncached = build(efficiency=IDEAL, has_prefix_cache=False)
    assert prefill_s(uncached) == pytest.approx(0.64062 * 2_000 / 1_400, rel=1e-4)


def test_weights_pass_the_slowest_link():
    # 7.616e9 * 2 B * 7/8 / 450e9 B/s = 29.618 ms in a node; * 15/16 / 50e9 B/s = 285.6 ms between two.
    assert weight_sync_s(build(efficiency=IDEAL)) == pytest.approx(29.618e-3, rel=1e-4)
    assert weight_sync_s(build(efficiency=IDEAL, num_gpus=16)) == pytest.approx(285.6e-3, rel=1e-4)


def test_steps_of_one_prompt_by_hand():
    # Round 1 has lengths 1 and 3, round 2 has 2 and 2: 2, 1, 1 and then 2, 2 sequences, on 10 tokens and
    # what each has generated in its own round.
    setup = build(tensor_parallel=1, prompts=1, rollouts=4, rounds=2, mini_batches=1)
    setup = replace(setup, job=replace(setup.job, prompt_tokens=4.0, hint_tokens=6.0))
    by_hand = decode_step_s(
        setup, np.array([2.0, 1.0, 1.0, 2.0, 2.0]), np.array([20.0, 11.0, 12.0, 20.0, 22.0])
    )
    assert rollout_s(setup, np.array([[[1, 3], [2, 2]]])) == pytest.approx(by_hand.sum(), rel=1e-12)


def test_a_barrier_makes_every_round_wait_for_the_slowest_prompt():
    # Two prompts on engines of their own, 5 then 1 and 1 then 5 tokens: 6 steps, or 5 + 5 with a barrier.
    lengths = np.array([[[5], [1]], [[1], [5]]])
    free = clockwork(prompts=2, rollouts=2, rounds=2, mini_batches=1)
    assert rollout_s(free, lengths) == 6.0
    assert rollout_s(replace(free, job=replace(free.job, has_barrier=True)), lengths) == 10.0


def test_with_a_quorum_the_next_round_begins_beside_the_stragglers():
    # 3 of 4 responses are enough: the second round begins after 2 tokens and ends after 2 + 5, the straggler
    # of the first after 9.
    setup = clockwork(prompts=1, rollouts=8, rounds=2, mini_batches=1)
    lengths = np.array([[[1, 2, 9, 2], [5, 1, 1, 1]]])
    assert rollout_s(setup, lengths) == 14.0
    assert rollout_s(replace(setup, job=replace(setup.job, quorum=0.75)), lengths) == 9.0
    assert rollout_s(replace(setup, job=replace(setup.job, quorum=0.25)), lengths) == 9.0


def test_a_quorum_is_as_many_responses_as_in_training():
    # 0.56 of 25 are 14: the second round begins when the 14th response ends.
    setup = clockwork(prompts=1, rollouts=50, rounds=2, mini_batches=1, quorum=0.56)
    lengths = np.array([[range(1, 26), [100] * 25]])
    assert rollout_s(setup, lengths) == 114.0


@pytest.mark.parametrize("settings", [{"quorum": 0.0}, {"quorum": 1.5}, {"quorum": 0.5, "has_barrier": True}])
def test_a_quorum_that_cannot_be_is_refused(settings):
    with pytest.raises(ValueError, match=r"quorum must be in \(0, 1\], and 1 with a barrier"):
        Job(**settings)


def test_more_sequences_than_an_engine_holds_take_turns():
    # 4 sequences of 10 tokens, 2 at a time: 20 steps.
    setup = clockwork(num_gpus=1, tensor_parallel=1, max_sequences=2, rounds=1)
    assert rollout_s(setup, np.full((1, 1, 4), 10)) == pytest.approx(20.0)


def test_a_full_cache_limits_the_sequences_as_well():
    # Room for 10,000 tokens; 16 sequences of 500 + 0..999 tokens, 999.5 on average: 10.005 at a time.
    setup = clockwork(num_gpus=1, tensor_parallel=1, rounds=1, max_sequences=99)
    needed = 10_000 * setup.kv_bytes + setup.model.parameters * WEIGHT_BYTES
    memory = needed / setup.cluster.engine_memory_share
    setup = replace(setup, gpu=replace(setup.gpu, memory=memory))
    assert rollout_s(setup, np.full((1, 1, 16), 1000)) == pytest.approx(1000 * 16 * 999.5 / 10_000)


# Lengths


@given(mu=st.floats(0.0, 9.0), sigma=st.floats(0.05, 1.5), longest=st.sampled_from([64.0, 2048.0, 16_384.0]))
def test_cut_mean_is_the_integral(mu, sigma, longest):
    z = np.linspace(-10.0, 10.0, 20_001)
    density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    integral = np.trapezoid(np.minimum(np.exp(mu + sigma * z), longest) * density, z)
    assert cut_mean(mu, sigma, longest) == pytest.approx(integral, rel=1e-4)


@pytest.mark.parametrize("cv", [0.0, 0.3, 1.0, 3.0])
def test_lengths_have_the_mean_after_the_cut(cv):
    job = Job(prompts=4096, cv=cv)
    lengths = draw_lengths(job, np.random.default_rng(0))
    assert lengths.shape == (4096, 4, 8)
    assert lengths.min() >= 1 and lengths.max() <= job.max_response_tokens
    assert lengths.mean() == pytest.approx(job.response_tokens, rel=0.01)


# Limits


@pytest.mark.parametrize("cv", [0.0, 1.0])
def test_one_round_has_no_cost_of_rounds_and_no_barrier(cv):
    cost = step_cost(build(rounds=1, cv=cv))
    assert cost.rounds_s == 0.0
    assert step_cost(build(rounds=1, cv=cv, has_barrier=True)) == cost


@pytest.mark.parametrize("num_gpus", [8, 64, 1024])
def test_equal_lengths_have_no_tail_and_need_no_barrier(num_gpus):
    cost = step_cost(build(num_gpus=num_gpus, cv=0.0))
    assert cost.tail_s == pytest.approx(0.0, abs=1e-9)
    # A barrier changes nothing but the rounding of a sum.
    behind = step_cost(build(num_gpus=num_gpus, cv=0.0, has_barrier=True))
    assert behind.step_s == pytest.approx(cost.step_s, rel=1e-9)


def test_twice_the_gpus_halve_the_passes_until_traffic_stands_out():
    costs = [step_cost(build(num_gpus=num_gpus)) for num_gpus in (16, 32, 64, 128)]
    for few, many in itertools.pairwise(costs):
        for phase in ("prefill_s", "old_log_prob_s", "reference_s", "update_s"):
            assert getattr(many, phase) == pytest.approx(getattr(few, phase) / 2, rel=1e-9)
    # So many GPUs that a micro-batch is done before the weights for the next have arrived.
    many, more = (update_s(build(num_gpus=num_gpus, prompts=8)) for num_gpus in (1024, 2048))
    assert more == pytest.approx(many, rel=1e-3)


def test_no_number_of_gpus_ends_a_step_before_the_longest_prompt():
    setup = build(num_gpus=4096, cv=1.0)
    floor = decode_step_s(setup, np.array(1.0), np.array(0.0))
    cost = step_cost(setup)
    assert cost.decode_s + cost.tail_s > setup.job.max_response_tokens * floor
    assert step_cost(build(num_gpus=8192)).step_s == pytest.approx(cost.step_s, rel=0.02)


def test_prompts_that_grow_with_the_gpus_keep_the_step():
    few, many = (step_cost(build(num_gpus=n, prompts=32 * n)) for n in (16, 128))
    assert many.step_s == pytest.approx(few.step_s, rel=0.02)
    assert many.gpu_hours == pytest.approx(8 * few.gpu_hours, rel=0.02)


@pytest.mark.parametrize("num_gpus", [8, 64])
@pytest.mark.parametrize("cv", [0.0, 0.3, 1.0])
def test_more_rounds_take_longer(num_gpus, cv):
    seconds = [step_cost(build(num_gpus=num_gpus, rounds=rounds, cv=cv)).step_s for rounds in (1, 2, 4, 8)]
    assert seconds == sorted(seconds)


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(list(SHAPES)),
    gpu=st.sampled_from(["a100", "h100", "h200"]),
    nodes=st.sampled_from([1, 2, 8]),
    rounds=st.sampled_from([1, 2, 4]),
    cv=st.floats(0.0, 2.0),
    response_tokens=st.floats(20.0, 900.0),
    seed=st.integers(0, 9),
)
def test_phases_are_finite_and_add_up(model, gpu, nodes, rounds, cv, response_tokens, seed):
    job = {"prompts": 16, "rollouts": 8, "rounds": rounds, "cv": cv, "response_tokens": response_tokens}
    setup = build(model, gpu, num_gpus=8 * nodes, tensor_parallel=8, max_response_tokens=1000, **job)
    cost = step_cost(setup, seed=seed, draws=1)
    phases = {name: getattr(cost, name) for name in cost.__dataclass_fields__ if name.endswith("_s")}
    assert all(math.isfinite(seconds) for seconds in phases.values())
    assert cost.step_s == pytest.approx(sum(phases.values()))
    # Tail and rounds are differences; where compute is the roof, an uneven batch may fit it slightly better.
    assert min(phases.values()) > -0.05 * cost.decode_s
    behind = step_cost(replace(setup, job=replace(setup.job, has_barrier=True)), seed=seed, draws=1)
    assert behind.step_s >= cost.step_s - 1e-9
    faster = replace(setup, gpu=replace(setup.gpu, memory_bandwidth=2.0 * setup.gpu.memory_bandwidth))
    assert step_cost(faster, seed=seed, draws=1).step_s <= cost.step_s


def test_a_seed_repeats_itself():
    assert step_cost(build(), seed=3) == step_cost(build(), seed=3) != step_cost(build(), seed=4)


# Against published measurements


PUBLISHED_DECODING = [
    # Qwen's speed benchmark, vLLM 0.6.3, A100 80 GB, 2,048 tokens after one: tokens a second.
    pytest.param("qwen2.5-0.5b", "a100", 1, 1e-4, 1025, 1 / 311.55, id="0.5B, old vLLM"),
    pytest.param("qwen2.5-1.5b", "a100", 1, 1e-4, 1025, 1 / 183.33, id="1.5B, old vLLM"),
    pytest.param("qwen2.5-7b", "a100", 1, 1e-4, 1025, 1 / 84.28, id="7B, old vLLM"),
    pytest.param("qwen2.5-14b", "a100", 1, 1e-4, 1025, 1 / 46.30, id="14B, old vLLM"),
    pytest.param("qwen2.5-32b", "a100", 1, 1e-4, 1025, 1 / 22.13, id="32B, old vLLM"),
    # vLLM 0.21 on an H100; vLLM 0.23 on an A100 with 40 GB; Qwen2.5-72B on two H100.
    pytest.param("llama-3.1-8b", "h100", 1, 3e-5, 300, 6.48e-3, id="8B, H100"),
    pytest.param("llama-3.1-8b", "a100-40gb", 1, 3e-5, 1088, 1 / 75, id="8B, A100 40 GB"),
    pytest.param("qwen2.5-72b", "h100", 2, 3e-5, 640, 30.9e-3, id="72B, two H100"),
]
"""Model, GPU, tensor parallelism, seconds a layer, context, seconds a token (sources: docs/scaling.md)."""


@pytest.mark.parametrize(("model", "gpu", "gpus", "layer_s", "context", "measured"), PUBLISHED_DECODING)
def test_decoding_one_sequence_is_near_what_was_measured(model, gpu, gpus, layer_s, context, measured):
    setup = build(
        model,
        gpu,
        num_gpus=8,
        tensor_parallel=gpus,
        engine_memory_share=0.98,
        efficiency=Efficiency(layer_s=layer_s),
    )
    predicted = decode_step_s(setup, np.array(1.0), np.array(float(context)))
    assert predicted == pytest.approx(measured, rel=0.16 if layer_s == 1e-4 else 0.08)


@pytest.mark.parametrize(
    ("model", "num_gpus", "tensor_parallel", "response_tokens", "measured"),
    [("llama-3.1-8b", 16, 1, 960.0, 97.7), ("qwen3-32b", 32, 4, 3106.0, 393.0)],
)
def test_whole_steps_of_nemo_rl_take_up_to_half_as_long_again(
    model, num_gpus, tensor_parallel, response_tokens, measured
):
    # Its performance summary, v0.4: GRPO on policy, H100, 64 prompts x 32 rollouts, cut at 4,096 tokens.
    setup = build(
        model,
        num_gpus=num_gpus,
        tensor_parallel=tensor_parallel,
        engine_memory_share=0.6,
        prompts=64,
        rounds=1,
        prompt_tokens=100.0,
        hint_tokens=0.0,
        response_tokens=response_tokens,
        max_response_tokens=3996,
    )
    assert 1.3 < measured / step_cost(setup).step_s < 1.5


# The command

PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
TABLES = re.findall(r"```bash\nseele (cost [^\n]*)\n```\n\n((?:\|[^\n]*\n)+)", PAGE)
"""Commands of the page, each with the table below it."""


def run(capsys, *arguments):
    """Exit status, standard output and error of ``seele cost ARGUMENTS``."""
    with pytest.raises(SystemExit) as ended:
        main(["cost", *map(str, arguments)])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize(("command", "table"), TABLES, ids=[command for command, _ in TABLES])
def test_page_shows_what_its_commands_print(capsys, command, table):
    assert run(capsys, *command.split()[1:])[:2] == (0, table)


def test_page_has_a_table_for_every_size_and_model():
    assert len(TABLES) >= 12
    for model in ("1.5b", "7b", "32b"):
        assert sum(f"qwen2.5-{model}" in command and "--gpus 1024" in command for command, _ in TABLES) == 2


def test_command_prints_a_line_for_every_combination_and_warns(capsys, tmp_path):
    status, table, warnings = run(
        capsys, "--gpus", 8, "--gpus", 64, "--rounds", 1, "--rounds", 4, "--out", tmp_path
    )
    assert status == 0
    assert len(table.splitlines()) == 2 + 4
    assert (tmp_path / "cost.md").read_text() == table
    # Four prompts an engine: only four rounds on 64 GPUs cost more than the limit.
    assert warnings.count("warning") == 1 and "64 GPUs, 256 prompts, 4 rounds" in warnings
    rows = json.loads((tmp_path / "cost.json").read_text())
    assert [(row["cluster"]["num_gpus"], row["job"]["rounds"]) for row in rows] == [
        (8, 1),
        (8, 4),
        (64, 1),
        (64, 4),
    ]
    assert rows[1]["cost"]["step_s"] == step_cost(build()).step_s


def test_command_grows_prompts_and_takes_assumptions(capsys):
    options = ("--gpus", 64, "--prompts", 32, "--weak", "--assume", "update_mfu=0.15", "--json")
    status, text, _ = run(capsys, *options)
    (row,) = json.loads(text)
    assert status == 0
    assert row["job"]["prompts"] == 256
    assert row["cost"]["update_s"] == pytest.approx(2.0 * update_s(build(num_gpus=64)))


def test_command_knows_the_models_by_the_names_of_training(capsys):
    assert run(capsys, "--model", "qwen2_5_math_7b") == run(capsys, "--model", "qwen2.5-7b")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "gpt"], "--model gpt: expected one of"),
        (["--gpu", "abacus"], "--gpu: expected one of"),
        (["--gpus", "12"], "num_gpus (12) must fill nodes of 8"),
        (["--gpus", "1", "--tensor-parallel", "2"], "must be a multiple of tensor_parallel"),
        (["--rounds", "3"], "rollouts (32) must be a multiple of rounds (3)"),
        (["--prompts", "0"], "prompts must be at least 1"),
        (["--prompts", "2"], "mini_batches (4) must not exceed prompts (2)"),
        (["--cv", "nan"], "cv must be in [0, 10], got nan"),
        (["--response-tokens", "3000"], "response_tokens (3000)"),
        (["--engine-memory-share", "2"], "engine_memory_share must be in (0, 1]"),
        (["--model", "qwen2.5-32b", "--tensor-parallel", "1"], "tensor_parallel=1: raise it"),
        (["--assume", "mfu=1"], "expected NAME=NUMBER"),
        (["--assume", "update_mfu=high"], "expected a number, got 'high'"),
        (["--assume", "update_mfu=2"], "update_mfu must be in (0, 1]"),
        (["--assume", "layer_s=-1"], "layer_s must be finite"),
        (["--seed", "-1"], "--seed: expected 0 or more"),
    ],
)
def test_command_says_what_is_wrong(capsys, arguments, message):
    status, _, error = run(capsys, *arguments)
    assert status == 2
    assert error.startswith("error: ") and message in error


# --- FLOPs of tokens, by hand


def test_two_a_token_forward_and_six_with_backward():
    flops = model_flops(10, prefilled_tokens=3, generated_tokens=4, trained_tokens=5, scored_tokens=5)
    assert flops == 2 * 10 * 7 + 8 * 10 * 5


def test_a_second_epoch_scores_nothing_again():
    flops = model_flops(1, prefilled_tokens=0, generated_tokens=0, trained_tokens=200, scored_tokens=100)
    assert flops == 6 * 200 + 2 * 100


# --- The bound on a step's descent, and the variance of rewards


def test_variance_is_that_of_the_rewards_themselves():
    rewards = np.array([1.0, 0.0, 0.0, 0.0])
    assert reward_variance(rewards.mean()) == rewards.var()


def test_variance_is_largest_at_one_half_and_nothing_where_all_rollouts_agree():
    accuracy = np.linspace(0.0, 1.0, 101)
    variance = reward_variance(accuracy)
    assert accuracy[variance.argmax()] == 0.5
    assert variance.max() == 0.25
    assert variance[0] == variance[-1] == 0.0


def test_variance_does_not_tell_success_from_failure():
    accuracy = np.linspace(0.0, 1.0, 11)
    np.testing.assert_allclose(reward_variance(accuracy), reward_variance(1.0 - accuracy))


@pytest.mark.parametrize("accuracy", [0.0, 0.2, 0.5, 0.9])
def test_the_estimate_of_the_variance_is_right_on_average(accuracy):
    # All outcomes of three rollouts, by their probability.
    chances = {c: math.comb(3, c) * accuracy**c * (1 - accuracy) ** (3 - c) for c in range(4)}
    mean = sum(chance * float(unbiased_reward_variance(c / 3, 3)) for c, chance in chances.items())
    assert mean == pytest.approx(accuracy * (1 - accuracy))


def test_one_rollout_shows_no_variance():
    np.testing.assert_array_equal(unbiased_reward_variance([0.0, 1.0], [1, 1]), [0.0, 0.0])


# --- Parameters by arithmetic are those of the published weights and of Hugging Face's models


# What the hub counts in the safetensors files; of Qwen3's tied models without the copy of the embedding.
PUBLISHED = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "mathstral-7b": 7_248_023_552,
}


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert SHAPES[name].parameters == PUBLISHED[name]


def test_every_hub_name_has_a_shape() -> None:
    assert set(HUB_NAMES.values()) <= set(SHAPES)


def test_adapters_by_hand() -> None:
    # Per layer: q and o 8 + 8 each, k and v 8 + 4 each, gate, up and down 8 + 6 each: 98 ends, times rank 3.
    shape = ModelShape(
        hidden_size=8,
        intermediate_size=6,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=10,
    )
    assert shape.lora_parameters(3) == 3 * 98 * 2


# --- The memory of a run, worked out by hand for a model small enough to


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


def test_adams_step_needs_the_square_roots_of_a_shard() -> None:
    few, many = (dataclasses.replace(PASSES, tokens=tokens) for tokens in (1, 10_000))
    deep = dataclasses.replace(POLICY, shape=dataclasses.replace(SHAPE, num_hidden_layers=100))
    assert update_peak(deep, few)["Adam's square roots"] == 4 * deep.parameters / 4
    assert "Adam's square roots" not in update_peak(dataclasses.replace(deep, cpu_policy=True), few)
    assert "Adam's square roots" not in update_peak(deep, many), "its activations are more"


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
    supervised = dataclasses.replace(PLAN, engine=None, whole_models=3)
    assert sum(parts_of(supervised, "checkpoints").values()) == 3 * 16 * PARAMETERS
    assert parts_of(supervised, "steps")["whole model for a checkpoint"] == 4 * PARAMETERS


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
    offloaded = dataclasses.replace(plan, policy=dataclasses.replace(POLICY, cpu_policy=True))
    assert peak(predict(offloaded, host=1.0), "host") == worst, "it is offloaded to the same memory"


def test_what_is_not_known_is_not_short() -> None:
    assert Need(place="host", phase="steps", parts={"all": 1e15}, available=None).fits
    assert peak([], "GPU") is None


def test_a_table_shows_the_parts_that_count() -> None:
    need = Need(place="GPU", phase="update", parts={"small": 1.0, "logits": 2.0 * GIB}, available=None)
    assert memory_table([need]).splitlines()[2] == "| GPU | update | logits 2.0 | 2.0 | ? |"


def test_settings_of_a_run_need_measure(monkeypatch, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["cost", "method=grpo"])
    assert "method=grpo: settings of a run need --measure" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["cost", "--measure", "--gpus", "8", "method=grpo"])
    assert "--measure: takes a run's settings (KEY=VALUE), --config-dir and no" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["cost", "--config-dir", "mine"])
    assert "error: --config-dir=mine: settings of a run need --measure" in capsys.readouterr().err
    handed: list[tuple[str, list[str]]] = []
    monkeypatch.setattr("seele.cli.cost.run_module", lambda *given: handed.append(given) or 3)
    with pytest.raises(SystemExit, match="3"):
        main(["cost", "--measure", "method=grpo", "hardware=cpu"])
    with pytest.raises(SystemExit, match="3"):
        main(["cost", "--measure", "--config-dir", "mine", "method=own"])
    module = "seele_verl.measured_cost"
    assert handed == [
        (module, ["method=grpo", "hardware=cpu"]),
        (module, ["method=own", "--config-dir=mine"]),
    ]
