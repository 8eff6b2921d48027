"""Kernels that replace plain ones: verl's fused head, and attention from the hub."""

import inspect
import json
import os
import random
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import torch
from verl.workers.engine.fsdp import transformer_impl

from seele_verl.packed_rows import pack_rows, share_prompts, split_rows

# --- verl's fused kernels give the log-probabilities and gradients of the plain model, for every family
# that our presets name, under FSDP2, with packed sequences


FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")

# One process for all families: FSDP needs a process group, here with one rank.
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


def compare(python: str, runs: list[tuple[str, bool]], *, extension: str, folder: Path) -> list[Any]:
    """Return the plain and the fused model's results, or the error, for families that are tied or not."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    printed = subprocess.run(
        [python, str(program), json.dumps(runs), extension],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert printed.returncode == 0, printed.stderr
    rows: list[Any] = json.loads(printed.stdout.splitlines()[-1])
    return rows


def test_the_fused_model_is_the_plain_one(tmp_path: Path, python: str) -> None:
    runs = [(family, tied) for family in FAMILIES for tied in (True, False)]
    rows = compare(python, runs, extension="seele_verl.fused_head", folder=tmp_path)
    assert len(rows) == len(runs)
    for plain, fused in rows:
        assert fused["log_probs"] == pytest.approx(plain["log_probs"], abs=1e-5)
        assert fused["entropies"] == pytest.approx(plain["entropies"], abs=1e-5)
        assert fused["gradients"] == pytest.approx(plain["gradients"], rel=1e-4, abs=1e-5)


def test_without_our_extension_an_untied_output_layer_is_gathered_by_nothing(
    tmp_path: Path, python: str
) -> None:
    runs = [("Qwen2", True), ("Qwen2", False)]
    ((_, tied), (_, untied)) = compare(python, runs, extension="", folder=tmp_path)
    assert isinstance(tied, dict)
    assert "mixed torch.Tensor and DTensor" in untied, "verl gathers it now: drop seele_verl/fused_head.py"


# --- Rows of a group computed together


def rows_of_groups(draw: random.Random) -> list[tuple[list[int], list[int]]]:
    """Return prompt with hint, and response: groups of nested hints, one of them empty, and a single row."""
    rows = []
    for _ in range(3):
        prompt, solution = draw.choices(range(4), k=draw.randint(1, 3)), draw.choices(range(4), k=6)
        for hint in (0, 2, 6, 2, *draw.choices(range(6), k=2)):
            rows.append((prompt + solution[:hint], draw.choices(range(4), k=draw.randint(1, 5))))
    rows.append(([9], [9]))
    draw.shuffle(rows)
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_a_packed_token_sees_its_own_row_up_to_itself_and_nothing_else(seed):
    rows = rows_of_groups(random.Random(seed))
    lengths, prompts = [len(p + r) for p, r in rows], [len(p) for p, _ in rows]
    ids = [token for p, r in rows for token in p + r]
    # Everything but the first token of a row is wanted.
    wanted = torch.tensor([place > 0 for length in lengths for place in range(length)])
    packing = pack_rows(ids, lengths, prompts, wanted)
    tokens = torch.tensor(ids)[packing.source_C]
    seen = [
        tokens[keys[mask]].tolist()
        for block in packing.blocks
        for keys, masks in zip(block.key_SK, block.mask_S1QK[:, 0], strict=True)
        for mask in masks
    ]
    queries = torch.cat([block.query_SQ.flatten() for block in packing.blocks])
    assert queries[packing.place_C].tolist() == list(range(len(tokens)))
    predictors = packing.predictor_L[packing.predictor_P].tolist()
    predicted = iter(zip(packing.predicted_P.tolist(), predictors, strict=True))
    start = 0
    for prompt, response in rows:
        row = prompt + response
        for place in range(1, len(row)):
            token, predictor = next(predicted)
            assert (token, seen[packing.place_C[predictor]]) == (start + place, row[:place])
        start += len(row)


def test_what_a_group_begins_with_is_computed_once():
    # Prompt 1 2, hints 3 and 3 4. A response's last token predicts nothing.
    rows = [([1, 2], [7, 8]), ([1, 2, 3], [9]), ([6], [1, 2]), ([1, 2, 3, 4], [5, 6, 7])]
    assert share_prompts([prompt for prompt, _ in rows]) == [[2], [3, 1, 0]]
    ids = [token for prompt, response in rows for token in prompt + response]
    wanted = torch.tensor([place >= len(p) for p, r in rows for place in range(len(p + r))])
    packing = pack_rows(ids, [len(p + r) for p, r in rows], [len(p) for p, _ in rows], wanted)
    assert torch.tensor(ids)[packing.source_C].tolist() == [6, 1, *(1, 2, 3, 4), *(5, 6), 7]
    assert torch.tensor(ids)[packing.predicted_P].tolist() == [7, 8, 9, 1, 2, 5, 6, 7]
    # Logits of no token of the prompt but the last ones: 2, 3 and 4 predict the responses' first tokens.
    assert torch.tensor(ids)[packing.source_C[packing.predictor_L]].tolist() == [6, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("seed", range(5))
def test_a_micro_batch_computes_no_more_than_its_limit(seed):
    rows = rows_of_groups(random.Random(seed))
    prompts, responses = [len(p) for p, _ in rows], [len(r) for _, r in rows]
    trunks = share_prompts([p for p, _ in rows])
    for limit, at_least in ((1000, 1), (1000, 7), (30, 1), (14, 1), (14, len(rows))):
        parts = split_rows(trunks, prompts, responses, most_tokens=limit, at_least=at_least)
        assert sorted(row for part in parts for row in part) == list(range(len(rows)))
        assert len(parts) >= at_least and (limit < 1000 or len(parts) == at_least)
        for part in parts:
            ids = [token for row in part for token in rows[row][0] + rows[row][1]]
            lengths = [prompts[row] + responses[row] for row in part]
            wanted = torch.zeros(len(ids), dtype=torch.bool)
            packing = pack_rows(ids, lengths, [prompts[row] for row in part], wanted)
            assert len(packing.source_C) <= limit


ENGINES = """
import json, sys, tempfile
from functools import partial
import torch, transformers
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from seele.losses.imitation import HINT_WEIGHTS, hint_token_weights
from seele.losses.off_policy import OFF_POLICY_MASK
from seele.methods.loss_terms import LossTerms
from seele_verl.losses import have_weight, seele_loss, weight_columns
from seele_verl.protocol import INSTANCE_IDS, LOG_PROB_COLUMNS, WEIGHT_COLUMNS
from seele_verl.settings import read_settings
from seele_verl.train import compose

assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is FSDPEngineWithLMHead
from seele_verl import packed_engine
assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is packed_engine.PackedEngine
assert EngineRegistry.get_engine_cls("value_model", "fsdp2") is not packed_engine.PackedEngine
packed_engine.CHUNK_NUMBERS = 3 * 64  # several chunks of a few distributions each
folder = tempfile.mkdtemp()
draw = torch.Generator().manual_seed(0)


def join(rank, count):
    store = f"file://{folder}/store_of_{count}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=count)


def tokens(count):
    return torch.randint(1, 64, (count,), generator=draw)


def batch(in_response):
    rows = [(tokens(4), tokens(0), tokens(2)), *[(torch.tensor([5, 5, 5]), tokens(0), torch.tensor([5]))] * 2]
    for _ in range(3):
        prompt, solution = tokens(6), tokens(9)
        rows += [(prompt, solution[:hint], tokens(n)) for hint, n in ((0, 5), (3, 1), (7, 4), (3, 2), (9, 9))]
    fields = []
    for prompt, hint, response in rows:
        marked = torch.zeros(len(hint) + len(response))
        marked[:len(hint)] = 1.0
        weights = hint_token_weights(len(prompt), len(hint), len(response), share=1.0, form="token_mean")
        whole = torch.cat([prompt, hint, response])
        if in_response:
            response = whole[len(prompt):]
        else:
            prompt = torch.cat([prompt, hint])
        ones = torch.ones(len(response)) * (whole[0] != whole[1])  # 0 in the rows that fill a batch up
        fields.append({
            "input_ids": whole, "position_ids": torch.arange(len(whole)), "prompts": prompt,
            "responses": response, "response_mask": ones, "loss_mask": ones,
            "old_log_probs": ones * -4.2, "ref_log_prob": ones * -4.1,
            "advantages": ones * torch.randn(1, generator=draw),
            **({OFF_POLICY_MASK: marked} if in_response else {HINT_WEIGHTS: torch.tensor(weights)}),
        })
    nested = {name: torch.nested.as_nested_tensor([row[name] for row in fields], layout=torch.jagged)
              for name in fields[0]}
    return tu.get_tensordict(nested)


def build(engine_class, path, rank):
    model = HFModelConfig(
        path=path, load_tokenizer=False, use_remove_padding=False, enable_gradient_checkpointing=False,
        override_config={"attn_implementation": "sdpa"}, lora_rank=rank,
    )
    precision = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    settings = FSDPEngineConfig(
        strategy="fsdp2", model_dtype="fp32", dtype="float32", mixed_precision=precision,
        use_torch_compile=False,
    )
    engine = engine_class(model, settings, FSDPOptimizerConfig(lr=1e-3), CheckpointConfig())
    engine.initialize()
    weights = torch.Generator().manual_seed(1)
    for parameter in engine.module.parameters():
        if rank and parameter.requires_grad:  # an adapter begins as nothing
            own = parameter.detach().to_local()
            own.copy_(0.1 * torch.randn(own.shape, generator=weights))
    return engine


def told(data, limit):
    data = data.copy()
    tu.assign_non_tensor(
        data, use_dynamic_bsz=limit > 0, max_token_len_per_gpu=limit, micro_batch_size_per_gpu=6,
        use_remove_padding=False, temperature=0.7, calculate_entropy=True,
        global_batch_size=len(data) * torch.distributed.get_world_size(),
        num_hint_weights=57.0, num_off_policy_mask=66.0,
    )
    return data


def updated(engine, data, loss, limit, columns=()):
    with engine.train_mode():
        sent = told(data, limit)
        tu.assign_non_tensor(sent, **{WEIGHT_COLUMNS: columns})
        trained = engine.forward_backward_batch(sent, loss)
        trainable = (each for each in engine.module.parameters() if each.requires_grad)
        gradients = torch.cat([each.grad.full_tensor().flatten() for each in trainable])
    return torch.tensor(sum(trained["loss"])), gradients


def results(engine, data, loss, limit, columns=()):
    trained = updated(engine, data, loss, limit, columns)
    with engine.eval_mode():
        sent = data.select(*LOG_PROB_COLUMNS, INSTANCE_IDS, strict=False)
        passed = engine.infer_batch(told(sent, limit))["model_output"]
    prompts = data["prompts"].offsets().diff().tolist()
    of_responses = [row[prompt - 1 : -1] for name in ("log_probs", "entropy")
                    for row, prompt in zip(passed[name].unbind(), prompts)]
    of_prompts = [row[:prompt - 1] for row, prompt in zip(passed["log_probs"].unbind(), prompts)]
    return *trained, torch.cat(of_responses), torch.cat(of_prompts)


def apart(theirs, ours):
    return (theirs - ours).abs().max().item()


def without(data, rows, name):
    pairs = enumerate(data[name].unbind())
    silent = [row * 0 if place in rows else row for place, row in pairs]
    return data.copy().update({name: torch.nested.as_nested_tensor(silent, layout=torch.jagged)})


def computed_rows(engine, counted):
    prepare = engine.prepare_model_inputs
    def count(micro_batch):
        counted.append(len(micro_batch) * torch.is_grad_enabled())
        return prepare(micro_batch)
    engine.prepare_model_inputs = count


def build_both(family, rank):
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}Config")(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=family == "Llama",
    )
    path = tempfile.mkdtemp()
    transformers.AutoModelForCausalLM.from_config(model).save_pretrained(path)
    return [build(each, path, rank) for each in (FSDPEngineWithLMHead, packed_engine.PackedEngine)]


def loss_of(method, *changes):
    config = compose([f"method={method}", "hardware=cpu", "job=tiny", *changes])
    actor, terms = omega_conf_to_dataclass(config.actor_rollout_ref.actor), LossTerms(read_settings(config))
    return partial(seele_loss, config=actor, terms=terms), weight_columns(actor, terms)


IMITATION = ["seele.imitation.form=token_mean", "seele.imitation.coefficient=1.0"]
ENTROPY = "actor_rollout_ref.actor.entropy_coeff=0.1"
"""

UPDATES = """
join(0, 1)
for family, rank in json.loads(sys.argv[1]):
    engines = build_both(family, rank)
    for method in ("seele", "prefix_rft"):
        loss, _ = loss_of(method, ENTROPY, *(IMITATION if method == "seele" else []))
        data = batch(in_response=method == "prefix_rft")
        for limit in (1000, 40, 0):
            theirs, ours = (results(engine, data, loss, limit) for engine in engines)
            print(json.dumps({
                "loss": apart(theirs[0], ours[0]), "gradients": apart(theirs[1], ours[1]),
                "passes": apart(theirs[2], ours[2]), "largest": theirs[1].abs().max().item(),
                "of prompts": ours[3].abs().max().item(),
            }))
    named = tu.get_tensordict({**data, INSTANCE_IDS: ["i"] * len(data)})
    theirs, ours = (results(engine, named, loss, 1000) for engine in engines)
    print(json.dumps({"with a term of the user's own": apart(theirs[3], ours[3])}))
    loss, columns = loss_of("seele", "actor_rollout_ref.actor.use_kl_loss=false")
    whole = batch(in_response=False)
    some = without(without(whole, range(0, 18, 2), "advantages"), range(0, 18, 4), HINT_WEIGHTS)
    none = without(without(whole, range(18), "advantages"), range(18), HINT_WEIGHTS)
    computed_rows(engines[1], counted := [])
    for data in (whole, some, none):
        for limit in (1000, 40, 0):
            counted.clear()
            theirs = results(engines[0], data, loss, limit)
            ours = results(engines[1], data, loss, limit, columns)
            print(json.dumps({
                "skipped": len(data) - sum(counted),
                "without weight": have_weight(data, columns).count(False),
                "limit": limit, "loss": apart(theirs[0], ours[0]), "gradients": apart(theirs[1], ours[1]),
                "largest": theirs[1].abs().max().item(), "passes": apart(theirs[2], ours[2]),
            }))
"""


def test_a_packed_update_is_verls(tmp_path: Path, python: str) -> None:
    """With verl's engine under FSDP2: SEELE's loss with imitation and entropy, hints in prompt or response, a
    single row, rows that fill up a batch, an adapter, few and many micro-batches.
    """
    program = tmp_path / "program.py"
    program.write_text(ENGINES + UPDATES)
    models = json.dumps([("Llama", 0), ("Qwen2", 0), ("Llama", 4)])
    printed = subprocess.run([python, str(program), models], capture_output=True, text=True, timeout=300)
    assert printed.returncode == 0, printed.stderr
    lines = [json.loads(line) for line in printed.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 3 * (2 * 3 + 1 + 3 * 3)
    skipping = [line for line in lines if "skipped" in line]
    for line in skipping:
        # If no row has weight, one is computed; micro-batches with a fixed number of rows keep one each.
        missing = line["without weight"] - line["skipped"]
        assert missing == {18: 3 if line["limit"] == 0 else 1}.get(line["without weight"], 0)
        assert max(line["loss"], line["gradients"]) < 1e-6 and line["passes"] < 3e-6
        assert (line["largest"] == 0) == (line["without weight"] == 18)
    assert sorted({line["without weight"] for line in skipping}) == [2, 7, 18]
    for line in (line for line in lines if "skipped" not in line):
        if "loss" not in line:
            assert line["with a term of the user's own"] < 3e-6
            continue
        assert line["loss"] < 1e-6
        assert line["gradients"] < 1e-6 and line["gradients"] < 3e-6 * line["largest"]
        assert line["passes"] < 3e-6, "of numbers up to 10"
        assert line["of prompts"] == 0.0, "they are never read"


SHARES = """
def gradients_of_share(rank, count):
    join(rank, count)
    torch.set_num_threads(1)
    engines, of_update = build_both("Llama", 0), {}
    for method in ("seele", "prefix_rft"):
        loss, columns = loss_of(method, ENTROPY, *(IMITATION if method == "seele" else []))
        whole = batch(in_response=method == "prefix_rft")
        rows = torch.arange(len(whole)).chunk(count)[rank].tolist()  # half of a problem's rows in each
        share = tu.index_select_tensor_dict(whole, rows)
        for engine in engines:
            for limit in (1000, 40):
                key = f"{method}, {type(engine).__name__}, {limit}"
                of_update[key] = updated(engine, share, loss, limit, columns)[1]
    torch.save(of_update, f"{folder}/{count}_{rank}")
    torch.distributed.destroy_process_group()


for count in (1, 2):
    torch.multiprocessing.start_processes(gradients_of_share, (count,), nprocs=count, start_method="fork")
alone, first, second = (torch.load(f"{folder}/{name}") for name in ("1_0", "2_0", "2_1"))
for key, gradients in alone.items():
    farthest = max(apart(gradients, first[key]), apart(gradients, second[key]))
    print(json.dumps({"update": key, "apart": farthest, "largest": gradients.abs().max().item()}))
"""


def test_two_ranks_learn_what_one_learns_from_their_rows_together(tmp_path: Path, python: str) -> None:
    """With verl's engine and the packed one: SEELE's loss with imitation and entropy, and Prefix-RFT's."""
    program = tmp_path / "program.py"
    program.write_text(ENGINES + SHARES)
    printed = subprocess.run([python, str(program)], capture_output=True, text=True, timeout=300)
    assert printed.returncode == 0, printed.stderr
    lines = [json.loads(line) for line in printed.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 2 * 2 * 2
    for line in lines:
        assert line["apart"] < 1e-6 < 1e-3 < line["largest"], line["update"]


def test_the_gradient_of_a_nearly_sure_token_survives_half_precision(monkeypatch):
    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cpu")
    from seele_verl import packed_engine

    monkeypatch.setattr(packed_engine, "CHUNK_NUMBERS", 2 * 8)
    sure_LV = torch.zeros(5, 8, dtype=torch.bfloat16)
    sure_LV[:, 3] = 9.0
    exact_LV = sure_LV.double().requires_grad_()
    predictor_P, ids_P = torch.tensor([4, 0, 3]), torch.tensor([3, 3, 2])
    exact_LV.log_softmax(-1)[predictor_P, ids_P].sum().backward()
    rounded_LV = sure_LV.requires_grad_()
    log_probs_P, _ = packed_engine.score(rounded_LV * 1, predictor_P, ids_P, 1.0)
    log_probs_P.sum().backward()
    torch.testing.assert_close(rounded_LV.grad.double(), exact_LV.grad, rtol=0.01, atol=1e-6)


def test_ranks_run_the_same_number_of_micro_batches_whatever_rows_they_leave_out(monkeypatch):
    """Try a rank whose rows have no weight beside one with three micro-batches, and a rank without a peer."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    lengths, columns = [9, 4, 6, 5, 8], ("advantages",)
    parts = {
        name: torch.nested.as_nested_tensor(
            [torch.arange(size) + 10 * row for row, size in enumerate(sizes)], layout=torch.jagged
        )
        for name, sizes in (("input_ids", lengths), ("prompts", [length - 2 for length in lengths]))
    }
    parts["response_mask"] = torch.nested.as_nested_tensor([torch.ones(2)] * 5, layout=torch.jagged)
    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cpu")
    from seele_verl import packed_engine

    monkeypatch.setattr(packed_engine, "get_device_name", lambda: "cpu")
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda count, **_: count.fill_(3))

    def rows_of_micro_batches(weighed, group):
        weights = [torch.full((2,), float(row in weighed)) for row in range(5)]
        advantages = torch.nested.as_nested_tensor(weights, layout=torch.jagged)
        data = TensorDict(parts | {"advantages": advantages}, batch_size=5)
        told = {packed_engine.PACKED: True, packed_engine.WEIGHT_COLUMNS: columns}
        tu.assign_non_tensor(data, **told, use_dynamic_bsz=True, max_token_len_per_gpu=100)
        micro_batches, rows = packed_engine.prepare_micro_batches(data, group)
        assert [len(each) for each in micro_batches] == [len(part) for part in rows]
        for each, part in zip(micro_batches, rows, strict=True):
            counted = [bool(mask.any()) for mask in each["response_mask"].unbind()]
            assert counted == [row in weighed for row in part], "rows that fill up do not count in means"
        return sorted(rows)

    assert rows_of_micro_batches({}, "group") == [[1], [2], [3]], "the shortest three"
    assert rows_of_micro_batches({0}, "group") == [[0], [1], [3]]
    assert sorted(map(len, rows_of_micro_batches({0, 2, 3, 4}, "group"))) == [1, 1, 2]
    assert rows_of_micro_batches({}, None) == [[1]]


def test_verls_engine_looks_its_micro_batches_up_where_ours_are_put():
    source = inspect.getsource(transformer_impl.FSDPEngine.forward_backward_batch)
    assert "micro_batches, indices = prepare_micro_batches(" in source


def test_a_fused_token_predicts_one_token_only():
    """Packed updates refuse it for this reason: a prompt's last token predicts every response's first."""
    from verl.models.transformers import dense_common

    source = inspect.getsource(dense_common.forward_with_torch_backend)
    assert "rolled_labels = shift_labels" in source and "input_ids=rolled_labels" in source


# --- Attention without flash-attn: transformers uses a compiled kernel from the hub, offline from the cache
# The kernel itself needs a GPU. A stand-in in the cache shows where it is looked for, and what it receives
# when sequences are packed as in verl.


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

# The command of docs/gpu.md, which offline takes what is there
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
    # As on a node without a network, with a cache that is not the user's.
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
        *["lengths 4 3"] * 2,  # one per layer
        "equal True",
    ]
