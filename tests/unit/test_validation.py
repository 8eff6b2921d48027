"""Un-hinted accuracy of checkpoints: asked and judged as the RL trainer's own validation."""

import dataclasses
import json
from pathlib import Path

import pytest

pytest.importorskip("omegaconf", reason="omegaconf is not installed")

from omegaconf import OmegaConf

from seele.config import RewardConfig, SeeleConfig
from seele.data.storage.schema import write_problems
from seele.records import Finish, Instance
from seele.reward.grader import GraderPool
from seele.rollout.seeding import rollout_seed
from seele_eval import validation
from seele_eval.generation import EngineSettings
from seele_eval.prompts import Prompt, Response
from seele_eval.validation import Conditions, accuracy_by_split, read_conditions, requests_of_step


def problem(index: int, source: str = "chains") -> Instance:
    return Instance(
        instance_id=f"{source}-{index}", data_source=source, question=f"q{index}", steps=(), answer=str(index)
    )


def response(text: str, finish: Finish = Finish.STOP) -> Response:
    return Response(text=text, num_tokens=1, finish=finish)


def conditions(*, samples: int = 1, temperature: float = 0.0, truncated_is_wrong: bool = True) -> Conditions:
    return Conditions(
        seele=SeeleConfig(method="sft", seed=3, reward=RewardConfig(truncated_is_wrong=truncated_is_wrong)),
        engine=EngineSettings(max_tokens=9),
        temperature=temperature,
        samples=samples,
        problems=(("chains/heldout", problem(1)), ("chains/heldout", problem(2)), ("gsm8k/hard", problem(3))),
    )


def test_accuracy_is_a_share_of_each_file():
    answers = [response(r"\boxed{1}"), response(r"\boxed{7}"), response(r"\boxed{3}")]
    with GraderPool() as grader:
        assert accuracy_by_split(conditions(), answers, grader) == {"chains/heldout": 0.5, "gsm8k/hard": 1.0}


@pytest.mark.parametrize(("truncated_is_wrong", "accuracy"), [(True, 0.0), (False, 0.5)])
def test_a_truncated_answer_counts_as_in_training(truncated_is_wrong, accuracy):
    answers = [response(r"\boxed{1}", Finish.LENGTH), response("no"), response("no")]
    asked = conditions(truncated_is_wrong=truncated_is_wrong)
    with GraderPool() as grader:
        assert accuracy_by_split(asked, answers, grader)["chains/heldout"] == accuracy


@pytest.mark.parametrize(("begins_thinking", "accuracy"), [(True, 0.5), (False, 1.0)])
def test_thoughts_count_as_in_training(begins_thinking, accuracy):
    answers = [response(r"\boxed{7}</think> \boxed{1}"), response(r"\boxed{2}"), response("no")]
    reward = RewardConfig(after_thinking=True)
    asked = dataclasses.replace(
        conditions(),
        seele=SeeleConfig(method="sft", seed=3, reward=reward),
        begins_thinking=begins_thinking,
    )
    with GraderPool() as grader:
        assert accuracy_by_split(asked, answers, grader)["chains/heldout"] == accuracy


def test_samples_have_the_seeds_of_an_rl_validation_at_that_step():
    requests = requests_of_step(conditions(samples=2, temperature=1.0), 20)
    assert [request.question for request in requests] == ["q1", "q1", "q2", "q2", "q3", "q3"]
    assert [request.seed for request in requests[:2]] == [
        rollout_seed(3, -21, "chains-1", 0, sample) for sample in (0, 1)
    ]


@pytest.fixture
def run(tmp_path) -> Path:
    write_problems(tmp_path / "heldout.parquet", [problem(1), problem(2)], split="heldout")
    config = {
        "seele": {"method": "sft", "seed": 3, "prompt": {"template": "plain"}},
        "data": {"max_response_length": 9, "val_files": [str(tmp_path / "heldout.parquet")]},
        "actor_rollout_ref": {
            "rollout": {
                **{"tensor_model_parallel_size": 2, "gpu_memory_utilization": 0.7, "dtype": "bfloat16"},
                "val_kwargs": {"temperature": 0, "n": 1},
            }
        },
    }
    OmegaConf.save(OmegaConf.create(config), tmp_path / "resolved.yaml")
    return tmp_path


def test_conditions_are_the_runs(run):
    found = read_conditions(run)
    assert (found.engine.max_tokens, found.engine.tensor_parallel, found.engine.gpu_dtype) == (
        9,
        2,
        "bfloat16",
    )
    assert (found.seele.prompt.template, found.temperature, found.samples) == ("plain", 0, 1)
    assert [split for split, _ in found.problems] == ["chains/heldout", "chains/heldout"]


def test_one_engine_measures_all_models_in_turn(run, monkeypatch, capfd):
    loaded = []
    prompts = [Prompt(token_ids=[n], temperature=0.0, seed=n) for n in (1, 2)]
    monkeypatch.setattr(validation, "encode_requests", lambda *_, **__: prompts)
    monkeypatch.setattr(validation, "start_engine", lambda model, *_, **__: loaded.append(model) or "engine")
    monkeypatch.setattr(validation, "load_weights", lambda engine, model: loaded.append(model))
    monkeypatch.setattr(
        validation,
        "complete",
        # The second one is finished first.
        lambda *_: iter([(1, response(r"\boxed{2}")), (0, response(rf"\boxed{{{len(loaded)}}}"))]),
    )
    assert validation.main(["--run", str(run), "--models", "0=base", "10=trained"]) == 0
    assert loaded == [Path("base"), Path("trained")]
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(line["step"], line["accuracy"]) for line in lines] == [
        (0, {"chains/heldout": 1.0}),
        (10, {"chains/heldout": 0.5}),
    ]
