"""What takes the place of verl's advantages is what verl would have computed."""

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import numpy as np
import torch
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from seele.config import HintConfig, ImitationConfig, OffPolicyConfig, SeeleConfig
from seele.methods import METHODS
from seele.methods.advantage import group_advantages
from seele.methods.baselines import build_baseline, group_of
from seele.methods.loss_terms import LossTerms
from seele.methods.sources import build_source
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance, Rollout
from seele_verl import off_policy
from seele_verl.protocol import training_rows

INSTANCE = Instance(instance_id="i", data_source="x", question="?", steps=("a", "b"), answer="c")


class Store:
    """TransferQueue with one batch in it."""

    def __init__(self, fields):
        self.fields = fields

    def kv_batch_get(self, *, select_fields, **_):
        return {name: self.fields[name] for name in select_fields}

    def kv_batch_put(self, *, keys, partition_id, fields):
        self.fields |= {name: fields[name] for name in fields.keys()}  # noqa: SIM118
        return KVBatchMeta(keys=keys, partition_id=partition_id, tags=[{}] * len(keys))


def random_rollouts(rng, size):
    """Right and wrong ones of several rounds and hints, some of them of the same length."""
    return [
        Rollout(
            round_index=index // 3,
            rollout_index=index,
            share=HintShare(float(rng.choice([0.0, 0.5])), 1),
            hint_steps=0,
            completion=Completion(
                text="", token_ids=(5,) * int(rng.integers(1, 6)), log_probs=(), finish=Finish.STOP
            ),
            grade=Grade(correct, GradeReason.CORRECT, 0.0 if correct else float(rng.choice([0.0, 0.1]))),
        )
        for index, correct in enumerate(rng.integers(0, 2, size).astype(bool).tolist())
    ]


@pytest.mark.parametrize(
    ("method", "estimator", "divide_by_std"),
    [("seele", "grpo", False), ("grpo", "grpo", True), ("drgrpo", "grpo", False), ("rloo", "rloo", True)],
)
@pytest.mark.parametrize("factor", [0.0, 1.0], ids=["no penalty", "penalties"])
def test_pooled_and_leave_one_out_advantages_are_verls(method, estimator, divide_by_std, factor, monkeypatch):
    rng = np.random.default_rng([len(method), int(factor)])
    no_hints = {"hints": HintConfig(controller="none", rounds=1), "imitation": ImitationConfig(coefficient=0)}
    settings = SeeleConfig(method=method, off_policy=OffPolicyConfig(), **no_hints)
    source = build_source(settings.off_policy)
    baseline = build_baseline(
        settings, leave_one_out=METHODS[method].leaves_one_out, divide_by_std=divide_by_std
    )
    uids, keys, tags, scores, masks = [], [], [], [], []
    # A group of one, one in which all agree as far as graders and penalties let them, and larger ones.
    for number, size in enumerate([1, 2, 5, 16, 16, 9]):
        rollouts = random_rollouts(rng, size)
        penalties = (-factor * rng.random(size) * rng.integers(0, 2, size)).tolist()
        group = group_of("i", rollouts, penalties=penalties, target_accuracy=0.5)
        rows = training_rows(
            f"step1-{number}",
            INSTANCE,
            rollouts,
            prompt_ids=[1, 2],
            step_ids=[[3], [4]],
            model_version=0,
            global_step=1,
            terms=LossTerms(settings),
            source=source,
            rewards=group.rewards_G.tolist(),
            advantages=group_advantages(group, source=source, baseline=baseline),
            tells_accuracy=False,
        )
        uids += [number] * size
        keys += rows.keys
        tags += rows.tags
        scores += rows.fields["rm_scores"].unbind()
        masks += rows.fields["response_mask"].unbind()
    # verl fills batches up with rows without loss, which have tags of the first row.
    uids.append(99)
    keys.append("padding_0_0")
    tags.append({"is_padding": True})
    scores.append(torch.zeros(4))
    masks.append(torch.zeros(4, dtype=masks[0].dtype))

    mask = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
    rewards = torch.nested.as_nested_tensor(scores, layout=torch.jagged)
    padded = {"response_mask": mask.to_padded_tensor(0), "token_level_rewards": rewards.to_padded_tensor(0)}
    verls = compute_advantage(
        DataProto.from_dict(padded, non_tensors={"uid": np.array(uids, dtype=object)}),
        adv_estimator=estimator,
        norm_adv_by_std_in_grpo=divide_by_std,
    ).batch["advantages"]

    store = Store({"response_mask": mask})
    monkeypatch.setattr(off_policy, "tq", store)
    off_policy.write_advantages(KVBatchMeta(keys=keys, partition_id="train", tags=tags), source)
    written = store.fields["advantages"].to_padded_tensor(0.0)
    # The largest is about 4; single precision leaves 1e-7 of a reward, over a deviation that may be small.
    torch.testing.assert_close(written, verls.to(written.dtype), rtol=2e-6, atol=2e-6)
    assert written.abs().max() > 0.5 and (written[-1] == 0).all()
    torch.testing.assert_close(store.fields["returns"].values(), store.fields["advantages"].values())
