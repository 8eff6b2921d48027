"""What a step measures beside its losses: its cost, the reliance on hints, a teacher's opinion."""

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from seele.config import HintConfig, ImitationConfig, SeeleConfig
from seele.methods.sources import build_source
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance, Rollout, Visit
from seele_verl import columns, cost_meter
from seele_verl.hint_reliance import measure_hint_reliance
from seele_verl.self_distillation import ask_teacher, extra_teacher_tokens, write_divergence
from seele_verl.solutions import Solution
from seele_verl.step_record import StepRecord


class Queue:
    """A TransferQueue in this process: partition -> key -> column -> tensor."""

    def __init__(self):
        self.partitions = defaultdict(lambda: defaultdict(dict))

    def kv_batch_put(self, *, keys, partition_id, fields, tags=None):
        for name, column in fields.items():
            for key, values in zip(keys, column.unbind(), strict=True):
                self.partitions[partition_id][key][name] = values
        return KVBatchMeta(keys=[*keys], partition_id=partition_id, tags=tags or [{}] * len(keys))

    def kv_batch_get(self, *, keys, partition_id, select_fields):
        rows = [self.partitions[partition_id][key] for key in keys]
        return TensorDict({name: jagged([row[name] for row in rows]) for name in select_fields}, len(rows))

    def kv_clear(self, *, keys, partition_id):
        del self.partitions[partition_id]


def jagged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


@pytest.fixture
def queue(monkeypatch):
    queue = Queue()
    monkeypatch.setattr(columns, "tq", queue)
    return queue


def visit_of(rollouts, *, prompt_tokens=2):
    """Return a visit with ``rollouts``, (steps of the hint, is right) each; a step has one token."""
    instance = Instance(instance_id="i", data_source="x", question="?", steps=("a", "b"), answer="b")
    made = tuple(
        Rollout(
            round_index=index // 2,
            rollout_index=index,
            share=HintShare(hint / 2, 1),
            hint_steps=hint,
            completion=Completion(text="", token_ids=(7, 8), log_probs=(-1.0, -2.0), finish=Finish.STOP),
            grade=Grade(right, GradeReason.CORRECT if right else GradeReason.WRONG),
        )
        for index, (hint, right) in enumerate(rollouts)
    )
    return Visit(instance=instance, step=1, prompt_tokens=prompt_tokens, step_tokens=(1, 1), rollouts=made)


def score_by_place(queue):
    """Return a pass that gives the token at place p of a row the log-probability -p."""

    def score(batch):
        for row in queue.partitions[batch.partition_id].values():
            row["log_probs"] = -torch.arange(1.0, len(row["input_ids"]) + 1)
        score.rows = len(batch.keys)

    return score


def test_passes_for_log_probabilities_cost_once_a_step_however_often_it_trains(monkeypatch):
    """The step has 100 tokens, two epochs over them, and one pass for old log-probabilities."""
    monkeypatch.setattr(cost_meter, "count_parameters", lambda *_, **__: 1)
    monkeypatch.setattr(cost_meter, "count_critic_parameters", lambda *_, **__: 3)
    model = {"path": "", "trust_remote_code": False}
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"model": model, "actor": {"ppo_epochs": 2, "use_kl_loss": False}},
            "algorithm": {"rollout_correction": {"bypass_mode": False}},
            "critic": {"model": model, "ppo_epochs": 3},
        }
    )

    def metrics_of(step, *, has_critic=False, imitation=0.0, **hints):
        imitation = ImitationConfig(coefficient=imitation)
        seele = SeeleConfig(method="grpo", hints=HintConfig(**hints), imitation=imitation)
        meter = cost_meter.CostMeter(config, seele, build_source(seele.off_policy), has_critic=has_critic)
        return meter.metrics(step, rows)

    visit = visit_of([(0, False), (1, True)], prompt_tokens=20)
    monkeypatch.setattr(cost_meter, "tokens_by_round", lambda visits: {0: 60} if visits == [visit] else {})
    rows = {
        "u_0_0": {"prompt_len": 20, "response_len": 40},
        "u_1_0": {"prompt_len": 25, "response_len": 15},
    }
    step = StepRecord(
        visits={"u": visit},
        controller_metrics={"tokens/prefilled": 3.0, "tokens/generated": 5.0},
        informative={"u_0_0", "of_another_step"},
    )
    metrics = metrics_of(step)
    assert metrics["flops"] == 2 * (3 + 5) + 6 * 200 + 2 * 100
    # A hint is learnt where it is imitated.
    assert metrics["tokens/teacher_forced"] == 0
    assert metrics_of(step, imitation=0.001)["tokens/teacher_forced"] == 1
    # Two epochs over the longer prompt and both responses, and over the one informative row.
    assert metrics["tokens/trained_packed"] == 2 * (25 + 40 + 15)
    assert metrics["tokens/trained_informative"] == 2 * (20 + 40)
    # A hint in the user's turn is followed by the template's tokens, so prompts have no common beginning.
    apart = metrics_of(step, placement="user", request="{question} Begin with: {hint}")
    assert apart["tokens/trained_packed"] == 2 * (20 + 40 + 25 + 15)
    # verl makes that pass even if no group is worth an update.
    without = replace(step, updates=False)
    metrics = metrics_of(without)
    assert (metrics["flops"], metrics["flops_round_0"]) == (2 * (8 + 100), 2 * 60)
    assert metrics["tokens/trained_informative"] == 0
    # A supervised update between steps, of 10 tokens with a solution of 6, is made once.
    solutions = [Solution(prompt_ids=[1] * 4, response_ids=[2] * 6)]
    metrics = metrics_of(replace(without, solutions=solutions))
    assert (metrics["flops"], metrics["tokens/teacher_forced"]) == (2 * 8 + 6 * 10 + 2 * 100, 6)
    trained = ("tokens/trained", "tokens/trained_packed", "tokens/trained_informative")
    assert [metrics[name] for name in trained] == [10, 10, 10]
    # A critic of three parameters: one pass for values, and three epochs of its own.
    metrics = metrics_of(step, has_critic=True)
    assert metrics["flops"] == 2 * 8 + 6 * 200 + 2 * 100 + 3 * (6 * 300 + 2 * 100)
    assert (metrics["tokens/trained"], metrics["tokens/critic_trained"]) == (200, 300)
    # The reference model's pass, for a KL term.
    config.actor_rollout_ref.actor.use_kl_loss = True
    assert metrics_of(without)["flops"] == 2 * (8 + 2 * 100)


def test_hint_reliance_compares_right_hinted_rows_and_none_that_fills_a_batch_up(queue):
    visits = {"step1-000000": visit_of([(1, True), (1, False), (0, True), (1, True)])}
    keys = [f"step1-000000_{index}_0" for index in range(4)]
    tags = [{}, {}, {}, {"is_padding": True}]
    for key in keys:
        queue.partitions["train"][key] = {
            # Wherever it states the hint.
            "prompts": torch.tensor([1, 2, 3, 4, 5]),
            "responses": torch.tensor([7, 8]),
            "old_log_probs": torch.tensor([-1.0, -2.0]),
        }
    batch = KVBatchMeta(keys=keys, partition_id="train", tags=tags)
    score = score_by_place(queue)
    workers = SimpleNamespace(compute_log_prob=score)
    how = {"ask": {"?": [1, 2]}.__getitem__, "temperature": 1.0, "multiple": 2}
    found = measure_hint_reliance(batch, visits, workers, **how)
    # Alone, the response is at places 2 and 3; after its hint the policy gave -1 and -2.
    assert found == {"hints/reliance": pytest.approx((-2 - 3) / 2 - (-1 - 2) / 2)}
    assert score.rows == 2, "the only row was repeated, for two ranks"
    assert "rescored" not in queue.partitions
    unhinted = {"step1-000000": visit_of([(0, True)] * 4)}
    assert measure_hint_reliance(batch, unhinted, workers, **how) == {}
    # The rows go even if scoring fails.
    with pytest.raises(ZeroDivisionError):
        measure_hint_reliance(batch, visits, SimpleNamespace(compute_log_prob=lambda _: 1 / 0), **how)
    assert "rescored" not in queue.partitions


def test_a_tokens_advantage_is_what_the_teacher_thinks_more_of_it(queue):
    keys, tags = ["step1-000000_0_0", "step1-000001_0_0", "padding_0_0"], [{}, {}, {"is_padding": True}]
    for key in keys:
        queue.partitions["train"][key] = {
            "prompts": torch.tensor([1, 2]),
            "responses": torch.tensor([7, 8]),
            "old_log_probs": torch.tensor([-1.0, -2.0]),
            "response_mask": torch.tensor([1, 1]),
        }
    queue.partitions["train"]["padding_0_0"]["response_mask"] = torch.tensor([0, 0])
    batch = KVBatchMeta(keys=keys, partition_id="train", tags=tags)
    prompts = {"step1-000000": [1, 5, 5, 5, 2]}
    ask_teacher(batch, prompts, score_by_place(queue), multiple=1)
    row, unsolved, filler = (queue.partitions["train"][key] for key in keys)
    assert row["ref_log_prob"].tolist() == [-5.0, -6.0] and filler["ref_log_prob"].tolist() == [-2.0, -3.0]
    assert write_divergence(batch, prompts) == 4.0
    assert row["advantages"].tolist() == [-4.0, -4.0]
    assert not unsolved["advantages"].any() and not filler["advantages"].any()
    assert write_divergence(batch, {}) == 0.0
    visits = {"step1-000000": visit_of([(0, True), (0, True), (1, True), (0, True)])}
    assert extra_teacher_tokens(visits, prompts) == {0: 6, 1: 5}
