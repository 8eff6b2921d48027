"""What the driver of a supervised run does around the trainer: stages, what is measured, what is written."""

import copy
import importlib
import io
import json
import shutil
import zipfile
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from omegaconf import DictConfig, OmegaConf

from helpers import runs
from seele.data.storage.schema import read_problem_files, read_problems, write_problems
from seele.errors import CheckpointError, ConfigError, DataError
from seele.records import Instance
from seele_verl import train
from seele_verl.changes import with_changes
from seele_verl.merge import merge_checkpoint
from seele_verl.runs import card
from seele_verl.runs.card import describe_changes, describe_command, describe_cost, own_files_sha256
from seele_verl.runs.checkpoints import last_complete_step, save_part, saved_steps
from seele_verl.runs.log import RunLog, tracking_variables
from seele_verl.runs.progress import format_step
from seele_verl.runs.resume import find_start
from seele_verl.runs.stages import check_stages, describe_stages, problems_of_stage, stages
from seele_verl.runs.stopping import ASKED, RunStopped
from seele_verl.runs.undo import let_go
from seele_verl.settings import supervised_steps
from seele_verl.sft.dataset import SolutionDataset
from seele_verl.sft.run import due_models, train_supervised
from seele_verl.train import compose


def problem(index: int, **changes) -> Instance:
    return runs.problem(index, **{"instance_id": f"p-{index}", "steps": ("a=1\n", "\\boxed{2}")} | changes)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return runs.save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def configure(tmp_path, model):
    """A composed configuration for a run in ``tmp_path/run``."""

    def compose_run(method: str, *overrides: str, train=None) -> tuple[DictConfig, list[str]]:
        write_problems(tmp_path / "train.parquet", train or [problem(i) for i in range(24)], split="train")
        write_problems(tmp_path / "heldout.parquet", [problem(99)], split="heldout")
        settings = [
            *(f"method={method}", "hardware=cpu", "job=tiny", f"actor_rollout_ref.model.path={model}"),
            *(f"data.train_files=[{tmp_path}/train.parquet]", f"data.val_files=[{tmp_path}/heldout.parquet]"),
            *("data.train_batch_size=4", f"trainer.default_local_dir={tmp_path}/run"),
            *overrides,
        ]
        return compose(settings), settings

    return compose_run


def test_epochs_decide_how_long_a_run_is_and_the_number_of_steps_bounds_it(configure):
    config, settings = configure("sft", "trainer.total_training_steps=null")
    ((config, preflight),) = stages(config, settings)
    assert supervised_steps(config, preflight.num_problems) == 3 * 24 // 4
    config.trainer.total_training_steps = 5
    assert supervised_steps(config, preflight.num_problems) == 5


FIXED = "actor_rollout_ref.actor.use_dynamic_bsz=false"
MICRO_BATCH = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
SHARED_SEQUENCES = "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 seele.packed_updates=false"

SFT_ERRORS = [
    ("seele.hints.controller=paper", "method sft trains without hints"),
    ("seele.imitation.coefficient=0.1", "has no hint tokens to imitate"),
    ("seele.curriculum.name=sec", "seele.curriculum.name: method sft has no rollouts, got 'sec'; allowed"),
    ("seele.curriculum.spare_problems=2", "seele.curriculum.spare_problems: method sft has no rollouts"),
    ("seele.selection.name=lze", "seele.selection.name: method sft has no rollouts"),
    ("seele.selection.prune_after=3", "seele.selection.prune_after: method sft has no rollouts"),
    ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.enable: supervised training has no"),
    ("seele.advantage.baseline=per_round", "seele.advantage.baseline: method sft has no rollouts"),
    (
        "seele.max_generated_tokens=99",
        "seele.max_generated_tokens: method sft has no rollouts, got 99; all",
    ),
    (
        "trainer.total_epochs=7",
        "trainer.total_epochs: has no effect; set seele.sft.ep",
    ),
    (
        "actor_rollout_ref.actor.optim.lr_warmup_steps=9",
        "optim.lr_warmup_steps: has no effect; set seele.sft.warmup_ratio",
    ),
    ("seele.sft.share=0.5", "seele.sft.share: method sft trains on all problems"),
    ("seele.sft.train_files=[a.parquet]", "seele.sft.train_files: method sft trains on data.train_files"),
    ("seele.sft.epochs=0", "epochs must be at least 1"),
    ("trainer.val_only=true", "trainer.val_only: a supervised run is validated only after its training"),
    ("trainer.nnodes=2", "trainer.nnodes: supervised training runs on one node"),
    ("trainer.n_gpus_per_node=3", "must be a multiple of the 3 training ranks, got 4"),
    (
        f"trainer.n_gpus_per_node=3 {SHARED_SEQUENCES}",
        "trainer.n_gpus_per_node: got 3, must be a multiple of the 2 GPUs that share a sequence",
    ),
    (f"trainer.n_gpus_per_node=6 {SHARED_SEQUENCES}", "must be a multiple of the 3 training ranks, got 4"),
    (FIXED, "ppo_micro_batch_size_per_gpu: got None, must divide the 4 problems of a rank's step"),
    (f"{FIXED} {MICRO_BATCH}=3", "ppo_micro_batch_size_per_gpu: got 3, must divide the 4 problems"),
    ("trainer.save_freq=4", r"trainer.test_freq \(10\) must be a multiple of seele.sft.save_freq \(4\)"),
    ("actor_rollout_ref.rollout.val_kwargs.top_p=0.9", "validated without top_p and top_k"),
    ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=100", "must hold data.max_prompt_length plus"),
]


@pytest.mark.parametrize(("override", "message"), SFT_ERRORS, ids=[override for override, _ in SFT_ERRORS])
def test_settings_that_mean_nothing_are_refused_before_anything_starts(configure, override, message):
    config, settings = configure("sft", *override.split())
    with pytest.raises(ConfigError, match=message):
        list(stages(config, settings))


def test_gpus_that_share_sequences_and_fixed_micro_batches_divide_a_step(configure):
    gpus = ("trainer.n_gpus_per_node=4", "seele.sft.batch_size=2", *SHARED_SEQUENCES.split())
    assert next(stages(*configure("sft", *gpus)))
    assert next(stages(*configure("sft", FIXED, f"{MICRO_BATCH}=2")))


def test_a_model_with_code_of_its_own_is_trained_where_nothing_is_validated(
    configure, tmp_path, model, monkeypatch
):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    own = shutil.copytree(model, tmp_path / "own")
    (own / "own.py").write_text(
        "from transformers import Qwen2Config\n\n\nclass OwnConfig(Qwen2Config):\n    model_type = 'own'\n"
    )
    written = json.loads((own / "config.json").read_text())
    code = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (own / "config.json").write_text(json.dumps(written | code))
    model_of = "actor_rollout_ref.model"
    trusted = (f"{model_of}.path={own}", f"{model_of}.trust_remote_code=true")
    for validates in ("trainer.test_freq=-1", "trainer.val_before_train=false"):
        with pytest.raises(ConfigError, match=r"own needs code of its own, .*set trainer.test_freq=-1 and"):
            next(stages(*configure("sft", *trusted, validates)))
    assert next(stages(*configure("sft", *trusted, "trainer.test_freq=-1", "trainer.val_before_train=false")))
    missing = configure("sft", f"{model_of}.path=no/model")
    [(_, found)] = check_stages(*missing, machine=partial(suppress, ConfigError))
    assert not found.has_model


def test_a_supervised_run_goes_on_with_the_problems_of_its_checkpoint(configure, tmp_path):
    config, settings = configure("sft")
    checkpoint = tmp_path / "run" / "global_step_3"
    checkpoint.mkdir(parents=True)
    (checkpoint / SHARD).touch()
    (tmp_path / "run" / "latest_checkpointed_iteration.txt").write_text("3")
    assert next(stages(config, settings)), "a checkpoint of an older release does not tell its problems"
    dataset = SolutionDataset([f"{tmp_path}/train.parquet"], None, SimpleNamespace(template="plain"))
    save_part(checkpoint, "problems", {"sha256": dataset.problems_sha256})
    assert next(stages(config, settings))
    for others in ([problem(i) for i in range(20)], [problem(i) for i in reversed(range(24))]):
        with pytest.raises(CheckpointError, match=r"global_step_3: .* data.train_files have different pro"):
            next(stages(*configure("sft", train=others)))
    assert next(stages(*configure("sft", "trainer.resume_mode=disable", train=others)))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([problem(i) for i in range(3)], "3 problems are fewer than the 4 of one supervised step"),
        ([problem(i) for i in range(4)] + [problem(4, steps=())], "'p-4' has no worked solution to train on"),
        (
            [problem(i) for i in range(4)] + [problem(4, steps=("x" * 88,))],
            "'p-4' has a solution of 89 tokens",
        ),
    ],
)
def test_problems_without_a_solution_that_fits_are_refused(configure, train, message):
    config, settings = configure("sft", "seele.data.overlong=refuse", train=train)
    with pytest.raises(DataError, match=message):
        list(stages(config, settings))


SHARD = "model_world_size_1_rank_0.pt"


def save_checkpoint(folder: Path) -> None:
    """Make what a start looks for in a checkpoint."""
    (folder / "actor").mkdir(parents=True)
    (folder / "actor" / SHARD).touch()
    zipfile.ZipFile(folder / "data.pt", "w").close()  # in the format of torch.save


@pytest.fixture
def first_stage_done(tmp_path):
    """Leaves what a finished first stage leaves."""

    def finish(status: str = "finished") -> None:
        weights = tmp_path / "run" / "sft" / "global_step_3" / "huggingface" / "model.safetensors"
        weights.parent.mkdir(parents=True)
        weights.write_bytes(b"weights")
        (weights.parents[1] / SHARD).touch()
        (tmp_path / "run" / "sft" / "latest_checkpointed_iteration.txt").write_text("3")
        costs = {"steps": 3, "seconds": 1.5, "tokens": {"trained": 7.0}, "flops": 42.0, "seed": 0}
        RunLog(tmp_path / "run" / "sft").append(3, {"tokens/trained": 7.0, "flops": 42.0})
        (tmp_path / "run" / "sft" / "run_card.json").write_text(json.dumps({"status": status} | costs))

    return finish


def test_two_stages_in_their_folders_with_problems_of_their_own(configure, tmp_path, first_stage_done):
    cluster = [f"ray_kwargs.ray_init.{key}" for key in ("address=auto", "num_cpus=null", "num_gpus=null")]
    config, settings = configure(
        *("sft_rl", "seele.curriculum.spare_problems=1", "seele.sft.batch_size=2"),
        *("trainer.total_training_steps=null", "trainer.total_epochs=2", "seele.max_generated_tokens=99"),
        *("trainer.nnodes=2", "replay=successes", *cluster),
    )
    walk = stages(config, settings)
    first, preflight = next(walk)
    run = tmp_path / "run"
    assert (preflight.seele.method, first.trainer.default_local_dir) == ("sft", str(run / "sft"))
    assert list(first.data.train_files) == [str(run / "problems" / "sft" / "0-train.parquet")]
    assert first.trainer.total_training_steps is None and preflight.seele.curriculum.spare_problems == 0
    first_stage_done()
    second, preflight = next(walk)
    assert (preflight.seele.method, second.trainer.default_local_dir) == ("sft_rl", str(run))
    assert second.actor_rollout_ref.model.path == str(run / "sft" / "merged")
    assert preflight.seele.curriculum.spare_problems == 1
    assert (first.seele.max_generated_tokens, second.seele.max_generated_tokens) == (None, 99)
    assert (first.trainer.nnodes, second.trainer.nnodes) == (1, 2)
    assert [each.seele.off_policy.source for each in (first, second)] == ["none", "successes"]
    parts = [read_problems(run / "problems" / stage / "0-train.parquet") for stage in ("sft", "rl")]
    assert sorted(p.instance_id for part in parts for p in part) == sorted(f"p-{i}" for i in range(24))
    assert next(walk, None) is None


def test_a_finished_first_stage_is_left_out_and_an_unfinished_one_is_not(
    configure, tmp_path, first_stage_done
):
    config, settings = configure("sft_rl")
    first_stage_done("failed")
    walk = stages(copy.deepcopy(config), settings)
    assert next(walk)[0].seele.method == "sft"
    walk.close()
    card = tmp_path / "run" / "sft" / "run_card.json"
    card.write_text(card.read_text().replace("failed", "finished"))
    assert [stage.seele.method for stage, _ in stages(copy.deepcopy(config), settings)] == ["sft_rl"]
    # Of a finished stage only the merged model is needed.
    shutil.rmtree(tmp_path / "run" / "sft" / "global_step_3")
    assert [stage.seele.method for stage, _ in stages(copy.deepcopy(config), settings)] == ["sft_rl"]


def test_a_second_stage_with_a_checkpoint_goes_on_from_it(configure, tmp_path, first_stage_done):
    run, (config, settings) = tmp_path / "run", configure("sft_rl")
    first_stage_done()
    [(second, _)] = stages(copy.deepcopy(config), settings)
    save_checkpoint(run / "global_step_5")
    (run / "resolved.yaml").write_text(OmegaConf.to_yaml(second))
    assert Path(second.actor_rollout_ref.model.path).exists()
    [(again, _)] = stages(config, settings)
    assert again.actor_rollout_ref.model.path == str(run / "sft" / "merged") and find_start(again) == 5


def test_starting_anew_leaves_nothing_that_a_stage_could_go_on_from(
    configure, tmp_path, model, first_stage_done, monkeypatch
):
    run = tmp_path / "run"
    next(stages(*configure("sft_rl")))
    first_stage_done()
    (run / "global_step_5").mkdir()
    (run / "global_step_5" / "data.pt").touch()
    (run / "latest_checkpointed_iteration.txt").write_text("5")
    # The second stage has finished as well.
    (run / "run_card.json").write_text('{"status": "finished", "steps": 5}')
    (run / "metrics.jsonl").write_text('{"step": 5}\n')
    (run / "resolved.yaml").write_text("seele: {seed: 0}\n")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    anew = ("seele.seed=1", "trainer.resume_mode=disable")
    with pytest.raises(ConfigError, match=r"rollout\.n: got 3"):
        next(stages(*configure("sft_rl", *anew, "actor_rollout_ref.rollout.n=3")))
    with pytest.raises(ConfigError, match="which the run starts from"):
        base = run / "sft" / "global_step_3"
        shutil.copytree(model, base, dirs_exist_ok=True)
        next(stages(*configure("sft_rl", *anew, f"actor_rollout_ref.model.path={base}")))
    assert {path: path.read_bytes() for path in before} == before
    # Refused, or interrupted, before training begins.
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for refusal in (ConfigError("too few GPUs"), KeyboardInterrupt()):
        walk = stages(*configure("sft_rl", *anew))
        assert next(walk)[0].seele.method == "sft" and last_complete_step(run) is None
        with pytest.raises(type(refusal)):
            walk.throw(refusal)
        kept = {path for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
        assert kept == {path for path in before if path.name != ".lock"}
        assert {path: path.read_bytes() for path in kept} == {path: before[path] for path in kept}
    # Or while the old run is moved away.
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        rename, moved = Path.rename, []

        def interrupted(path, target):
            moved.append(path)
            if len(moved) == 3:
                raise KeyboardInterrupt
            return rename(path, target)

        patch.setattr(Path, "rename", interrupted)
        next(stages(*configure("sft_rl", *anew)))
    assert {path: path.read_bytes() for path in kept} == {path: before[path] for path in kept}
    walk = stages(*configure("sft_rl", *anew))
    assert next(walk)[0].trainer.resume_mode == "auto"
    let_go(run / "sft")  # training begins
    with pytest.raises(ConfigError, match="out of memory"):
        walk.throw(ConfigError("out of memory"))
    # A run that is killed in the first stage goes on without "disable".
    assert last_complete_step(run) is last_complete_step(run / "sft") is None
    assert not any((run / name).exists() for name in ("run_card.json", "metrics.jsonl", "resolved.yaml"))
    walk = stages(*configure("sft_rl", "seele.seed=1"))
    assert next(walk)[0].seele.method == "sft"
    first_stage_done()
    second, _ = next(walk)
    assert (second.seele.method, second.trainer.resume_mode) == ("sft_rl", "auto")


def test_a_refused_run_has_divided_nothing(configure, tmp_path):
    with pytest.raises(ConfigError, match=r"rollout\.n: got 3"):
        next(stages(*configure("sft_rl", "actor_rollout_ref.rollout.n=3")))
    assert not (tmp_path / "run").exists()


def test_a_run_that_goes_on_may_not_divide_the_problems_anew(configure):
    config, settings = configure("sft_rl")
    next(stages(config, settings))
    config, settings = configure("sft_rl", "seele.sft.share=0.8")
    with pytest.raises(ConfigError, match="has divided other problems, or divided them differently"):
        next(stages(config, settings))


def test_a_limit_on_the_problems_holds_for_both_stages_together(configure, tmp_path):
    more = tmp_path / "more.parquet"
    write_problems(more, [problem(i) for i in range(24, 48)], split="train")
    limit = ("data.train_max_samples=30", "seele.sft.batch_size=2")

    def walk(*overrides):
        files = f"data.train_files=[{tmp_path}/train.parquet,{more}]"
        return stages(*configure("sft_rl", files, *overrides))

    _, preflight = next(walk(*limit))
    first, rest = (
        read_problem_files(problems_of_stage(tmp_path / "run" / "problems", stage)) for stage in ("sft", "rl")
    )
    assert preflight.num_problems == len(first)
    assert sorted(each.instance_id for each, _ in first + rest) == sorted(f"p-{i}" for i in range(30))
    with pytest.raises(ConfigError, match="has divided other problems, or divided them differently"):
        next(walk("data.train_max_samples=29", "seele.sft.batch_size=2"))
    # A run that was begun before the record told this goes on.
    record = tmp_path / "run" / "problems" / "division.json"
    division = json.loads(record.read_text())
    assert division.pop("max_samples") == 30
    record.write_text(json.dumps(division))
    assert next(walk(*limit))[1].num_problems == preflight.num_problems


def test_a_first_stage_with_problems_of_its_own(configure, tmp_path):
    complement = tmp_path / "complement.parquet"
    setting = (f"seele.sft.train_files=[{complement}]", "seele.sft.batch_size=2")
    with pytest.raises(DataError, match=r"seele.sft.train_files: no such file: .*complement.parquet"):
        next(stages(*configure("sft_rl", *setting)))
    write_problems(complement, [problem(i) for i in range(20, 30)], split="train")
    with pytest.raises(DataError, match=r"4 of their 10 questions are also in data.train_files, such as '20"):
        next(stages(*configure("sft_rl", *setting)))
    assert not (tmp_path / "run").exists()
    write_problems(complement, [problem(i) for i in range(24, 30)], split="train")
    _, preflight = next(stages(*configure("sft_rl", *setting)))
    assert preflight.num_problems == 6
    rest = read_problem_files(problems_of_stage(tmp_path / "run" / "problems", "rl"))
    assert [each.instance_id for each, _ in rest] == [f"p-{i}" for i in range(24)]
    with pytest.raises(ConfigError, match="has divided other problems, or divided them differently"):
        next(stages(*configure("sft_rl")))
    # A limit is the second stage's.
    limit = ("data.train_max_samples=4", f"trainer.default_local_dir={tmp_path}/limited")
    _, preflight = next(stages(*configure("sft_rl", *setting, *limit)))
    assert preflight.num_problems == 6
    assert len(read_problem_files(problems_of_stage(tmp_path / "limited" / "problems", "rl"))) == 4


def test_the_second_stage_alone_is_profiled(configure):
    profile = ("global_profiler.tool=torch", "global_profiler.steps=[3]")
    part = "actor_rollout_ref.actor.profiler.enable"
    config, settings = configure("sft_rl", *profile, f"{part}=true", "seele.sft.batch_size=2")
    (first, _), (second, _) = check_stages(config, settings)
    profiled = [
        (stage.global_profiler.tool, stage.global_profiler.steps, OmegaConf.select(stage, part))
        for stage in (first, second)
    ]
    assert profiled == [(None, None, False), ("torch", [3], True)]


def test_a_share_that_leaves_a_stage_without_problems_is_refused(configure):
    for override, error, message in (
        ("seele.sft.share=1.0", ConfigError, "leaves no problems for its RL stage"),
        ("seele.sft.share=0.0001", DataError, "leaves a stage with none"),
    ):
        config, settings = configure("sft_rl", override)
        with pytest.raises(error, match=message):
            next(stages(config, settings))


def test_every_other_method_is_one_stage(configure):
    config, settings = configure("grpo")
    walk = stages(config, settings)
    only, preflight = next(walk)
    assert only is config and preflight.num_problems == 24
    with pytest.raises(ConfigError, match=r"process \d+ on .* trains in .*/run; wait for its end"):
        next(stages(config, settings))
    assert next(walk, None) is None
    assert next(stages(config, settings))


def test_another_methods_checkpoints_are_refused_before_anything_changes(configure, tmp_path):
    config, settings = configure("grpo")
    save_checkpoint(tmp_path / "run" / "global_step_20")
    (tmp_path / "run" / "resolved.yaml").write_text("seele: {method: seele, seed: 0}\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=r"got 'grpo', but .* holds a run with 'seele'"):
        next(stages(config, settings))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("val_only", "validates"), [("true", True), ("false", False)])
def test_a_run_that_goes_on_validates_first_where_that_is_all_it_does(
    configure, tmp_path, monkeypatch, val_only, validates
):
    save_checkpoint(tmp_path / "run" / "global_step_20")
    begun = []
    monkeypatch.setattr(train, "count_parameters", lambda model, **_: 1)
    monkeypatch.setattr(train, "_train", lambda config, *_: begun.append(config.trainer.val_before_train))
    train.run(*configure("grpo", f"trainer.val_only={val_only}", "trainer.test_freq=-1"))
    assert begun == [validates]


def test_a_finished_run_is_left_as_it_is(configure, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    save_checkpoint(run / "global_step_3")
    (run / "latest_checkpointed_iteration.txt").write_text("3")
    RunLog(run).append(3, {"val/accuracy/a/b": 0.5})
    monkeypatch.setattr(train, "count_parameters", lambda model, **_: 1)
    begun = []
    monkeypatch.setattr(train, "_train", lambda config, *_: begun.append(config.trainer.total_training_steps))

    def repeat(steps: int, status: str, *others: str) -> tuple[list[int], str, bool]:
        """Begun runs, what was said, and whether the card stayed."""
        config, typed = configure("grpo", f"trainer.total_training_steps={steps}", *others)
        card = json.dumps({"status": status, "arguments": [*typed[:-1], "trainer.total_training_steps=3"]})
        (run / "run_card.json").write_text(card)
        begun.clear()
        train.run(config, typed)
        return list(begun), capsys.readouterr().out, (run / "run_card.json").read_text() == card

    # A run that was killed before it wrote its card still has that to do.
    assert repeat(3, "running")[::2] == ([3], False)
    steps, said, stays = repeat(3, "finished")
    assert (steps, stays) == ([], True)
    assert f"grpo has finished in {run}; nothing is left to do after step 3\nfor a new run, choose" in said
    steps, said, stays = repeat(2, "finished")
    assert (steps, stays) == ([], True) and "without trainer.total_training_steps=3" in said
    steps, said, stays = repeat(4, "finished")
    assert (steps, stays) == ([4], False)
    assert "unlike the last command in this folder: with trainer.total_training_steps=4; without" in said


def test_a_run_says_which_of_its_inputs_have_changed_since_the_last_command(
    configure, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(train, "count_parameters", lambda model, **_: 1)
    monkeypatch.setattr(train, "_train", lambda *_: None)

    def repeat(*overrides, **data) -> tuple[dict[str, str], str]:
        """The inputs in the run's card, and what was said of them."""
        train.run(*configure("grpo", *overrides, **data))
        said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("unlike")]
        return json.loads((tmp_path / "run/run_card.json").read_text())["inputs"], "".join(said)

    first, said = repeat()
    assert first["base_model"] is None, "the model's folder has no weights"
    assert len(first["train_files"]) == len(first["val_files"]) == 64
    assert said == "" and repeat() == (first, "")
    other, said = repeat(train=[problem(i) for i in range(25)])
    assert other == first | {"train_files": other["train_files"]} and other != first
    assert said == "unlike the last command in this folder: with other contents in train_files"
    own = tmp_path / "own.py"
    own.write_text("def judge(data_source, solution_str, ground_truth, extra_info): return 1\n")
    judged_by_own = f"seele.reward.grader={own}:judge"
    repeat(judged_by_own)
    own.write_text("def judge(data_source, solution_str, ground_truth, extra_info): return 0\n")
    _, said = repeat(judged_by_own)
    assert said == f"unlike the last command in this folder: with other contents in {own}"
    (tmp_path / "my_judges.py").write_text(own.read_text())
    monkeypatch.syspath_prepend(tmp_path)
    template = tmp_path / "mine.txt"
    template.write_text("{question}\n")
    imported = ("seele.reward.grader=my_judges:judge", f"seele.prompt.template={template}")
    repeat(*imported)
    (tmp_path / "my_judges.py").write_text(f"{own.read_text()}\n# other\n")
    template.write_text("Q: {question}\n")
    _, said = repeat(*imported)
    assert said.endswith(f": with other contents in {template} {tmp_path}/my_judges.py")
    same = {"arguments": [], "inputs": {"train_files": None}}
    assert describe_changes({"arguments": [], "inputs": first}, same) == "", "a file that is not known now"


def test_problems_that_only_the_first_of_two_stages_has_have_a_digest(tmp_path):
    write_problems(tmp_path / "train.parquet", [problem(1)], split="train")
    (tmp_path / "run/sft").mkdir(parents=True)
    (tmp_path / "run/sft/run_card.json").write_text('{"inputs": {"base_model": "abc"}}')

    def inputs(*files: str) -> dict[str, str | None]:
        config = {
            "data": {"val_files": [f"{tmp_path}/train.parquet"]},
            "trainer": {"default_local_dir": f"{tmp_path}/run"},
            "seele": {"sft": {"train_files": files}, "prompt": {"template": "plain"}},
        }
        return describe_command(OmegaConf.create(config), [])["inputs"]

    divided = inputs()
    assert (divided["base_model"], divided["train_files"]) == ("abc", None)
    assert "sft_train_files" not in divided
    apart = inputs(f"{tmp_path}/train.parquet")
    assert apart == divided | {"sft_train_files": divided["val_files"]} and divided["val_files"]


def test_the_files_of_a_users_own_parts_have_digests(configure, tmp_path, monkeypatch):
    (tmp_path / "defined_here.py").write_text("def baseline(group): pass\n")
    text = "from defined_here import baseline\n\nclass Told: pass\n\nASK = '?'\n"
    (tmp_path / "named_here.py").write_text(text)
    (tmp_path / "walks.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("named_here")
    points = [EntryPoint("mine", "named_here:ASK", "seele.templates")]
    monkeypatch.setattr(card, "distributions", lambda: [SimpleNamespace(entry_points=points)])
    monkeypatch.setattr("seele.rollout.templates.installed_names", lambda _: ["mine"])

    def named(*overrides: str) -> list[str]:
        config, _ = configure("grpo", *overrides)
        return [str(Path(file).relative_to(tmp_path)) for file in own_files_sha256(config)]

    assert named() == []
    assert named("seele.advantage.baseline=named_here:baseline") == ["defined_here.py", "named_here.py"]
    assert named("seele.callbacks=[named_here:Told]") == ["named_here.py"]
    assert named("seele.prompt.template=mine") == ["named_here.py"]
    assert named(f"seele.credit.walk={tmp_path}/walks.py:walk") == ["walks.py"]
    for spec in ("json:loads", "omegaconf:OmegaConf", "seele.records:Walk", "no_module:part"):
        assert named(f"seele.advantage.baseline={spec}") == []


def test_the_folder_of_own_compositions_is_among_a_commands_arguments(configure, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config, settings = configure("grpo")
    described = describe_command(config, settings, config_dir="mine")
    assert described["arguments"] == [*settings, f"--config-dir={tmp_path}/mine"]


def test_the_stages_share_a_fork_server_and_a_request_to_stop(configure, tmp_path, monkeypatch):
    events, (config, settings) = [], configure("sft_rl")
    folder = tmp_path / "run" / "sft"
    first = with_changes(config, {"trainer.default_local_dir": str(folder)})

    @contextmanager
    def forked_workers(config):
        events.append("open")
        try:
            yield "python"
        finally:
            events.append("closed")

    monkeypatch.setattr(train, "forked_workers", forked_workers)
    monkeypatch.setattr(train, "stages", lambda *_: ((stage, None) for stage in (first, config)))
    monkeypatch.setattr(train, "_run_stage", lambda *arguments, **_: events.append(arguments[-1]()))
    train.run(config, settings)
    assert events == ["open", "python", "python", "closed"]
    events.clear()
    (folder / ASKED).parent.mkdir(parents=True)
    (folder / ASKED).touch()
    with pytest.raises(RunStopped, match="stopped on request after the stage in"):
        train.run(config, settings)
    assert events == ["open", "python", "closed"]


def test_a_card_names_the_costs_of_both_stages(tmp_path, first_stage_done):
    run = tmp_path / "run"
    assert describe_stages(run, {}) == {}
    first_stage_done()
    # The second stage may end before it has written anything.
    nothing_yet = describe_stages(run, describe_cost(run, 7) | {"tokens": {"trained": 7.0}})["stages"]["rl"]
    assert nothing_yet == {"steps": 0, "seconds": 0, "tokens": {"trained": 0.0}, "flops": 0.0}
    log = RunLog(run)
    log.append(0, {"val/accuracy/a/b": 0.5})
    log.append(1, {"tokens/trained": 10.0, "flops": 100.0, "timing_s/step": 2.5})
    # What the first stage has spent counts from the start, also in the line of step 0.
    totals = [json.loads(line)["flops_total"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert totals == [42.0, 142.0]
    card = describe_cost(run, 7)
    card["tokens"] = {"trained": card["tokens"]["trained"]}
    assert (card["tokens"], card["flops"]) == ({"trained": 17.0}, 142.0)
    assert describe_stages(run, card)["stages"] == {
        "sft": {"steps": 3, "seconds": 1.5, "tokens": {"trained": 7.0}, "flops": 42.0},
        "rl": {"steps": 1, "seconds": 2.5, "tokens": {"trained": 10.0}, "flops": 100.0},
    }


def test_a_checkpoint_that_holds_a_whole_model_is_copied(tmp_path, first_stage_done):
    first_stage_done()
    merged = merge_checkpoint(tmp_path / "run" / "sft")
    assert (merged / "model.safetensors").read_bytes() == b"weights"
    assert (merged / "merged_step.txt").read_text().splitlines()[0] == "3"


def test_what_is_due_is_what_a_test_step_saved_and_nobody_measured(tmp_path):
    for step in (2, 4, 5, 6, 7):  # step 5 for the age of the one before
        weights = tmp_path / f"global_step_{step}" / "huggingface" / "model.safetensors"
        weights.parent.mkdir(parents=True)
        weights.touch()
    (tmp_path / "global_step_8").mkdir()  # killed while it was written
    log = RunLog(tmp_path)
    log.append(1, {"actor/sft_loss": 1.0})
    trainer = {"val_before_train": True, "test_freq": 4}
    model = {"actor_rollout_ref": {"model": {"path": "base"}}}
    config = OmegaConf.create({"trainer": trainer, "seele": {"sft": {"save_freq": 2, "epochs": 4}}} | model)
    due = due_models(config, tmp_path, last_step=7)
    assert due == {0: Path("base")} | {
        step: tmp_path / f"global_step_{step}" / "huggingface" for step in (4, 7)
    }
    log.amend(4, {"val/accuracy/chains/heldout": 0.5})
    log.amend(0, {"val/accuracy/chains/heldout": 0.1})
    assert list(due_models(config, tmp_path, last_step=7)) == [7]
    config.seele.sft.save_freq = None  # once an epoch, and each of these is measured
    assert list(due_models(config, tmp_path, last_step=7)) == [2, 6, 7]
    config.trainer.test_freq = -1
    assert due_models(config, tmp_path, last_step=7) == {}


@pytest.fixture
def measure(tmp_path):
    """Measure the models of a trained run in ``tmp_path``, and return what the terminal shows."""

    def run(*, test_freq, keep, logger=("console",), status=0):
        lines = [
            {"step": step, "metrics": {"val/accuracy/a/b": 0.5}, "warning": f"warning: step {step}\n"}
            for step in (0, 4)
        ]
        said = "".join(json.dumps(line) + "\n" for line in lines)
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\nexit {status}\n")
        python.chmod(0o755)
        trainer = {"val_before_train": True, "test_freq": test_freq, "max_actor_ckpt_to_keep": keep}
        trainer |= {"project_name": "project", "experiment_name": "run", "logger": list(logger)}
        model = {"actor_rollout_ref": {"model": {"path": "base"}}}
        config = OmegaConf.create({"trainer": trainer, "seele": {"sft": {"save_freq": 2}}} | model)
        terminal = io.StringIO()
        train_supervised(config, tmp_path, python=str(python), total_steps=4, resumed_at=4, terminal=terminal)
        return terminal.getvalue()

    return run


def test_a_supervised_run_warns_of_its_last_model_alone(tmp_path, measure):
    said = measure(test_freq=-1, keep=None)
    assert said.splitlines()[-1] == "warning: step 4" and "step 0\n" not in said
    assert (tmp_path / "logs" / "warnings.log").read_text() == "warning: step 4\n"
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").open()] == [0, 4]


def test_a_supervised_run_whose_evaluation_fails_keeps_its_checkpoints(tmp_path, measure):
    for step in (2, 4):
        weights = tmp_path / f"global_step_{step}" / "huggingface" / "model.safetensors"
        weights.parent.mkdir(parents=True)
        weights.touch()
    with pytest.raises(RuntimeError, match=r"the evaluation of \['base', .*failed"):
        measure(test_freq=2, keep=1, status=3)
    assert {folder.name for folder in tmp_path.glob("global_step_*")} == {"global_step_2", "global_step_4"}
    measure(test_freq=2, keep=1)
    assert not (tmp_path / "global_step_2").exists()


@pytest.mark.parametrize(
    ("in_run_folder", "folder"), [(True, "tensorboard"), (False, "tensorboard_log/project/run-accuracy")]
)
def test_tensorboard_gets_the_accuracies_of_a_supervised_run(
    tmp_path, measure, monkeypatch, in_run_folder, folder
):
    pytest.importorskip("torch.utils.tensorboard")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.delenv("TENSORBOARD_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    if in_run_folder:
        monkeypatch.setenv("TENSORBOARD_DIR", tracking_variables(tmp_path, resumes=False)["TENSORBOARD_DIR"])
    measure(test_freq=-1, keep=None, logger=("console", "tensorboard"))
    stored = events.EventAccumulator(str(tmp_path / folder))
    stored.Reload()
    assert stored.Tags()["scalars"] == ["val/accuracy/a/b"]
    assert [(each.step, each.value) for each in stored.Scalars("val/accuracy/a/b")] == [(0, 0.5), (4, 0.5)]


def test_a_validation_that_is_stopped_keeps_the_checkpoints_that_are_not_measured(tmp_path, measure):
    for step in (2, 4):
        weights = tmp_path / f"global_step_{step}" / "huggingface" / "model.safetensors"
        weights.parent.mkdir(parents=True)
        weights.touch()
        zipfile.ZipFile(weights.parents[1] / "data_0.pt", "w").close()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "stop").touch()
    assert measure(test_freq=2, keep=1) == ""
    assert saved_steps(tmp_path) == [2, 4]
    (tmp_path / "logs" / "stop").unlink()
    (tmp_path / "logs" / "stopped").unlink()
    measure(test_freq=2, keep=1)
    assert saved_steps(tmp_path) == [4]


def test_a_line_is_amended_in_its_place(tmp_path):
    log = RunLog(tmp_path)
    log.append(1, {"tokens/trained": 3.0})
    log.append(2, {"tokens/trained": 4.0})
    RunLog(tmp_path).amend(1, {"val/accuracy/a/b": 0.5})
    RunLog(tmp_path).amend(0, {"val/accuracy/a/b": 0.25})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row.get("val/accuracy/a/b")) for row in rows] == [(0, 0.25), (1, 0.5), (2, None)]
    assert [row.get("tokens/trained_total") for row in rows] == [None, 3.0, 7.0]


def test_a_supervised_step_reads_as_loss_and_pace():
    line = {"step": 3, "actor/sft_loss": 0.125, "tokens/trained": 5000.0, "timing_s/step": 2.0}
    assert format_step(line, 63) == "step    3/63 | loss 0.125 | 2,500 tok/s | 2.0 s/step | 2:00 left"
