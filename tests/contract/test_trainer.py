"""What SEELE's trainer does in verl's loop, step by step, without verl's set-up."""

import inspect
import math
import time
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import torch
from omegaconf import OmegaConf
from ray.exceptions import ActorDiedError, ActorUnavailableError
from verl.checkpoint_engine.base import CheckpointEngineManager
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from seele.callbacks import Callbacks
from seele.config import HintConfig, OffPolicyConfig, SeeleConfig
from seele.errors import CheckpointError
from seele.methods.sources import build_source
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance, Rollout, Visit
from seele_verl import trainer as module
from seele_verl.controller_actor import ControllerActor
from seele_verl.engine_watch import EngineWatch
from seele_verl.protocol import validation_rows
from seele_verl.runner import SeeleTaskRunner
from seele_verl.runs.checkpoints import PASSING, saved_steps
from seele_verl.runs.stopping import ASKED, HEEDED, RunStopped, has_stopped
from seele_verl.step_record import StepRecord


def trainer_with(**attributes):
    """A trainer that has these attributes, and none of what verl sets up."""
    trainer = object.__new__(module.SeeleTrainer)
    vars(trainer).update(attributes)
    return trainer


@pytest.fixture
def run(tmp_path):
    """A run folder with a place for requests to stop."""
    (tmp_path / "logs").mkdir()
    return tmp_path


def test_a_group_that_was_left_behind_and_ended_all_the_same_belongs_to_no_step(monkeypatch):
    monkeypatch.setattr(module.ray, "get", lambda answer: answer)
    monkeypatch.setattr(module.SeeleTrainer.__base__, "on_sample_end", lambda self: None)
    # One is of step 1, after that step had ended, and one of this step, just before it is cancelled.
    visits = dict.fromkeys(["step1-000009", "step2-000000", "step2-000001", "step2-000002"], "visit")
    trainer = trainer_with(
        global_steps=2,
        seele=SimpleNamespace(curriculum=SimpleNamespace(spare_problems=1)),
        agent_loop_manager=SimpleNamespace(agent_loop_workers=[]),
        engines=SimpleNamespace(let_go_of_dead=lambda step: None),
        replay_buffer=SimpleNamespace(left_behind=lambda: ["step2-000001"], forget=lambda uids: None),
        current=StepRecord(problem_of_uid={"step2-000000": 7, "step2-000001": 8, "step2-000002": 9}),
        controller=SimpleNamespace(take_step=SimpleNamespace(remote=lambda: (visits, {}))),
    )
    trainer.on_sample_end()
    assert trainer.current.visits.keys() == {"step2-000000", "step2-000002"}
    assert trainer._carried == [8]
    # Resumed without spare problems: what was carried into this step is not carried into the next.
    trainer.seele.curriculum.spare_problems = 0
    trainer.on_sample_end()
    assert trainer._carried == []


def test_a_worker_that_is_dead_when_spare_problems_are_cut_does_not_end_the_run(monkeypatch):
    def raise_or_return(answer):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module.ray, "get", raise_or_return)
    ended = []

    def end_visit(*arguments):
        inspect.signature(ControllerActor.end_visit).bind(None, *arguments)
        ended.append(arguments)

    trainer = trainer_with(
        current=StepRecord(problem_of_uid={"a": 1, "b": 0}),
        train_dataset=SimpleNamespace(instance_ids=["zero", "one"]),
        controller=SimpleNamespace(end_visit=SimpleNamespace(remote=end_visit)),
    )

    def workers(*answers):
        stops = [SimpleNamespace(remote=lambda uids, answer=answer: answer) for answer in answers]
        calls = [SimpleNamespace(cancel_prompts=stop) for stop in stops]
        trainer.agent_loop_manager = SimpleNamespace(agent_loop_workers=calls)

    workers(None, None)
    trainer._cancel(["a", "b"])
    assert ended == [], "living workers end the visits themselves"
    workers(ActorDiedError(), None)
    trainer._cancel(["a", "b"])
    assert ended == [("a", "one"), ("b", "zero")]
    workers(ActorUnavailableError("out of reach", b"0" * 16))
    with pytest.raises(ActorUnavailableError):
        trainer._cancel(["a"])


def test_a_step_without_a_group_to_learn_from_makes_no_update(monkeypatch):
    def update(*_):
        raise AssertionError("the policy would move by KL and entropy")

    monkeypatch.setattr(module.SeeleTrainer.__base__, "_update_actor", update)
    for name in ("omega_conf_to_dataclass", "weight_columns", "informative_columns", "keys_with_weight"):
        monkeypatch.setattr(module, name, lambda *_: [])
    monkeypatch.setattr(module, "show_life", lambda run: None)
    learnt, metrics = [], {}
    trainer = trainer_with(
        config=SimpleNamespace(
            actor_rollout_ref=SimpleNamespace(actor=None), trainer=SimpleNamespace(device="cuda")
        ),
        run=None,
        terms=(),
        failed=None,
        current=StepRecord(updates=False),
        _learn=learnt.append,
    )
    batch = SimpleNamespace()
    assert trainer._update_actor(batch, metrics) is batch
    assert (metrics, learnt) == ({}, [batch])


def test_that_stopping_ended_is_said_once():
    class Credit:
        stops, false_alarms = True, 0.05

        def take_step(self, visits):
            self.stops = False
            return {"u": {0: ["span"]}}

    said, credit = [], Credit()
    trainer = trainer_with(log=SimpleNamespace(warn=said.append), global_steps=4, current=StepRecord())
    for _ in range(2):
        assert trainer._take_credit(credit) == {"u_0_0": ["span"]}
    [warning] = said
    assert warning.startswith("warning: step 4: 5.0 % ") and "no longer stopped early" in warning


@pytest.mark.parametrize("trained", ["step2-000000", "step2-000002"])
def test_of_a_problem_that_a_step_began_twice_the_group_that_was_trained_on_counts(monkeypatch, trained):
    heard, failed = [], []
    problem_of_uid = {"step2-000000": 7, "step2-000001": 8, "step2-000002": 7}
    visits = {uid: f"visit of {uid}" for uid in ("step2-000002", "step2-000000", "step2-000001")}
    trainer = trainer_with(
        current=StepRecord(problem_of_uid=problem_of_uid, visits=visits),
        seele=SeeleConfig(method="grpo"),
        planner=SimpleNamespace(learn=lambda *step: heard.append(step)),
    )
    batch = SimpleNamespace(keys=[f"{trained}_0_0", "step2-000001_0_0"], tags=[{}, {}])
    advantages = torch.nested.as_nested_tensor(
        [torch.tensor([-1.0, 3.0]), torch.zeros(2)], layout=torch.jagged
    )
    monkeypatch.setattr(module, "read_columns", lambda *_: {"advantages": advantages})
    trainer._learn(batch)
    of_problems = {7: f"visit of {trained}", 8: "visit of step2-000001"}
    # The planner hears of their size over all tokens, the dump of the last token's.
    assert heard == [(of_problems, {7: {0: 2.0}, 8: {0: 0.0}})]
    assert trainer.current.advantages == {trained: {0: 3.0}, "step2-000001": {0: 0.0}}
    trainer._learn_solutions(
        SimpleNamespace(take_step=lambda step: failed.append(step) or []), trainer._uids_by_problem(batch)
    )
    assert failed == [of_problems]
    trainer.current = StepRecord(problem_of_uid=problem_of_uid, visits=visits, updates=False)
    trainer._learn(batch)
    assert (heard[-1], trainer.current.advantages) == ((of_problems, {}), {}), "no group was trained on"


def test_a_step_begins_with_an_empty_record_to_which_further_problems_are_added(monkeypatch):
    monkeypatch.setattr(module.ray, "get", lambda answer: answer)
    in_flights = []

    def begin_more(count, *, in_flight):
        in_flights.append(in_flight)
        return [9, 7][:count], {}

    of_step_1 = StepRecord(
        problem_of_uid={"step1-000000": 5}, visits={"step1-000000": "visit"}, updates=False
    )
    of_step_1.advantages["step1-000000"][0] = 1.0
    trainer = trainer_with(
        global_steps=2,
        current=of_step_1,
        controller=SimpleNamespace(begin_step=SimpleNamespace(remote=lambda step: None)),
        planner=SimpleNamespace(begin=lambda step, carried: ([7, 8], {}), begin_more=begin_more),
        train_dataset=[{"problem": index} for index in range(10)],
        seele=SeeleConfig(method="grpo"),
        credit=None,
        _carried=[],
        replay_buffer=SimpleNamespace(
            pending_keys={"train": {"step2-000001"}}, running_keys={"train": set()}
        ),
    )
    batch = trainer._next_train_batch()
    problem_of_uid = {"step2-000000": 7, "step2-000001": 8}
    assert [*batch["uid"]] == [*problem_of_uid]
    assert trainer.current == StepRecord(problem_of_uid=problem_of_uid) != of_step_1
    batch = trainer._next_train_batch(2)
    problem_of_uid |= {"step2-000002": 9, "step2-000003": 7}
    assert ([*batch["uid"]], [*batch["repeat"]]) == (["step2-000002", "step2-000003"], [0, 1])
    assert trainer.current == StepRecord(problem_of_uid=problem_of_uid)
    assert in_flights == [[8]]


class Replica:
    """An engine of one server, whose death ``ray.wait`` tells by ``life of NAME``."""

    def __init__(self, name):
        self.servers = [SimpleNamespace(live=SimpleNamespace(remote=lambda: f"life of {name}"))]


@pytest.mark.parametrize(
    ("others", "dead", "said"),
    [
        ({}, [], "the rollouts of all problems of step 3 failed, the first with ValueError: no judge"),
        ({}, ["life of engine"], "the engine died in step 3"),
        ({"running_keys": {"b"}}, ["life of engine"], "the engine died in step 3"),
        ({"running_keys": {"b"}}, [], ""),
        ({"finished_keys": {"b"}}, [], ""),
    ],
)
def test_a_step_whose_rollouts_all_failed_ends_with_their_cause(monkeypatch, others, dead, said):
    """verl's own message advises a setting that would begin further problems."""
    monkeypatch.setattr(module.ray, "get", lambda answer: answer)
    monkeypatch.setattr(module.ray, "wait", lambda refs, **_: (dead, []))
    sets = {"failure_keys": {"a"}} | others
    names = ("pending_keys", "running_keys", "finished_keys", "failure_keys")
    trainer = trainer_with(
        global_steps=3,
        engines=EngineWatch(SimpleNamespace(replicas=[Replica("engine")]), warn=None),
        controller=SimpleNamespace(first_reason=SimpleNamespace(remote=lambda: "ValueError: no judge")),
        replay_buffer=SimpleNamespace(**{name: {"train": sets.get(name, set())} for name in names}),
    )
    assert trainer._why_nothing_is_generated() == said


def test_every_part_that_learns_is_in_a_checkpoint_and_comes_back(monkeypatch, tmp_path):
    class Part:
        def __init__(self, state):
            self.state = state

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = state

        def on_validation_end(self, step, metrics):
            self.state |= {"heard": (step, metrics)}

    class Remote:
        """The controller's process, whose calls are done at once."""

        def __init__(self, part):
            for name in ("state_dict", "load_state_dict"):
                setattr(self, name, SimpleNamespace(remote=getattr(part, name)))

    learning = ("controller", "planner", "callbacks", "credit", "own_solutions", "interleave")
    validated: dict[str, float] = {}

    def trainer_of(states):
        parts = {name: Part(states[name]) for name in learning}
        parts["callbacks"].on_checkpoint_saved = lambda *_: None
        trainer = trainer_with(
            run=tmp_path,
            global_steps=3,
            seele=SimpleNamespace(hints=SimpleNamespace(refresh="epoch")),
            config=OmegaConf.create(
                {"actor_rollout_ref": {"actor": {"strategy": "fsdp"}}, "data": {"train_batch_size": 2}}
            ),
            log=SimpleNamespace(rewind=lambda step, saved: saved | validated),
            controller=Remote(parts["controller"]),
            planner=parts["planner"],
            callbacks=parts["callbacks"],
            credit=parts["credit"],
            failed=parts["interleave"],
            train_dataset=SimpleNamespace(own_solutions=parts["own_solutions"]),
            _carried=[],
            _line={"step": 3},
            _checkpoints_to_keep=None,
            _end_at_budget=lambda: None,
        )
        return trainer, parts

    for name in ("_save_checkpoint", "_load_checkpoint"):
        monkeypatch.setattr(module.SeeleTrainer.__base__, name, lambda self: None)
    monkeypatch.setattr(module, "ray", SimpleNamespace(get=lambda value: value))
    done, drop = [], module.drop_passing_checkpoints

    @contextmanager
    def recording_files(folder):
        yield
        done.append("is on the disk")

    def drop_passing_checkpoints(*args, **kwargs):
        done.append("others go")
        drop(*args, **kwargs)

    monkeypatch.setattr(module, "recording_files", recording_files)
    monkeypatch.setattr(module, "drop_passing_checkpoints", drop_passing_checkpoints)
    monkeypatch.setattr(module, "reading_data_only", nullcontext)
    monkeypatch.setattr(module, "checkpoint_to_resume", lambda *_: module.step_folder(tmp_path, 3))
    states = {name: {"learnt": name} for name in learning}
    trainer, _ = trainer_of(states)
    trainer._carried = [5, 3]
    for step in (1, 2):
        (module.step_folder(tmp_path, step) / "seele").mkdir(parents=True)
    module.mark_passing(module.step_folder(tmp_path, 1))
    trainer._save_checkpoint()
    assert saved_steps(tmp_path) == [2, 3], "step 1 was saved for the age of the one before"
    assert done == ["is on the disk", "others go"]
    nothing = {name: {"learnt": ""} for name in learning}
    resumed, parts = trainer_of(nothing)
    resumed._load_checkpoint()
    assert {name: part.state for name, part in parts.items()} == states
    assert resumed._carried == [5, 3]
    # The step was validated after it was saved, before the run was killed.
    validated |= {"val/accuracy/x": 0.5, "val-core/x": 0.5, "actor/lr": 1.0}
    resumed, parts = trainer_of(nothing)
    resumed._load_checkpoint()
    heard = (3, {"val/accuracy/x": 0.5, "val-core/x": 0.5})
    assert parts["callbacks"].state == {"learnt": "callbacks", "heard": heard}
    # Saved after the validation, of which the callbacks' state has heard.
    trainer._line |= validated
    trainer._save_checkpoint()
    resumed, parts = trainer_of(nothing)
    resumed._load_checkpoint()
    assert parts["callbacks"].state == {"learnt": "callbacks"}
    other, parts = trainer_of(nothing)
    other.controller.load_state_dict.remote = lambda state: None
    with pytest.raises(CheckpointError, match="another method or other settings"):
        other._load_checkpoint()
    other.config.data.train_batch_size = 1
    with pytest.raises(CheckpointError, match=r"begins with 2 problems .* data\.train_batch_size is 1"):
        other._load_checkpoint()


@pytest.mark.parametrize(("step", "last", "stops"), [(1, 0, True), (4, 3, True), (5, 4, False)])
def test_a_run_that_was_asked_to_stop_before_its_first_step_takes_none(run, step, last, stops):
    trainer = trainer_with(run=run, global_steps=step, total_training_steps=4)
    trainer.on_train_begin()
    assert trainer.total_training_steps == 4
    (run / ASKED).touch()
    trainer.on_train_begin()
    assert (trainer.total_training_steps, has_stopped(run)) == (last, stops)


def test_a_request_to_stop_is_heard_before_models_are_loaded_and_before_the_first_validation(run):
    (run / ASKED).touch()
    settings = {"default_local_dir": str(run), "cluster_patience_s": 0}
    SeeleTaskRunner().run(OmegaConf.create({"trainer": settings}))
    assert has_stopped(run)
    (run / HEEDED).unlink()
    trainer = trainer_with(run=run, _training=False)
    with pytest.raises(RunStopped):
        trainer._validate()
    assert has_stopped(run)


def test_a_step_ends_without_engines_that_died_and_is_saved_before_the_run_ends(monkeypatch, run):
    dead, said, saved = [], [], []
    monkeypatch.setattr(module.ray, "wait", lambda lives, **_: (dead, []))
    monkeypatch.setattr(module.SeeleTrainer.__base__, "on_step_end", lambda self: saved.append("weights"))
    first, second = Replica("first"), Replica("second")
    manager = object.__new__(CheckpointEngineManager)
    manager.replicas = [first, second]
    trainer = trainer_with(
        run=run,
        global_steps=3,
        total_training_steps=9,
        timing_raw={},
        seele=SimpleNamespace(save_every_minutes=None),
        config=SimpleNamespace(trainer=SimpleNamespace(save_freq=2)),
        engines=EngineWatch(manager, warn=said.append),
        _saved_step=2,
        _saved_at=0.0,
        _save_checkpoint=lambda: saved.append(trainer.global_steps),
    )
    trainer.on_step_end()
    assert (saved, said) == (["weights"], [])
    dead.append("life of first")
    trainer.engines.let_go_of_dead(3)
    trainer.engines.let_go_of_dead(3)
    assert manager.replicas == [second]
    assert said == ["step 3: 1 of 2 engines died; the others take over, and the run ends after this step\n"]
    with pytest.raises(RuntimeError, match="an engine died in step 3, after which the run is saved"):
        trainer.on_step_end()
    assert saved == ["weights", 3]
    dead.append("life of second")
    with pytest.raises(RuntimeError, match="the engine died in step 3"):
        trainer.engines.let_go_of_dead(3)


@pytest.mark.parametrize(
    ("step", "every", "minutes", "saves", "passes"),
    [
        (3, 4, 0, True, True),
        (4, 4, 0, True, False),
        (9, 4, 0, True, False),
        (3, 4, 5, False, False),
        (9, 4, 5, False, False),  # verl saves it
        (9, -1, 5, True, False),
        (9, -1, None, False, False),
    ],
)
def test_a_checkpoint_that_only_its_age_caused_is_marked(
    monkeypatch, run, step, every, minutes, saves, passes
):
    monkeypatch.setattr(module.SeeleTrainer.__base__, "on_step_end", lambda self: None)
    trainer = trainer_with(
        run=run,
        global_steps=step,
        total_training_steps=9,
        timing_raw={},
        seele=SimpleNamespace(save_every_minutes=5 if minutes is not None else None),
        config=SimpleNamespace(trainer=SimpleNamespace(save_freq=every)),
        engines=SimpleNamespace(let_go_of_dead=lambda step: None, has_lost_some=False),
        _saved_step=2,
        _saved_at=-math.inf if minutes == 0 else time.monotonic(),
        _save_checkpoint=lambda: (run / f"global_step_{step}/seele").mkdir(parents=True),
    )
    trainer.on_step_end()
    assert (run / f"global_step_{step}").exists() == saves
    assert (run / f"global_step_{step}" / PASSING).exists() == passes


@pytest.mark.parametrize(
    ("saved_step", "last_step", "expected"),
    [
        (19, 99, ["line", "engines sleep", "save"]),
        (20, 99, ["line"]),  # saved before the validation
        (20, 20, ["line"]),  # the last step
    ],
)
def test_a_request_to_stop_during_a_validation_needs_no_other_step(
    monkeypatch, run, saved_step, last_step, expected
):
    monkeypatch.setattr(module.SeeleTrainer.__base__, "_compute_metrics", lambda *_, **__: None)
    done = []
    trainer = trainer_with(
        run=run,
        global_steps=20,
        total_training_steps=last_step,
        config=SimpleNamespace(seele=SimpleNamespace(max_generated_tokens=None)),
        log=SimpleNamespace(generated={}, write=lambda step, row: done.append("line")),
        checkpoint_manager=SimpleNamespace(sleep_replicas=lambda: done.append("engines sleep")),
        _line={"accuracy/mean": 0.25},
        _saved_step=saved_step,
        _save_checkpoint=lambda: done.append("save"),
    )
    trainer._compute_metrics(None, {}, {}, global_steps=20, epoch=0)
    assert (done, trainer.total_training_steps) == (["line"], last_step)
    done.clear()
    (run / ASKED).touch()
    trainer._compute_metrics(None, {"val/accuracy/x": 0.5}, {}, global_steps=20, epoch=0)
    assert (done, trainer.total_training_steps) == (expected, 20)
    assert ("val/accuracy/x" in trainer._line) is ("save" in expected), "a resumed run knows what was saved"
    assert has_stopped(run) is (last_step > 20)


def test_a_checkpoint_knows_how_long_its_step_took_before_it_was_saved(monkeypatch):
    def step(self, metrics, timing_raw):
        timing_raw.update(gen=2.0, update_actor=1.5)

    monkeypatch.setattr(module.SeeleTrainer.__base__, "step", step)
    log = SimpleNamespace(count=lambda metrics: {"flops_total": 6.0}, write_rollouts=lambda *_: None)
    trainer = trainer_with(
        global_steps=1,
        current=StepRecord(),
        callbacks=Callbacks(()),
        log=log,
        logger=SimpleNamespace(logger={}),
        _measure=lambda batch: {"flops": 5.0},
        _looked_at={"step"},
    )
    metrics = {}
    trainer.step(metrics, {})
    counts = {"flops": 5.0, "flops_total": 6.0}
    times = {"timing_s/gen": 2.0, "timing_s/update_actor": 1.5, "timing_s/step": 3.5}
    # verl adds the times to the record itself.
    assert (metrics, trainer._line) == (counts, counts | times)


def test_validation_and_the_first_step_tell_format_from_knowledge(monkeypatch):
    """This uses verl's validation without its engine."""
    source = inspect.getsource(PPOTrainer._validate)
    assert source.index("self._maybe_log_val_generations(") < source.index("return self._val_metrics_update(")
    assert "outputs=sample_outputs" in source and '.get("reward_extra_info", {})' in source

    instance = Instance(instance_id="i", data_source="toy", question="?", steps=(), answer="1")
    rollouts = [
        Rollout(
            round_index=0,
            rollout_index=index,
            share=HintShare(0.0, 3),
            hint_steps=0,
            completion=Completion(text=text, token_ids=(1,), log_probs=(), finish=finish),
            grade=Grade(reason is GradeReason.CORRECT, reason),
        )
        for index, (text, reason, finish) in enumerate(
            [
                ("one", GradeReason.NO_ANSWER, Finish.STOP),
                ("one, or", GradeReason.NO_ANSWER, Finish.LENGTH),
                ("\\boxed{1}", GradeReason.CORRECT, Finish.STOP),
            ]
        )
    ]
    rows = validation_rows(
        "uid", instance, rollouts, prompt_ids=[1], data_source="toy/a", model_version=0, global_step=0
    )
    infos = {"reward": [0.0, 0.0, 1.0]}
    for extra in rows.fields["extra_fields"]:
        for key, value in extra["reward_extra_info"].items():
            infos.setdefault(key, []).append(value)

    said = []
    settings = {"trainer": {"log_val_generations": 0}, "data": {"max_response_length": 7}}
    trainer = trainer_with(
        config=OmegaConf.create(settings),
        seele=SeeleConfig(method="grpo"),
        logger=SimpleNamespace(logger={}),
        log=SimpleNamespace(warn=said.append, count=lambda metrics: {}, write_rollouts=lambda *_: None),
        _looked_at=set(),
    )
    texts = [rollout.completion.text for rollout in rollouts]
    for _ in range(2):
        trainer._maybe_log_val_generations(inputs=["?"] * 3, outputs=texts, scores=infos["reward"])
        metrics = trainer._val_metrics_update(["toy/a"] * 3, ["uid"] * 3, infos, [2] * 3)
    assert metrics["val-core/toy/a/reward/mean@3"] == pytest.approx(1 / 3)
    assert metrics["val/truncated_share/toy/a"] == pytest.approx(1 / 3)
    assert metrics["val/no_answer_share/toy/a"] == pytest.approx(2 / 3)
    assert not any("reason" in name or "finish" in name for name in metrics)
    [warning] = said
    assert "(validation toy/a: 66.7% of 3)" in warning and '"one, or"' in warning and "no end" not in warning

    monkeypatch.setattr(module.SeeleTrainer.__base__, "step", lambda self, metrics, timing_raw: None)
    visit = Visit(instance=instance, step=1, prompt_tokens=1, step_tokens=(), rollouts=tuple(rollouts))
    trainer.current, trainer._measure = StepRecord(visits={"uid": visit}), lambda batch: {}
    trainer.callbacks = SimpleNamespace(on_step_end=lambda step, metrics: {})
    for trainer.global_steps in (1, 2):
        trainer.step({}, {})
    assert len(said) == 2 and "(step 1: 66.7% of 3)" in said[1]


@pytest.mark.parametrize("missing", [0, 2])
def test_a_validation_without_all_of_its_responses_has_no_accuracy(monkeypatch, run, missing):
    def validate(self):
        self._validated_texts = ["text"] * (6 - missing)
        return {"val-core/toy/reward/mean@2": 0.5}

    monkeypatch.setattr(module.SeeleTrainer.__base__, "_validate", validate)
    said, told = [], []
    trainer = trainer_with(
        run=run,
        global_steps=20,
        config=OmegaConf.create({"actor_rollout_ref": {"rollout": {"val_kwargs": {"n": 2}}}}),
        val_dataset=["problem"] * 3,
        log=SimpleNamespace(warn=said.append),
        callbacks=SimpleNamespace(on_validation_end=lambda step, metrics: told.append(step)),
        _training=True,
        _saved_step=18,
    )
    (run / ASKED).touch()  # the step is not saved
    metrics = trainer._validate()
    if missing:
        assert metrics == {"validation/missing_responses": 2.0} and not told
        assert "validation after step 20: 2 of 6 responses are missing" in said[0]
    else:
        assert metrics["val/accuracy/toy"] == 0.5 and (said, told) == ([], [20])
    trainer._saved_step = 20
    assert trainer._validate() == {} and has_stopped(run)


def test_rows_divide_into_the_micro_batches_of_a_pass():
    trainer = trainer_with(config=OmegaConf.create({"trainer": {"nnodes": 2, "n_gpus_per_node": 4}}))
    settings = {"log_prob_use_dynamic_bsz": True, "log_prob_micro_batch_size_per_gpu": 16}
    assert trainer._multiple_of_rows(OmegaConf.create(settings)) == 8
    fixed = OmegaConf.create(settings | {"log_prob_use_dynamic_bsz": False})
    assert trainer._multiple_of_rows(fixed) == 128


@pytest.mark.parametrize(
    ("hints", "source", "measures"),
    [
        ({"placement": "assistant"}, {}, True),
        ({"placement": "user"}, {}, True),
        ({"controller": "prefix_rft"}, {"source": "prefix", "loss": "surrogate"}, False),
        ({"controller": "none"}, {}, False),
    ],
)
def test_hint_reliance_is_measured_wherever_the_prompt_has_hints(hints, source, measures):
    trainer = trainer_with(
        global_steps=4,
        total_training_steps=9,
        seele=SimpleNamespace(hints=HintConfig(**hints)),
        source=build_source(OffPolicyConfig(**source)),
        config=SimpleNamespace(trainer=SimpleNamespace(test_freq=2)),
    )
    assert trainer._measures_reliance is measures
