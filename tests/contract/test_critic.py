"""The critic of ``method=ppo``, and the estimators of ``ppo`` and ``rloo``: verl's, under our settings."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import torch
from tensordict import NonTensorData, TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import value_loss

from seele_verl.critic import CriticWorker, load_value_model
from seele_verl.protocol import CRITIC_COLUMNS, LOG_PROB_COLUMNS
from seele_verl.runs.card import count_critic_parameters, count_parameters
from seele_verl.train import compose


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A causal model of the tiny base model's family, with weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("model")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(vocab_size=40, tie_word_embeddings=True, **sizes, **heads)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def load(model, seed=0):
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model, attn_implementation="sdpa", num_labels=1)
    torch.manual_seed(seed)
    return load_value_model(str(model), torch.float32, config, False)


# The value model


def test_verl_loads_value_models_with_flash_attention_whatever_the_settings_say():
    from verl.utils import model as verl_model
    from verl.workers.engine.fsdp import transformer_impl

    source = inspect.getsource(transformer_impl.FSDPEngine._build_module)
    assert "from verl.utils.model import load_valuehead_model" in source
    load_of_verl = inspect.getsource(inspect.getmodule(verl_model.compute_position_id_with_mask))
    assert 'attn_implementation="flash_attention_2"' in load_of_verl, (
        "verl goes by the settings now: drop ours"
    )
    assert list(inspect.signature(load_value_model).parameters) == [
        "local_path",
        "torch_dtype",
        "model_config",
        "trust_remote_code",
    ]


def test_the_critic_begins_as_the_policys_model_with_a_head_of_one_value(model):
    from transformers import AutoModelForCausalLM

    critic, policy = load(model), AutoModelForCausalLM.from_pretrained(model)
    assert critic.config._attn_implementation == "sdpa"
    of_policy = dict(policy.model.named_parameters())
    for name, parameter in critic.model.named_parameters():
        assert torch.equal(parameter, of_policy.pop(name)), name
    assert not of_policy
    assert critic(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 1)
    # The output layer is the embedding, so the head is extra in the critic.
    own = sum(parameter.numel() for parameter in critic.parameters())
    assert count_critic_parameters(str(model)) == own == count_parameters(str(model)) + 16 + 1


def test_the_value_head_is_drawn_from_the_runs_seed(model, monkeypatch):
    from verl.utils import model as verl_model

    heads = []

    def reset(self):
        heads.append(verl_model.load_valuehead_model(str(model), torch.float32, config, False).score.weight)

    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model, attn_implementation="sdpa", num_labels=1)
    monkeypatch.setattr(TrainingWorker, "reset", reset)
    monkeypatch.setattr(verl_model, "load_valuehead_model", None)
    worker = object.__new__(CriticWorker)
    before = torch.get_rng_state()
    for seed in (7, 7, 8):
        worker.engine_config = SimpleNamespace(seed=seed)
        worker.reset()
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])
    assert torch.equal(torch.get_rng_state(), before), "later draws do not depend on the head"


def test_the_critic_follows_the_policys_settings():
    common = ("method=ppo", "seele.seed=5", "actor_rollout_ref.model.path=some/model")
    offload = "actor_rollout_ref.actor.fsdp_config.param_offload=true"
    cpu, gpu = compose([*common, "hardware=cpu", "job=tiny"]), compose([*common, "hardware=gpu8", offload])
    for config in (cpu, gpu):
        critic, actor = config.critic, config.actor_rollout_ref.actor
        assert (critic.model.path, critic.strategy) == (config.actor_rollout_ref.model.path, "fsdp2")
        assert critic.ppo_infer_max_token_len_per_gpu == actor.ppo_max_token_len_per_gpu
        assert (critic.ppo_mini_batch_size, critic.ppo_epochs) == (actor.ppo_mini_batch_size, 1)
        assert (critic.data_loader_seed, critic.fsdp.seed) == (5, 5)
        assert critic.loss_agg_mode == actor.loss_agg_mode == "token-mean"
    assert (cpu.critic.fsdp.mixed_precision.param_dtype, cpu.critic.fsdp.dtype) == ("fp32", "float32")
    assert cpu.critic.model.override_config.attn_implementation == "sdpa"
    assert (cpu.critic.model.use_remove_padding, gpu.critic.model.use_remove_padding) == (False, True)
    assert gpu.critic.fsdp.mixed_precision is None
    assert gpu.critic.fsdp.param_offload and not cpu.critic.fsdp.param_offload
    # A head of one value has no logits to fuse.
    assert gpu.actor_rollout_ref.model.use_fused_kernels and not gpu.critic.model.get("use_fused_kernels")


def test_the_micro_batch_limit_is_the_one_that_verls_trainer_reads():
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    source = inspect.getsource(PPOTrainer._setup)
    for limit in ("infer_max_token_len_per_gpu", "max_token_len_per_gpu"):
        assert f"critic_cfg.engine.{limit} = critic_cfg.ppo_infer_max_token_len_per_gpu" in source
    assert "critic_cfg.use_dynamic_bsz" not in source and "critic_cfg.grad_clip" not in source


def test_the_critic_shares_the_policys_processes():
    # The critic then reserves nothing of its own in Ray, and computes with as many threads.
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    source = inspect.getsource(PPOTrainer._init_resource_pool_mgr)
    assert 'self.mapping[Role.Critic] = "global_pool"' in source
    assert "self.role_worker_mapping[Role.Critic] = ray.remote(TrainingWorker)" in source
    assert "create_colocated_worker_cls(class_dict=class_dict)" in inspect.getsource(PPOTrainer._setup)


# Estimates


def batch_of(rewards, values=None, *, groups=None, padding=0):
    """Return responses of three tokens, rewarded at the end, then padding rows of one masked token each."""
    rows = len(rewards) + padding
    scores, mask = torch.zeros(rows, 3), torch.zeros(rows, 3)
    scores[: len(rewards), -1] = torch.tensor(rewards)
    mask[: len(rewards)] = 1
    tensors = {"token_level_rewards": scores, "response_mask": mask}
    if values is not None:
        tensors["values"] = torch.tensor([*values, *[[0.7, 0.0, 0.0]] * padding])
    uids = [*(groups or ["a"] * len(rewards)), *["pad"] * padding]
    return DataProto.from_dict(tensors=tensors, non_tensors={"uid": np.array(uids, dtype=object)})


def estimate(batch, method):
    algorithm = compose([f"method={method}", "hardware=cpu", "job=tiny"]).algorithm
    data = compute_advantage_for_multi_trajectories(
        batch,
        batch_keys=[f"{uid}_{row}_0" for row, uid in enumerate(batch.non_tensor_batch["uid"])],
        adv_estimator=algorithm.adv_estimator,
        gamma=algorithm.gamma,
        lam=algorithm.lam,
        norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
        config=algorithm,
    )
    return data.batch["advantages"], data.batch["returns"]


def test_with_lambda_and_gamma_one_a_token_has_the_reward_minus_its_value():
    values = [[0.5, 0.25, 0.75], [0.0, 0.5, 0.25]]
    advantages, returns = estimate(batch_of([1.0, 0.0], values, padding=2), "ppo")
    expected = torch.tensor([[0.5, 0.75, 0.25], [0.0, -0.5, -0.25]])
    torch.testing.assert_close(returns[:2], torch.tensor([[1.0] * 3, [0.0] * 3]))
    # Whitened over the six tokens, without padding.
    torch.testing.assert_close(
        advantages[:2], (expected - expected.mean()) / expected.std(), atol=1e-5, rtol=0
    )


def test_a_group_whose_rollouts_agree_has_advantages_under_a_critic():
    advantages, _ = estimate(batch_of([1.0, 1.0], [[0.5, 0.6, 0.9], [0.2, 0.6, 0.9]]), "ppo")
    assert advantages.abs().min() > 0.01


def test_hand_worked_leave_one_out():
    # 1 minus the mean of 0, 0, 0; 0 minus the mean of 1, 0, 0. Then a group of two, and padding.
    rewards, groups = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [*"aaaa", *"bb"]
    advantages, _ = estimate(batch_of(rewards, groups=groups, padding=3), "rloo")
    expected = torch.tensor([1.0, -1 / 3, -1 / 3, -1 / 3, 1.0, -1.0, 0.0, 0.0, 0.0])
    torch.testing.assert_close(advantages[:, 0], expected)
    assert not estimate(batch_of([1.0, 1.0, 1.0]), "rloo")[0].any()


def test_leave_one_out_is_what_verls_estimator_gives():
    from verl.trainer.ppo.core_algos import compute_rloo_outcome_advantage

    rng = np.random.default_rng(0)
    rewards, groups = rng.integers(0, 2, 40).astype(float).tolist(), [*"abcde"] * 8
    batch = batch_of(rewards, groups=groups)
    ours, _ = estimate(batch, "rloo")
    verls, _ = compute_rloo_outcome_advantage(
        batch.batch["token_level_rewards"], batch.batch["response_mask"], np.array(groups)
    )
    torch.testing.assert_close(ours, verls)
    for row, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        others = [r for i, (r, g) in enumerate(zip(rewards, groups, strict=True)) if g == group and i != row]
        assert ours[row, 0].item() == pytest.approx(reward - sum(others) / 7, abs=1e-6)


# The critic's loss, on the columns that it receives


def nested(rows):
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def test_the_critics_loss_is_a_mean_over_tokens_of_the_squared_error(model):
    composed = compose(["method=ppo", "hardware=cpu", "job=tiny", f"actor_rollout_ref.model.path={model}"])
    config = omega_conf_to_dataclass(composed.critic)
    prompts, responses = [[1, 2], [3]], [[4, 5, 6], [7, 8]]
    returns, old = [[1.0] * 3, [0.0] * 2], [[0.5, 0.25, 0.75], [0.125, 0.25]]
    fields = {
        "prompts": nested(prompts),
        "responses": nested(responses),
        "response_mask": nested([[1] * 3, [1] * 2]),
        "loss_mask": nested([[1] * 3, [1] * 2]),
        "input_ids": nested([p + r for p, r in zip(prompts, responses, strict=True)]),
        "position_ids": nested([[0, 1, 2, 3, 4], [0, 1, 2]]),
        "returns": nested(returns),
        "values": nested(old),
    }
    assert fields.keys() == set(CRITIC_COLUMNS) and set(LOG_PROB_COLUMNS) <= set(CRITIC_COLUMNS)
    data = TensorDict(fields, batch_size=2)
    for name, value in {"dp_size": 1, "batch_num_tokens": 5, "global_batch_size": 2}.items():
        data[name] = NonTensorData(value)
    # A token's value is predicted at the one before it; the last token predicts nothing.
    predicted = nested([[9.0, *old[0], 9.0], [*old[1], 9.0]])
    loss, metrics = value_loss(config, {"values": predicted}, data)
    errors = [0.5, 0.75, 0.25, 0.125, 0.25]
    assert loss.item() == pytest.approx(0.5 * sum(error**2 for error in errors) / 5)
    assert metrics["critic/vf_clipfrac"] == 0.0
