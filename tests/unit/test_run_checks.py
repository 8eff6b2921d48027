"""What is settled before Ray starts: defaults, problems, reward function, profiler."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("omegaconf", reason="omegaconf is not installed")
pytest.importorskip("verl.trainer", reason="verl is not installed")

import pyarrow as pa
from omegaconf import OmegaConf

from seele.config import SeeleConfig
from seele.config.run import DataConfig
from seele.config.training import InterleaveConfig, OffPolicyConfig
from seele.data.overlong import Fits
from seele.data.storage.parquet import set_column
from seele.data.storage.schema import read_columns, read_problems, write_problems
from seele.errors import ConfigError, DataError, PluginError
from seele.maths.model_shapes import HUB_NAMES, SHAPES
from seele.records import Instance
from seele.report.run_folder import TRACKER
from seele.reward.milestones import milestones_of
from seele_eval.validation import read_conditions
from seele_models.tokenizer import byte_tokenizer
from seele_verl import memory, train
from seele_verl.checks.method_defaults import main, method_defaults
from seele_verl.checks.preflight import check_settings
from seele_verl.checks.verl_settings import check_profiler
from seele_verl.checks.without_effect import check_part_is_used
from seele_verl.dataset import ProblemDataset
from seele_verl.reward_function import VERL_KEYS, adopt_reward_function, check_reward_function
from seele_verl.runs.checkpoints import step_folder
from seele_verl.runs.overlong import RECORD, count_fits, describe_fits, keep_problems, write_fits
from seele_verl.runs.references import has_references, prepare_references
from seele_verl.settings import read_settings
from seele_verl.sft.dataset import SolutionDataset
from seele_verl.train import compose

# --- What a method's files set


def test_a_method_adds_to_what_it_builds_on():
    luffy, exgrpo = method_defaults("luffy"), method_defaults("exgrpo")
    assert luffy["seele.off_policy.source"] == "trace"
    # From drgrpo, which luffy builds on, and from grpo, which that builds on.
    assert luffy["actor_rollout_ref.actor.loss_agg_mode"] == "seq-mean-token-sum-norm"
    assert luffy["seele.hints.controller"] == "none"
    assert exgrpo["seele.method"] == "exgrpo" and luffy["seele.method"] == "luffy"
    # The empty mapping of all methods has contents here.
    scaffold = method_defaults("scaf_grpo")
    assert scaffold["seele.hints.settings.warmup_steps"] == 50 and "seele.hints.settings" not in scaffold
    assert luffy["seele.hints.settings"] == {}


def test_settings_of_all_methods_are_there_and_those_that_follow_from_others_are_not():
    defaults = method_defaults("seele")
    assert defaults["seele.hints.unit"] == "step"
    assert not [key for key, value in defaults.items() if "${" in str(value) or value == "???"]
    assert defaults["seele.curriculum.name"] == "uniform" and "seele.reward.format_score" not in defaults


def test_they_are_those_that_a_run_gets():
    composed = compose(["method=uft"])
    defaults = method_defaults("uft")
    # The tiny model sets the first two, the hardware the last.
    by_others = {"seele.prompt.template", "seele.reward.truncated_is_wrong", "seele.reward.num_workers"}
    differing = {
        key
        for key, value in defaults.items()
        if key.startswith(("seele.", "actor_rollout_ref.actor.", "algorithm."))
        and OmegaConf.select(composed, key) != value
    }
    assert differing <= by_others


def test_an_unknown_method_is_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["trpo"])
    assert "unknown method 'trpo'; allowed are ['adaback'" in capsys.readouterr().err
    main(["grpo"])
    assert json.loads(capsys.readouterr().out)["seele.method"] == "grpo"


# --- A run's data files may be references to the hub, which are prepared before anything else starts


GSM8K = "https://huggingface.co/datasets/openai/gsm8k?config=main&split="
ROWS = [{"question": f"{n} boxes of 6?", "answer": f"{n}*6={6 * n}\n#### {6 * n}"} for n in (2, 3)]


class Hub(ModuleType):
    """Stands in for ``datasets``: the same rows for every data set, but for those that it does not have."""

    def __init__(self, rows: list[dict]) -> None:
        super().__init__("datasets")
        self.rows, self.calls = rows, []

    def load_dataset(self, name, config, *, split, revision):
        self.calls.append((name, config, split))
        # What a run on a machine without a GPU sets for its workers must not keep the hub away.
        assert os.environ.get("HF_HUB_OFFLINE") == self.offline
        if name.endswith("private"):
            raise FileNotFoundError(f"Dataset '{name}' is a gated dataset on the Hub.")
        return self.rows


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", double := Hub(ROWS))
    double.offline = os.environ.get("HF_HUB_OFFLINE")
    return double


def configure(*overrides: str):
    return train.compose(["method=grpo", "hardware=cpu", "job=tiny", *overrides])


def test_references_and_files_mix_and_are_prepared_once(hub, tmp_path, capsys):
    write_problems(
        tmp_path / "mine.parquet",
        [Instance(instance_id="m", data_source="toy", question="?", steps=(), answer="1")],
        split="train",
    )
    overrides = (
        f"data.train_files=['{GSM8K}train',{tmp_path}/mine.parquet]",
        f"data.val_files='{GSM8K}test'",
    )
    config = configure(*overrides)
    assert has_references(config)
    config = prepare_references(config)
    [prepared, mine], [held_out] = config.data.train_files, config.data.val_files
    assert mine == f"{tmp_path}/mine.parquet"
    assert prepared.startswith(f"{tmp_path}/data/prepared/openai-gsm8k-train-")
    assert (prepared.endswith("/train.parquet"), held_out.endswith("/test.parquet")) == (True, True)
    assert [problem.answer for problem in read_problems(Path(prepared))] == ["12", "18"]
    assert config.data.references == {prepared: f"{GSM8K}train", held_out: f"{GSM8K}test"}
    assert f"{GSM8K}train" in OmegaConf.to_yaml(config, resolve=False)
    said = capsys.readouterr().out
    assert f"data.train_files: preparing {GSM8K}train in data/prepared/openai-gsm8k-train-" in said
    assert "2 problems of 2 rows" in said
    # The next run finds them there.
    hub.calls.clear()
    again = prepare_references(configure(*overrides))
    assert not hub.calls and again.data.train_files == config.data.train_files
    assert "is prepared in data/prepared/openai-gsm8k-train-" in capsys.readouterr().out


@pytest.mark.parametrize("spoil", ["manifest.json", "train.parquet"])
def test_a_folder_that_is_incomplete_or_changed_is_prepared_anew(hub, spoil):
    overrides = (f"data.train_files=['{GSM8K}train']", f"data.val_files=['{GSM8K}train']")
    config = prepare_references(configure(*overrides))
    # The same reference twice is fetched once.
    assert len(hub.calls) == 1
    file = Path(config.data.train_files[0])
    whole = file.read_bytes()
    (file.parent / spoil).write_text("{")
    prepare_references(configure(*overrides))
    assert len(hub.calls) == 2 and file.read_bytes() == whole
    golds = json.loads((file.parent / "manifest.json").read_text())["splits"]["train"]["golds"]
    assert golds == {"grader": "mathruler", "checked": 2, "failing": 0}


def test_other_settings_have_another_folder(hub):
    overrides = (f"data.train_files=['{GSM8K}train']", f"data.val_files=['{GSM8K}train']")
    first = prepare_references(configure(*overrides))
    second = prepare_references(configure(*overrides, "seele.reward.grader=strict+"))
    assert first.data.train_files != second.data.train_files and len(hub.calls) == 2


def test_files_of_a_supervised_stage_may_be_references(hub, tmp_path):
    files = (f"data.train_files=[{tmp_path}/mine.parquet]", f"data.val_files=[{tmp_path}/mine.parquet]")
    config = configure("method=sft_rl", *files, f"seele.sft.train_files=['{GSM8K}train']")
    assert has_references(config)
    config = prepare_references(config)
    [prepared] = config.seele.sft.train_files
    assert config.data.references == {prepared: f"{GSM8K}train"} and Path(prepared).is_file()


def test_local_files_stay_as_they_are(hub):
    config = configure("data.train_files=[some/train.parquet]", "data.val_files=some/test.parquet")
    assert not has_references(config)
    assert not has_references(configure("data.train_files=null", "data.val_files=3"))


@pytest.mark.parametrize(
    ("reference", "rows", "complaint"),
    [
        ("hf://owner/private", ROWS, r"data\.train_files: cannot fetch owner/private.*gated.*HF_TOKEN"),
        ("hf://owner/name", [{"frage": "?"}], r"this row has \['frage'\].*`seele data prepare`"),
        ("hf://owner/name", [{"question": "?", "answer": "{7"}], r"1 of 1 reference answers.*\{7"),
    ],
)
def test_what_cannot_be_prepared_is_named_and_leaves_nothing(hub, tmp_path, reference, rows, complaint):
    hub.rows = rows
    config = configure(f"data.train_files=['{reference}']", "data.val_files=[x.parquet]")
    with pytest.raises(DataError, match=complaint):
        prepare_references(config)
    assert not [*tmp_path.iterdir()]


def test_a_bad_setting_is_refused_before_anything_is_fetched(hub, tmp_path):
    overrides = [f"data.train_files=['{GSM8K}train']", "data.train_batch_size=0"]
    with pytest.raises(ConfigError, match=r"data\.train_batch_size"):
        train.run(configure(*overrides), overrides)
    with pytest.raises(ConfigError, match="unknown or empty parameter 'splt'"):
        train.run(configure("data.train_files=['hf://a/b?splt=x']"), [])
    assert not hub.calls and not [*tmp_path.iterdir()]


def test_the_run_reads_the_prepared_files(hub, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(train, "set_environment", lambda config: seen.append("environment"))

    def no_stages(config, overrides):
        seen.append(list(config.data.train_files))
        yield from ()

    monkeypatch.setattr(train, "stages", no_stages)
    overrides = [f"data.train_files=['{GSM8K}train']", "data.val_files=[x.parquet]"]
    train.run(configure(*overrides), overrides)
    assert seen[0] == "environment" and seen[1][0].endswith("/train.parquet")


# --- A run's problems over its limits: what the driver decides, says and writes, and that all readers agree


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

    def run(
        overlong,
        *,
        source="none",
        controller="paper",
        needed=1,
        supervised=False,
        interleaved=0,
        training=TRAINING,
        held_out=None,
        fixed=None,
        **hint_settings,
    ):
        splits = {"train": training, "heldout": held_out or [problem(90), problem(91, question="q" * 40)]}
        for split, problems in splits.items():
            write_problems(tmp_path / f"{split}.parquet", problems, split=split)
        files = {split: tmp_path / f"{split}.parquet" for split in splits}
        hints = {"controller": controller, "rounds": 1}
        data = {"max_prompt_length": 20, "max_response_length": 24, "hints": hints, "overlong_record": None}
        data |= {"train_files": [str(files["train"])], "val_files": [str(files["heldout"])]}
        rollout = {"max_model_len": "${sum:${data.max_prompt_length},${data.max_response_length}}"}
        config = OmegaConf.create({"data": data, "actor_rollout_ref": {"rollout": rollout | (fixed or {})}})
        loss = "surrogate" if source == "prefix" else "shaped"
        seele = SeeleConfig(
            method="seele",
            data=DataConfig(overlong=overlong),
            off_policy=OffPolicyConfig(source=source, loss=loss),
            interleave=InterleaveConfig(problems=interleaved),
            prompt=dataclasses.replace(SeeleConfig(method="seele").prompt, template="plain"),
            hints=dataclasses.replace(
                SeeleConfig(method="seele").hints, controller=controller, rounds=1, **hint_settings
            ),
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
    config.data = {**config.data, "validated_training_problems": 2, "train_max_samples": -1}
    validated = ProblemDataset(config.data.val_files, TOKENIZER, config.data)
    assert [(row["instance"].instance_id, row["data_source"]) for row in validated] == [
        ("p90", "toy/heldout"),
        ("p0", "toy/train"),
        ("p2", "toy/train"),
    ]
    config.data.train_max_samples = 2
    of_few = ProblemDataset(config.data.val_files, TOKENIZER, config.data)
    assert of_few.instance_ids == ["p90", "p0", "p1"], "only problems that the run trains on"
    config.data.train_max_samples = -1
    config.data.validated_training_problems = 9
    assert len(ProblemDataset(config.data.val_files, TOKENIZER, config.data)) == 1 + len(kept.training)
    (train,) = map(Path, config.data.train_files)
    guides = [int(row["question"] in ("1+1", "3+1")) for row in read_columns(train, ["question"])]
    set_column(train, tmp_path / "guided.parquet", pa.field("guided_by", pa.int64()), guides)
    guided = {**config.data, "train_files": [str(tmp_path / "guided.parquet")], "overlong_record": None}
    problems = ProblemDataset(config.data.val_files, TOKENIZER, OmegaConf.create(guided)).instance_ids
    assert problems[2:4] == ["p0", "p2"] and not {"p1", "p3"} & {*problems}, "their question has no hint"
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
    counts = SimpleNamespace(num_problems=5, num_validation=1, to_keep_all=kept.to_keep_all)
    assert describe_fits(kept.fits, counts) == (
        "too long: 2 of 7 training problems left out, 1 of 2 validation problems left out "
        "(too_long.json names them); to keep all: data.max_prompt_length=47\n"
    )
    _, kept = decide("truncate")
    assert describe_fits(kept.fits, counts) == (
        "too long: 1 of 6 training problems left out, 1 of 2 validation problems left out, "
        "1 with shorter hints (too_long.json names them); to keep all: data.max_prompt_length=47\n"
    )
    moved = (dataclasses.replace(kept.fits[0], left_out={}, hint_steps={}, moved_cuts=3), Fits())
    assert describe_fits(moved, counts) == "3 steps end inside a token; their hints end before that token\n"


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


@pytest.mark.parametrize(
    ("overlong", "kept_ids", "num_cut"),
    [("drop", ["p0", "p1", "p2", "p3"], 0), ("truncate", ["p0", "p1", "p2", "p3", "p6", "p7"], 2)],
)
def test_a_solution_that_may_be_learnt_between_steps_is_dropped_or_cut(decide, overlong, kept_ids, num_cut):
    _, kept = decide(overlong, interleaved=2, controller="none")
    assert ids(kept.training) == kept_ids
    assert kept.fits[0].num_cut == num_cut and not kept.fits[0].hint_steps
    # With hints both limits hold.
    _, kept = decide("truncate", interleaved=2)
    assert kept.fits[0].num_cut == 2 and kept.fits[0].hint_steps == {"p6": 1}


def test_hints_count_beside_a_given_response_and_without_a_worked_solution(decide, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "from seele.methods.sources import OffPolicySource\n"
        "class Teacher(OffPolicySource):\n"
        "    adds_rollouts = True\n"
        "    def response_tokens(self, instance, encoded, tokenizer):\n"
        "        return 30 if instance.instance_id == 'p3' else 5\n"
    )
    kept = decide("truncate", source=f"{own}:Teacher")[1]
    assert kept.fits[0].num_cut == 1 and kept.fits[0].hint_steps == {"p6": 1}
    tiered = [*SHORT, problem(8, steps=(), tiers=("add", "t" * 30))]
    hints = {"kind": "tiers", "placement": "user", "request": "{question} {hint}"}
    assert ids(decide("drop", training=tiered, **hints)[1].training) == ["p0", "p1", "p2", "p3"]
    assert decide("truncate", training=tiered, **hints)[1].fits[0].hint_steps == {"p8": 1}


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
        match=r"data\.train_files: 2 of 7 problems are too long .* 5 are fewer than the 6 .*'p5' has 41 .*"
        "; keep all problems with data.max_prompt_length=47, or more of them with seele.data.overlong=",
    ):
        decide("drop", needed=6)
    with pytest.raises(
        DataError,
        match=r"with data.max_prompt_length=41 data.max_response_length=35 "
        "actor_rollout_ref.rollout.max_model_len=76, or",
    ):
        decide("drop", needed=6, supervised=True, controller="none", fixed={"max_model_len": 50})
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


# --- A run's own reward function: verl's keys, and what is refused before Ray starts


COMMON = ["method=grpo", "hardware=cpu"]
INSTANCE = Instance(instance_id="1", data_source="chains", question="1+1", steps=("2",), answer="2")
FUNCTIONS = """
def compute_score(data_source, solution_str, ground_truth, extra_info, bonus=0.0):
    return bonus + (solution_str == ground_truth) / 2

def raises(data_source, solution_str, ground_truth, extra_info):
    return float(solution_str.split()[-1])
"""


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "own.py").write_text(FUNCTIONS)
    return tmp_path / "own.py"


def adopted(*overrides: str):
    typed = [*COMMON, *overrides]
    config = adopt_reward_function(train.compose(typed), typed)
    check_settings(config, typed)
    return config


@pytest.mark.parametrize("section", VERL_KEYS)
def test_verls_keys_name_a_reward_function(file, section):
    config = adopted(f"{section}.path={file}", f"+{section}.reward_kwargs.bonus=0.25")
    reward = read_settings(config).reward
    assert (reward.grader, dict(reward.kwargs)) == (f"{file}:compute_score", {"bonus": 0.25})
    check_reward_function(read_settings(config), INSTANCE)
    named = read_settings(adopted(f"{section}.path=pkg://a.b", f"{section}.name=mine")).reward
    assert named.grader == "a.b:mine"


def test_a_recipes_grader_gives_way_to_it(file):
    recipe = "recipe=luffy_qwen2.5-math-7b"
    assert read_settings(adopted("method=luffy", recipe)).reward.grader == "math_verify"
    own = adopted("method=luffy", recipe, f"reward.custom_reward_function.path={file}")
    assert read_settings(own).reward.grader == f"{file}:compute_score"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("{verl}.path=a.py seele.reward.grader=mathruler", "so does 'seele.reward.grader=mathruler'"),
        ("{verl}.path=a.py custom_reward_function.path=b.py", "so does 'custom_reward_function'"),
        ("+{verl}.reward_kwargs.bonus=1", "reward_kwargs: has no effect without"),
        ("seele.reward.correct_from=0.5", "it is for a reward function of your own"),
        ("seele.reward.grader=a.py:f seele.reward.format_score=0.1", "your own reward function gives"),
        ("seele.reward.grader=a.py:f seele.reward.isolation=none seele.reward.memory_limit_mb=9", "is none"),
    ],
)
def test_settings_that_contradict_a_reward_function_are_refused(overrides, message):
    typed = overrides.format(verl=VERL_KEYS[0]).split()
    with pytest.raises(ConfigError) as error:
        config = adopted(*typed)
        check_part_is_used(typed, config, read_settings(config))
    assert message in str(error.value)


def test_a_function_that_fails_on_an_empty_response_is_named_before_the_run(file):
    settings = read_settings(adopted(f"seele.reward.grader={file}:raises"))
    with pytest.raises(PluginError) as error:
        check_reward_function(settings, INSTANCE)
    assert f"raised IndexError: list index out of range ({file}:6)" in str(error.value)


# --- Profiler settings that would profile nothing are refused. A profile is written in tests/integration


STEPS, UPDATE = "global_profiler.steps=[3]", "actor_rollout_ref.actor.profiler.enable=true"


def check(*overrides, hardware="cpu", supervised=False):
    check_profiler(compose([f"hardware={hardware}", *overrides]), supervised=supervised)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((STEPS, UPDATE), "tool: got None; allowed are .'torch', 'torch_memory', 'nsys'."),
        (("global_profiler.tool=npu", STEPS, UPDATE), "tool: got 'npu'"),
        (("global_profiler.tool=torch", UPDATE), "steps: got None, so no step is profiled"),
        (("global_profiler.tool=torch", STEPS), "no part is profiled; set actor_rollout_ref.actor.profiler"),
        (("global_profiler.tool=torch_memory", STEPS, UPDATE), "torch_memory records the memory of GPUs"),
        (("global_profiler.tool=nsys", STEPS, UPDATE), "nsys is Nsight Systems, for GPUs"),
    ],
)
def test_a_profile_of_nothing_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        check(*overrides)


def test_nsight_must_be_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="must be on the PATH"):
        check("global_profiler.tool=nsys", STEPS, UPDATE, hardware="gpu8")
    (tmp_path / "nsys").touch(mode=0o755)
    check("global_profiler.tool=nsys", STEPS, UPDATE, hardware="gpu8")


def test_supervised_training_is_not_profiled():
    with pytest.raises(ConfigError, match="supervised training is not profiled"):
        check("global_profiler.tool=torch", STEPS, UPDATE, supervised=True)


@pytest.mark.parametrize("hardware", ["cpu", "gpu8"])
def test_profiles_go_to_the_runs_folder(hardware):
    check(hardware=hardware)
    check("global_profiler.tool=torch", STEPS, UPDATE, hardware=hardware)
    config = compose([f"hardware={hardware}", "trainer.default_local_dir=/runs/x"])
    assert config.actor_rollout_ref.actor.profiler.save_path == "/runs/x/profile"


def test_milestones_are_found_before_a_solution_is_cut_into_tokens(tmp_path):
    steps = ("2 + 3 = 5.\n", "5 * 4 = 20.\n\\boxed{20}")
    problem = Instance(instance_id="p", data_source="toy", question="?", steps=steps, answer="20")
    write_problems(tmp_path / "train.parquet", [problem], split="train")
    for unit in ("step", "token"):
        config = OmegaConf.create({"hints": {"unit": unit}})
        dataset = ProblemDataset(str(tmp_path / "train.parquet"), TOKENIZER, config)
        found = milestones_of(dataset[0]["instance"])
        assert [milestone.value for milestone in found] == ["5", "20"], unit


# --- A run that is given again


@pytest.mark.parametrize("supervised", [False, True])
def test_checkpoints_that_are_there_take_no_more_of_the_disk(tmp_path, supervised):
    config = compose(
        ["recipe=seele_qwen2.5-7b", f"trainer.default_local_dir={tmp_path}", "seele.sft.epochs=5"]
    )
    settings, shape = read_settings(config), SHAPES[HUB_NAMES["Qwen/Qwen2.5-7B"]]

    def counted() -> int:
        plan = memory.plan_of(config, settings, shape, card=0.0, supervised=supervised, num_problems=80)
        return plan.checkpoints

    needed = counted()
    assert needed > 1
    step_folder(tmp_path, 10).mkdir()
    assert counted() == needed - 1
    for step in range(20, 100, 10):
        step_folder(tmp_path, step).mkdir()
    assert counted() == 1


def test_what_a_first_stage_has_left_takes_no_more_of_the_disk(tmp_path):
    kept = ("trainer.max_actor_ckpt_to_keep=2", "seele.sft.epochs=3")
    config = compose(["recipe=luffy_sft_rl_qwen2.5-math-7b", f"trainer.default_local_dir={tmp_path}", *kept])
    settings, shape = read_settings(config), SHAPES[HUB_NAMES["Qwen/Qwen2.5-7B"]]

    def counted() -> tuple[int, int]:
        plan = memory.plan_of(config, settings, shape, card=0.0, supervised=False, num_problems=80)
        return plan.checkpoints, plan.whole_models

    # Three of the second stage, two of the first, and whole models in these and merged.
    assert counted() == (5, 3)
    step_folder(tmp_path / "sft", 10).mkdir(parents=True)
    assert counted() == (4, 2)
    (tmp_path / "sft" / "run_card.json").write_text('{"status": "finished"}')
    assert counted() == (3, 1)
    (tmp_path / "sft" / "merged").mkdir()
    assert counted() == (3, 0)


def test_a_command_that_is_given_again_goes_on_without_a_supervisor_too(tmp_path, monkeypatch):
    step_folder(tmp_path, 4).mkdir()
    (tmp_path / TRACKER).write_text("4")
    begun = []
    monkeypatch.setattr(
        train, "run", lambda config, overrides, **_: begun.append((config.trainer, overrides[-2:]))
    )
    typed = ["method=grpo", "hardware=cpu", "job=tiny", f"trainer.default_local_dir={tmp_path}"]
    typed += ["trainer.max_restarts=0", "trainer.resume_mode=disable"]
    monkeypatch.setattr("sys.argv", ["seele train", *typed])
    for says_so in ("0", "1"):
        monkeypatch.setenv("SEELE_GOES_ON", says_so)
        train.main()
    (first, last), (again, added) = begun
    assert (first.resume_mode, last) == ("disable", typed[-2:])
    assert (again.resume_mode, again.resume_from_path) == ("auto", None)
    assert added == ["trainer.resume_mode=auto", "trainer.resume_from_path=null"]
