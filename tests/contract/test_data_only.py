"""A checkpoint is data: nothing in it is executed."""

import json
import os
import pickle
import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch.distributed", reason="torch is not installed")

import numpy as np
import torch
from transformers import Qwen2Config

from seele.errors import CheckpointError
from seele_verl.data_only import FORCED, reading_data_only
from seele_verl.merge import merge_checkpoint


class Payload:
    """An object whose pickle runs code under ``torch.load`` as verl calls it."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    torch.save({"weights": torch.ones(2), "more": Payload(tmp_path / "canary")}, tmp_path / "extra_state.pt")
    return tmp_path / "extra_state.pt"


def load(file: Path) -> dict:
    return torch.load(file, weights_only=False)


def test_what_a_checkpoint_would_run_is_refused(tmp_path, hostile):
    with reading_data_only("fsdp2"), pytest.raises(pickle.UnpicklingError):
        load(hostile)
    assert not (tmp_path / "canary").exists()
    load(hostile)
    assert (tmp_path / "canary").exists(), "the file is harmless, so the test shows nothing"


def test_fsdp1_is_left_as_it_is(tmp_path, hostile):
    with reading_data_only("fsdp"):
        load(hostile)
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize("version", [1, 2])
def test_merging_runs_nothing_whatever_the_checkpoint_says_of_itself(
    tmp_path, hostile, version, python, monkeypatch
):
    monkeypatch.setattr(sys, "executable", python)  # which has verl's libraries
    checkpoint = tmp_path / "global_step_1"
    actor = checkpoint / "actor"
    Qwen2Config(architectures=["Qwen2ForCausalLM"]).save_pretrained(actor / "huggingface")
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": version, "world_size": 1}))
    hostile.rename(actor / "model_world_size_1_rank_0.pt")
    torch.save({}, checkpoint / "data.pt")
    with pytest.raises(CheckpointError, match="Weights only load failed"):
        merge_checkpoint(tmp_path)
    assert not (tmp_path / "canary").exists()


def test_what_verl_saves_of_the_random_numbers_is_data(tmp_path):
    state = {"cpu": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate()}
    torch.save({"rng": state, "lr_scheduler": {"last_epoch": 3, "lr_lambdas": [None]}}, tmp_path / "state.pt")
    with reading_data_only("fsdp2"):
        restored = load(tmp_path / "state.pt")["rng"]
    np.random.set_state(restored["numpy"])
    random.setstate(restored["random"])
    assert random.getstate() == state["random"]
    assert not FORCED.keys() & os.environ.keys()
