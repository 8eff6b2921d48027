"""A run's problems over its limits: what the driver decides, says and writes, and that all readers agree."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from omegaconf import OmegaConf

from seele.config import SeeleConfig
from seele.config.run import DataConfig
from seele.config.training import OffPolicyConfig
from seele.data.overlong import Fits
from seele.data.storage.schema import write_problems
from seele.errors import DataError
from seele.records import Instance
from seele_eval.validation import read_conditions
from seele_models.tokenizer import byte_tokenizer
from seele_verl.dataset import ProblemDataset
from seele_verl.runs.overlong import RECORD, count_fits, describe_fits, keep_problems, write_fits
from seele_verl.sft.dataset import SolutionDataset

TOKENIZER = byte_tokenizer()  # a byte is a token


def problem(index: int, **changes) -> Instance:
    instance = Instance(
        instance_id=f"p{index}",
        data_source="toy",
        question=f"{index}+1",
        steps=("a=1\n", "b\n", "c"),
        answer="2",
    )
    return dataclasses.replace(instance, **changes)


SHORT = [problem(index) for index in range(4)]
LONG_PROMPT = problem(5, question="q" * 40)
LONG_HINT = problem(6, steps=("a\n", "b" * 30, "c"))
LONG_SOLUTION = problem(7, steps=("a\n", "b\n", "c" * 30))
TRAINING = [*SHORT, LONG_PROMPT, LONG_HINT, LONG_SOLUTION]


@pytest.fixture
def decide(tmp_path):
    """Decides as the driver does, with 20 tokens for the prompt and 24 for the response, and keeps a run."""

    def run(overlong, *, source="none", controller="paper", needed=1, supervised=False, held_out=None):
        splits = {"train": TRAINING, "heldout": held_out or [problem(90), problem(91, question="q" * 40)]}
        for split, problems in splits.items():
            write_problems(tmp_path / f"{split}.parquet", problems, split=split)
        files = {split: tmp_path / f"{split}.parquet" for split in splits}
        hints = {"controller": controller, "rounds": 1}
        data = {"max_prompt_length": 20, "max_response_length": 24, "hints": hints, "overlong_record": None}
        data |= {"train_files": [str(files["train"])], "val_files": [str(files["heldout"])]}
        config = OmegaConf.create({"data": data})
        loss = "surrogate" if source == "prefix" else "shaped"
        seele = SeeleConfig(
            method="seele",
            data=DataConfig(overlong=overlong),
            off_policy=OffPolicyConfig(source=source, loss=loss),
            prompt=dataclasses.replace(SeeleConfig(method="seele").prompt, template="plain"),
            hints=dataclasses.replace(SeeleConfig(method="seele").hints, controller=controller, rounds=1),
        )
        kept = keep_problems(
            config,
            seele,
            TOKENIZER,
            training=[(each, files["train"]) for each in splits["train"]],
            validation=[(each, files["heldout"]) for each in splits["heldout"]],
            needed=needed,
            supervised=supervised,
        )
        record = write_fits(tmp_path, config.data.train_files, config.data.val_files, kept.fits)
        config.data.overlong_record = None if record is None else str(record)
        return config, kept

    return run


def ids(problems) -> list[str]:
    return [each.instance.instance_id for each in problems]


def test_what_does_not_fit_is_left_out_and_the_trainers_data_set_lacks_it_too(decide, tmp_path):
    config, kept = decide("drop")
    assert ids(kept.training) == ["p0", "p1", "p2", "p3", "p7"]
    assert ids(kept.validation) == ["p90"]
    training = ProblemDataset(config.data.train_files, TOKENIZER, config.data)
    assert training.instance_ids == ids(kept.training)
    assert [training[index]["instance"].instance_id for index in range(5)] == ids(kept.training)
    assert [row["question"] for row in training.columns(["question"])] == ["0+1", "1+1", "2+1", "3+1", "7+1"]
    assert ProblemDataset(config.data.val_files, TOKENIZER, config.data).instance_ids == ["p90"]
    assert ProblemDataset(config.data.train_files, TOKENIZER, config.data, max_samples=6).instance_ids == [
        "p0",
        "p1",
        "p2",
        "p3",
    ]


def test_the_driver_tells_how_many(decide):
    _, kept = decide("drop")
    assert count_fits(kept.fits) == {
        "num_problems_left_out": 2,
        "num_problems_with_shorter_hints": 0,
        "num_problems_with_cut_solution": 0,
        "num_steps_ending_inside_a_token": 0,
        "num_validation_problems_left_out": 1,
    }
    counts = SimpleNamespace(num_problems=5, num_validation=1)
    assert describe_fits(kept.fits, counts) == (
        "too long: 2 of 7 training problems left out, 1 of 2 validation problems left out\n"
    )
    _, kept = decide("truncate")
    assert describe_fits(kept.fits, counts) == (
        "too long: 1 of 6 training problems left out, 1 of 2 validation problems left out, "
        "1 with shorter hints\n"
    )
    moved = (dataclasses.replace(kept.fits[0], left_out={}, hint_steps={}, moved_cuts=3), Fits())
    assert describe_fits(moved, counts) == "3 steps end inside a token; a hint of them ends before it\n"


def test_hints_are_shortened_so_that_the_problem_is_kept(decide):
    config, kept = decide("truncate")
    assert ids(kept.training) == ["p0", "p1", "p2", "p3", "p6", "p7"]
    training = ProblemDataset(config.data.train_files, TOKENIZER, config.data)
    ratios = {each["instance"].instance_id: each["instance"].legal_hint_ratios for each in training}
    assert ratios["p6"] == (0.0, 1 / 3) and ratios["p7"] == (0.0, 1 / 3, 2 / 3)


@pytest.mark.parametrize(
    ("overlong", "kept_ids", "num_cut"),
    [("drop", ["p0", "p1", "p2", "p3"], 0), ("truncate", ["p0", "p1", "p2", "p3", "p6", "p7"], 2)],
)
def test_a_trace_is_dropped_or_cut(decide, overlong, kept_ids, num_cut):
    _, kept = decide(overlong, source="trace", controller="none")
    assert ids(kept.training) == kept_ids
    assert kept.fits[0].num_cut == num_cut and not kept.fits[0].hint_steps


def test_a_prefix_leaves_room_for_a_token_of_the_response(decide):
    assert ids(decide("drop", source="prefix")[1].training) == ["p0", "p1", "p2", "p3", "p7"]
    assert decide("truncate", source="prefix")[1].fits[0].hint_steps == {"p6": 1}


@pytest.mark.parametrize(("overlong", "longest"), [("drop", 8), ("truncate", 24)])
def test_supervised_solutions_are_dropped_or_cut(decide, overlong, longest):
    config, kept = decide(overlong, controller="none", supervised=True)
    settings = SimpleNamespace(
        template="plain",
        overlong_record=config.data.overlong_record,
        max_response_tokens=24 if overlong == "truncate" else None,
    )
    dataset = SolutionDataset(config.data.train_files, TOKENIZER, settings)
    assert len(dataset) == len(kept.training) == (6 if overlong == "truncate" else 4)
    learnt = [int(row["loss_mask"].sum()) for row in dataset]
    assert max(learnt) == longest
    ends = [row["input_ids"][-1].item() == TOKENIZER.eos_token_id for row in dataset]
    assert ends == [count < 24 for count in learnt]


def test_the_validation_of_checkpoints_has_the_problems_of_the_trainers(decide, tmp_path):
    config, kept = decide("drop")
    rollout = {"tensor_model_parallel_size": 1, "gpu_memory_utilization": 0.5, "dtype": "float32"}
    whole = OmegaConf.create(
        {
            "data": config.data,
            "seele": {"method": "sft", "seed": 0},
            "actor_rollout_ref": {"rollout": rollout | {"val_kwargs": {"temperature": 0, "n": 1}}},
        }
    )
    OmegaConf.save(whole, tmp_path / "resolved.yaml")
    problems = read_conditions(tmp_path).problems
    assert [instance.instance_id for _, instance in problems] == ids(kept.validation)


def test_a_file_that_is_trained_and_validated_on_lacks_the_same_problems_in_both(tmp_path):
    write_problems(tmp_path / "all.parquet", [*SHORT, LONG_HINT], split="train")
    file = tmp_path / "all.parquet"
    config = OmegaConf.create(
        {"data": {"max_prompt_length": 20, "max_response_length": 24, "train_files": [str(file)]}}
    )
    config.data.val_files = config.data.train_files
    seele = SeeleConfig(method="seele")
    seele = dataclasses.replace(seele, prompt=dataclasses.replace(seele.prompt, template="plain"))
    problems = [(each, Path(file)) for each in [*SHORT, LONG_HINT]]
    kept = keep_problems(
        config, seele, TOKENIZER, training=problems, validation=problems, needed=1, supervised=False
    )
    assert ids(kept.training) == ids(kept.validation) == ["p0", "p1", "p2", "p3"]


def test_the_old_way_is_to_refuse(decide):
    with pytest.raises(DataError, match=r"train\.parquet: problem 'p5' has 41 prompt tokens .*overlong=drop"):
        decide("refuse")


def test_too_few_problems_are_refused_with_what_was_left_out(decide):
    with pytest.raises(
        DataError,
        match=r"data\.train_files: 2 of 7 problems are too long .* 5 are fewer than the 6 .*'p5' has 41",
    ):
        decide("drop", needed=6)
    with pytest.raises(DataError, match=r"data\.val_files: 1 of 1 problems are too long"):
        decide("drop", held_out=[problem(91, question="q" * 40)])


def test_where_everything_fits_there_is_no_record_and_an_old_one_goes(decide, tmp_path):
    config, _ = decide("drop")
    assert config.data.overlong_record == str(tmp_path / RECORD)
    assert [len(each["left_out"]) for each in json.loads((tmp_path / RECORD).read_text())] == [2, 1]
    config, kept = decide("drop")
    none = type(kept.fits[0])()
    assert write_fits(tmp_path, config.data.train_files, config.data.val_files, (none, none)) is None
    assert not (tmp_path / RECORD).exists()
