"""Supervised fine-tuning in verl: where our run hooks in, and verl's loss."""

import inspect
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer import sft_trainer
from verl.utils import tensordict_utils as tu
from verl.utils.checkpoint import CheckpointHandler
from verl.utils.checkpoint.checkpoint_handler import extract_step
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import sft_loss

from seele_verl.compat import verl_config_folder
from seele_verl.sft.config import verl_sft_config
from seele_verl.train import compose

# --- Where our SFT run hooks into verl's trainer, and the configuration that it gets


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


def test_a_checkpoint_of_a_supervised_run_that_only_its_age_caused_goes_after_the_next(tmp_path, monkeypatch):
    from seele_verl.runs.checkpoints import load_part, saved_steps, step_folder
    from seele_verl.sft.trainer import SupervisedTrainer

    trainer = object.__new__(SupervisedTrainer)
    trainer.ckpt_handler = SimpleNamespace(save_checkpoint=lambda step: None)
    trainer.train_dataset = SimpleNamespace(problems_sha256="theirs")
    trainer._run, trainer.rank, trainer._save_freq, trainer._last_step = tmp_path, 0, 4, 20
    monkeypatch.setattr(sft_trainer.SFTTrainer, "_build_ckpt_handler", lambda self: None)
    trainer._build_ckpt_handler()
    for step in (4, 5, 8, 10):
        trainer.ckpt_handler.save_checkpoint(step)
    assert saved_steps(tmp_path) == [4, 8, 10]
    # Step 10 was the last one before the run was asked to stop; it goes on.
    trainer.total_training_steps = 10
    for step in (10, 11, 20):
        trainer.ckpt_handler.save_checkpoint(step)
    assert saved_steps(tmp_path) == [4, 8, 20]
    assert load_part(step_folder(tmp_path, 8), "problems") == {"sha256": "theirs"}


def test_a_run_goes_on_at_its_checkpoints_step_whatever_the_folders_above_are_called(monkeypatch):
    from seele_verl.sft.trainer import SupervisedTrainer

    checkpoint = "/runs/global_step_500/sft/global_step_8"
    assert extract_step(checkpoint) == 500, "verl reads the last step: ours need not"

    def verls_own(trainer, config):
        trainer.resume_global_step = extract_step(config.trainer.resume_from_path or "") or 0
        trainer.train_dataloader = SimpleNamespace()
        trainer.save_freq, trainer.total_training_steps = 4, 20

    monkeypatch.setattr(sft_trainer.SFTTrainer, "__init__", verls_own)
    for path, step in ((checkpoint, 8), (None, 0)):
        settings = {"default_local_dir": "/runs", "resume_from_path": path, "save_every_minutes": None}
        trainer = SupervisedTrainer(OmegaConf.create({"trainer": settings}))
        assert trainer.resume_global_step == trainer.train_dataloader.steps_done == step


@pytest.mark.parametrize("offload", [True, False])
def test_a_rank_takes_its_share_of_the_cores_where_the_optimizer_runs_on_the_host(
    tmp_path, monkeypatch, offload
):
    from seele_verl.sft import trainer

    settings = {
        "trainer": {"device": "cuda", "n_gpus_per_node": 4},
        "actor_rollout_ref": {"actor": {"strategy": "fsdp2", "fsdp_config": {"offload_policy": offload}}},
        "seele": {"packed_updates": False},
    }
    (tmp_path / "resolved.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(settings)))
    monkeypatch.setattr(sys, "argv", ["trainer", str(tmp_path), "--steps=1"])
    shared = []
    monkeypatch.setattr(trainer, "share_cores", shared.append)
    monkeypatch.setattr(trainer, "SupervisedTrainer", lambda config: SimpleNamespace(fit=lambda: None))
    unused = ("end_with", "verl_sft_config", "initialize_global_process_group")
    for name in (*unused, "destroy_global_process_group"):
        monkeypatch.setattr(trainer, name, lambda *_, **__: None)
    trainer.main()
    assert shared == ([4] if offload else [])


def test_an_old_run_is_kept_until_the_first_update(tmp_path, monkeypatch):
    from seele_verl.runs.undo import KEPT
    from seele_verl.sft.trainer import SupervisedTrainer

    (tmp_path / KEPT).mkdir()
    trainer = object.__new__(SupervisedTrainer)
    trainer._run, trainer.rank, trainer.device_name = tmp_path, 1, "none"
    trainer._steps_begun = trainer.resume_global_step = 4
    for rank in (1, 0):
        assert (tmp_path / KEPT).exists()
        trainer.rank = rank
        with pytest.raises(AttributeError):  # what this part of a trainer lacks
            trainer._get_batch_seqlens({})
    assert not (tmp_path / KEPT).exists()


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
    # Those of sft_rl's second stage.
    of_rl = translated("hardware=gpu8", "actor_rollout_ref.actor.optim.lr_warmup_steps=9")
    assert of_rl.optim.lr_warmup_steps == -1


def test_flops_count_all_parameters_where_a_rank_has_a_shard(tmp_path):
    from safetensors.torch import save_file

    from seele_verl.sft.trainer import StepLog

    save_file({"weight": torch.ones(4, 6)}, tmp_path / "model.safetensors")
    folders = {
        "model": {"path": str(tmp_path), "trust_remote_code": False},
        "trainer": {"default_local_dir": str(tmp_path)},
    }
    trainer = SimpleNamespace(
        config=OmegaConf.create(folders),
        engine=SimpleNamespace(module=torch.nn.Linear(6, 2, bias=False)),
        resume_global_step=0,
        response_tokens=5,
        train_dataloader=SimpleNamespace(began_at=0.0),
    )
    logged = []
    StepLog(trainer, SimpleNamespace(log=lambda metrics, step: logged.append(metrics))).log(
        {"train/global_tokens": 10}, 1
    )
    assert logged[0]["flops"] == 6 * 24 * 10


@pytest.mark.parametrize(("hardware", "model"), [("cpu", "tiny"), ("gpu8", "qwen2_5_7b"), ("gpu1", "tiny")])
def test_verl_builds_its_settings_from_ours(hardware, model):
    job = "tiny" if hardware == "cpu" else "method"
    sft = translated(f"hardware={hardware}", f"job={job}", f"model={model}")
    engine, optim = omega_conf_to_dataclass(sft.engine), omega_conf_to_dataclass(sft.optim)
    assert (engine.strategy, engine.param_offload, engine.optimizer_offload) == ("fsdp2", False, False)
    # On GPUs, once per epoch: three epochs are 96 steps here.
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


# --- verl's SFT loss is the token mean of the whole batch, however it is divided over micro-batches and ranks
# Averaging each part's own mean instead weighs a token by the length of its neighbours; that bug, and a
# gradient that loses all micro-batches but one, are what deflated SFT baselines in this literature.


VOCABULARY = 7
# (prompt, response) tokens of each sequence, with very different lengths.
LENGTHS = [(3, 1), (2, 9), (4, 2), (1, 5)]


def sequences() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randint(VOCABULARY, (prompt + response,), generator=generator),
            torch.tensor([0] * prompt + [1] * response),
        )
        for prompt, response in LENGTHS
    ]


class Bigram(torch.nn.Module):
    """A language model small enough to write down its gradient: the next token depends on the last."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.logits = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=generator))

    def log_probs(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return each successor's log-probability; the last one's is the first, as in verl, and masked."""
        return torch.log_softmax(self.logits[tokens], -1).gather(-1, tokens.roll(-1)[:, None])[:, 0]


def loss_of(model: Bigram, rows, *, batch_num_tokens: int, dp_size: int) -> torch.Tensor:
    """Return verl's loss of a micro-batch, given engine inputs (``FSDPEngine.forward_backward_batch``)."""
    mask = torch.nested.as_nested_tensor([mask for _, mask in rows], layout=torch.jagged)
    data = TensorDict({"loss_mask": mask}, batch_size=[len(rows)])
    tu.assign_non_tensor(data, batch_num_tokens=batch_num_tokens, dp_size=dp_size)
    log_probs = torch.nested.as_nested_tensor([model.log_probs(row) for row, _ in rows], layout=torch.jagged)
    loss, _ = sft_loss(config=None, model_output={"log_probs": log_probs}, data=data)
    return loss


def loss_and_gradient(ranks: list[list[list]]) -> tuple[float, torch.Tensor]:
    """Return loss and gradient of micro-batches per rank, as in verl: each rank sums over its micro-batches,
    FSDP averages over the ranks.
    """
    tokens = sum(int(mask.sum()) for rank in ranks for rows in rank for _, mask in rows)
    losses, gradients = [], []
    for micro_batches in ranks:
        model = Bigram()
        parts = [loss_of(model, rows, batch_num_tokens=tokens, dp_size=len(ranks)) for rows in micro_batches]
        for part in parts:
            part.backward()
        losses.append(sum(float(part.detach()) for part in parts))
        gradients.append(model.logits.grad)
    return sum(losses) / len(ranks), torch.stack(gradients).mean(0)


def expected() -> tuple[float, torch.Tensor]:
    """Return the loss written out: minus the mean of the response tokens' log-probabilities."""
    model = Bigram()
    learnt = [
        torch.log_softmax(model.logits[row[position - 1]], -1)[row[position]]
        for row, mask in sequences()
        for position in range(1, len(row))
        if mask[position]
    ]
    assert len(learnt) == 1 + 9 + 2 + 5
    loss = -torch.stack(learnt).mean()
    loss.backward()
    return float(loss.detach()), model.logits.grad


A, B, C, D = range(4)
DIVISIONS = [
    pytest.param([[[A, B, C, D]]], id="one batch"),
    pytest.param([[[A], [B, C, D]]], id="two micro-batches"),
    pytest.param([[[A], [B], [C], [D]]], id="four micro-batches"),
    pytest.param([[[A, C]], [[B, D]]], id="two ranks"),
    pytest.param([[[A], [C]], [[B], [D]]], id="two ranks of two micro-batches"),
]


@pytest.mark.parametrize("division", DIVISIONS)
def test_loss_and_gradient_do_not_depend_on_how_the_batch_is_divided(division):
    rows = sequences()
    loss, gradient = loss_and_gradient(
        [[[rows[i] for i in micro_batch] for micro_batch in rank] for rank in division]
    )
    expected_loss, expected_gradient = expected()
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    torch.testing.assert_close(gradient, expected_gradient)


def test_a_mean_of_means_would_be_something_else():
    rows = sequences()
    means = [
        float(loss_of(Bigram(), [row], batch_num_tokens=int(row[1].sum()), dp_size=1).detach())
        for row in rows
    ]
    assert abs(sum(means) / len(means) - expected()[0]) > 0.05


def test_the_engine_counts_the_tokens_of_the_whole_batch():
    import inspect

    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    source = inspect.getsource(FSDPEngine.forward_backward_batch)
    assert 'data["loss_mask"].sum()' in source
    assert "batch_num_tokens, op=torch.distributed.ReduceOp.SUM" in source
    assert "dp_size=self.get_data_parallel_size()" in source
