"""Where our SFT run enters verl's trainer, and the configuration that it is given."""

import inspect
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from omegaconf import OmegaConf
from verl.trainer import sft_trainer
from verl.utils.checkpoint import CheckpointHandler
from verl.utils.config import omega_conf_to_dataclass

from seele_verl.sft.config import verl_sft_config
from seele_verl.train import compose, verl_config_folder


def composed(*overrides):
    config = compose(["method=sft", *overrides])
    OmegaConf.resolve(config)
    return config


def translated(*overrides, checkpoint=None):
    return verl_sft_config(
        composed(*overrides), verl_folder=verl_config_folder(), total_steps=96, checkpoint=checkpoint
    )


def test_the_trainer_calls_what_we_override_and_looks_its_tracking_up_by_name():
    fit = inspect.getsource(sft_trainer.SFTTrainer.fit)
    assert "tracking = Tracking(\n" in fit and "tracking.log(data=metrics, step=global_step)" in fit
    assert fit.index("self._get_batch_seqlens(") < fit.index("self.training_client.train_batch(")
    assert "self.train_sampler.set_epoch(epoch=epoch)" in fit
    assert "start_epoch = global_step // self.steps_per_epoch" in fit
    assert "is_last_step and self.val_dataloader is not None or (self.test_freq > 0" in fit
    init = inspect.getsource(sft_trainer.SFTTrainer.__init__)
    assert "self._build_dataloader()" in init
    assert "self.resume_global_step = self.ckpt_handler.load_checkpoint()" in init


def test_the_data_set_is_called_with_the_names_that_ours_has():
    from seele_verl.sft.dataset import SolutionDataset

    source = inspect.getsource(sft_trainer.create_sft_dataset)
    for name in ("parquet_files=", "tokenizer=", "config=", "processor=", "max_samples="):
        assert name in source and name[:-1] in inspect.signature(SolutionDataset).parameters


def test_a_checkpoint_is_complete_before_the_tracker_names_it():
    source = inspect.getsource(CheckpointHandler.save_checkpoint)
    marks = ("self.engine.save_checkpoint(", "torch.save(", "os.rename(temp_tracker_file, tracker_file)")
    written = [source.index(mark) for mark in marks]
    assert written == sorted(written)


def test_luffys_numbers_are_the_default():
    # arXiv:2504.14945, appendix: OpenRLHF, learning rate 5e-5, batch 64, three epochs, warm-up 0.1.
    sft = translated("hardware=gpu8")
    assert (sft.optim.lr, sft.optim.lr_warmup_steps_ratio) == (5e-5, 0.1)
    assert (sft.optim.lr_scheduler_type, sft.optim.min_lr_ratio) == ("cosine", 0.1)
    assert (sft.data.train_batch_size, sft.trainer.total_epochs) == (64, 3)


@pytest.mark.parametrize(("hardware", "model"), [("cpu", "tiny"), ("gpu8", "qwen2_5_7b"), ("gpu1", "tiny")])
def test_verl_builds_its_settings_from_ours(hardware, model):
    sft = translated(f"hardware={hardware}", f"model={model}")
    engine, optim = omega_conf_to_dataclass(sft.engine), omega_conf_to_dataclass(sft.optim)
    assert (engine.strategy, engine.param_offload, engine.optimizer_offload) == ("fsdp2", False, False)
    # On GPUs once an epoch: three epochs are 96 steps here.
    assert sft.trainer.save_freq == (10 if hardware == "cpu" else 32)
    assert optim.total_training_steps == sft.trainer.total_training_steps == 96
    assert "hf_model" in omega_conf_to_dataclass(sft.checkpoint).save_contents
    assert sft.model == composed(f"hardware={hardware}", f"model={model}").actor_rollout_ref.model
    assert sft.data.max_token_len_per_gpu == {"cpu": 16384, "gpu8": 24576, "gpu1": 12288}[hardware]
    assert (sft.trainer.device, sft.data.pad_mode) == ("cpu" if hardware == "cpu" else "cuda", "no_padding")


@pytest.mark.parametrize(
    "key", ["ulysses_sequence_parallel_size", "fsdp_config.ulysses_sequence_parallel_size"]
)
def test_sequences_are_shared_as_in_rl(key):
    sft = translated("hardware=gpu8", f"actor_rollout_ref.actor.{key}=2")
    assert omega_conf_to_dataclass(sft.engine).ulysses_sequence_parallel_size == 2


def test_a_run_resumes_where_it_is_told_and_nowhere_else():
    assert translated().trainer.resume_mode == "disable"
    resumed = translated(checkpoint=Path("runs/sft/global_step_8")).trainer
    assert (resumed.resume_mode, resumed.resume_from_path) == ("resume_path", "runs/sft/global_step_8")


def test_keys_of_verl_are_followed_and_seeles_own_win():
    assert translated("actor_rollout_ref.actor.optim.lr=1e-4").optim.lr == 1e-4
    assert translated("data.train_batch_size=32").data.train_batch_size == 32
    assert translated("seele.sft.learning_rate=2e-5").optim.lr == 2e-5
