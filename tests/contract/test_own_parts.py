"""A user's own loss term, from its columns to the actor's loss, and how a user's fault ends a run."""

import asyncio
import dataclasses
import pickle
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import ray
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from seele.config import HintConfig, ImitationConfig, LossTermConfig, OffPolicyConfig, SeeleConfig
from seele.errors import ConfigError, PluginError
from seele.losses.term import Axis
from seele.methods.loss_terms import LossTerms
from seele.methods.sources import build_source
from seele.records import (
    Completion,
    Finish,
    Grade,
    GradeReason,
    HintShare,
    Instance,
    Rollout,
    RoundOutcome,
    RoundRequest,
)
from seele.rollout.solutions import EncodedProblem
from seele_verl import faults, losses, rounds_worker
from seele_verl.controller_actor import ControllerActor
from seele_verl.protocol import INSTANCE_IDS, count_of, training_rows

OWN = """
import torch

from seele.losses.term import Axis, LossTerm
from seele.methods.sources import OffPolicySource


class Term(LossTerm):
    name = "own_loss"
    columns = {"own_weights": Axis.RESPONSE}
    counted = ("own_weights",)

    def __init__(self, *, weight=1.0):
        self.weight = weight

    def columns_of(self, row):
        return {"own_weights": [self.weight] * row.response_tokens}

    def compute(self, batch):
        weighed_BR = batch.response_column("own_weights") * batch.log_probs_BR
        return -weighed_BR.sum() / batch.num_marked("own_weights"), {"own_metric": weighed_BR.sum()}


class Nan(Term):
    def compute(self, batch):
        return torch.tensor(float("nan")), {}


class Vector(Term):
    def compute(self, batch):
        return batch.log_probs_BR.sum(-1), {}


class Raises(Term):
    def compute(self, batch):
        return batch.no_such_column


class Short(Term):
    def columns_of(self, row):
        return {"own_weights": [1.0]}


class Taken(Term):
    columns = {"advantages": Axis.RESPONSE}
    counted = ()

    def columns_of(self, row):
        return {"advantages": [1.0] * row.response_tokens}


class Nameless(Term):
    name = ""


class Discriminator(Term):
    name = "discriminator_loss"


class LikeVerls(Term):
    name = "kl_loss"


class LogsAMinimum(Term):
    def compute(self, batch):
        zero = batch.log_probs_BR.sum() * 0
        return zero, {"smallest_min": zero}


class Miscounts(Term):
    counted = ("own_weight",)


class TakesOver(Term):
    columns = {"own_weights": Axis.SEQUENCE}
    takes_over = "own_weights"


class Unclips(Term):
    counted = ()
    unclips = "own_weights"


class Source(OffPolicySource):
    adds_rollouts = True

    def given(self, instance, encoded, tokenizer, *, replayed=None):
        raise KeyError(instance.instance_id)
"""
INSTANCE = Instance(instance_id="problem-7", data_source="x", question="?", steps=("a", "b"), answer="b")


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


def settings(own, *names, coefficient=0.5, **sections):
    terms = tuple(LossTermConfig(term=f"{own}:{name}", coefficient=coefficient) for name in names)
    no_hints = {"hints": HintConfig(controller="none", rounds=1), "imitation": ImitationConfig(coefficient=0)}
    return SeeleConfig(method="grpo", loss_terms=terms, **no_hints, **sections)


def rows_of(config):
    rollout = Rollout(
        round_index=0,
        rollout_index=0,
        share=HintShare(0.0, 1),
        hint_steps=0,
        completion=Completion(text="", token_ids=(5, 6, 7), log_probs=(-1.0,) * 3, finish=Finish.STOP),
        grade=Grade(True, GradeReason.CORRECT),
    )
    return training_rows(
        "step1-000000",
        INSTANCE,
        [rollout],
        encoded=EncodedProblem(prompt_ids=[1, 2], step_ids=[[3], [4]], moved_cuts=0),
        model_version=0,
        global_step=1,
        terms=LossTerms(config),
        source=build_source(config.off_policy),
        rewards=[1.0],
        advantages=None,
        tells_accuracy=False,
    )


def test_a_users_term_writes_its_columns_and_the_rows_name_their_problem(own):
    fields = rows_of(settings(own, "Term")).fields
    assert fields["own_weights"].unbind()[0].tolist() == [1.0, 1.0, 1.0]
    assert list(fields[INSTANCE_IDS]) == ["problem-7"]
    assert INSTANCE_IDS not in rows_of(settings(own)).fields.keys()  # noqa: SIM118


def loss_of(config, monkeypatch):
    """Return the loss with verl's surrogate set to 2, on a row of two prompt and three response tokens."""
    monkeypatch.setattr(losses, "ppo_loss", lambda *_: (torch.tensor(2.0), {"pg_loss": 2.0}))
    monkeypatch.setattr(losses, "no_padding_2_padding", lambda log_probs, data: log_probs)
    jagged = torch.nested.as_nested_tensor([torch.ones(3)], layout=torch.jagged)
    data = TensorDict({"own_weights": jagged, "response_mask": jagged}, batch_size=1)
    data[INSTANCE_IDS] = NonTensorStack("problem-7")
    data[count_of("own_weights")] = NonTensorData(6)
    data.set_non_tensor("dp_size", 2)
    output = {"log_probs": torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)}
    return losses.seele_loss(None, output, data, terms=LossTerms(config))


def test_the_loss_is_verls_plus_the_term_times_its_coefficient(own, monkeypatch):
    loss, metrics = loss_of(settings(own, "Term"), monkeypatch)
    # Six marked tokens in the update of two ranks: 6 / (6 / 2) = 2.
    assert loss.item() == 2.0 + 0.5 * 2.0
    assert metrics["own_loss"].aggregate() == 2.0, "before its coefficient"
    assert metrics["own_metric"].aggregate() == -6.0
    assert metrics["pg_loss"] == 2.0


def test_another_process_builds_its_own_terms(own):
    terms = LossTerms(settings(own, "Term"))
    sent = pickle.dumps(terms)
    assert b"seele_plugin" not in sent, "a class from a file cannot be found in another process by its module"
    (built,) = pickle.loads(sent)
    assert (
        built.is_users and built.coefficient == 0.5 and built.term.columns == {"own_weights": Axis.RESPONSE}
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nan", r"own_loss must be a finite scalar tensor, got tensor\(nan\)"),
        ("Vector", r"own_loss must be a finite scalar tensor, got shape \(1,\)"),
        ("LogsAMinimum", "the name 'smallest_min' has min or max in it, so verl would log"),
        ("Raises", r"AttributeError: .*no_such_column.*own.py:36\)"),
    ],
)
def test_a_fault_of_a_term_names_file_line_and_problems(own, monkeypatch, name, message):
    at = r"seele.loss_terms\[0\]: .*own.py:\d+: compute, problems \['problem-7'\]: .*"
    with pytest.raises(PluginError, match=at + message):
        loss_of(settings(own, name), monkeypatch)


def test_columns_of_another_length_are_a_fault(own):
    at = r"seele.loss_terms\[0\]: .*own.py:\d+: columns_of, problem 'problem-7': .*"
    with pytest.raises(PluginError, match=at + r"shapes \{'own_weights': \(3,\)\}, got .*\(1,\)"):
        rows_of(settings(own, "Short"))


def test_columns_with_names_of_verl_are_a_fault(own):
    with pytest.raises(PluginError, match=r"names of their own; \['advantages'\] are taken"):
        rows_of(settings(own, "Taken"))


def test_terms_are_checked_before_the_run(own):
    with pytest.raises(ConfigError, match=r"seele.loss_terms\[0\]: Nameless has the name ''"):
        LossTerms(settings(own, "Nameless"))
    with pytest.raises(ConfigError, match=r"seele.loss_terms\[1\]: Term has the name 'own_loss' for itself"):
        LossTerms(settings(own, "Term", "Term"))
    for name, complaint in (
        ("Discriminator", "the name 'discriminator_loss' has min or max in it"),
        ("LikeVerls", "the name 'kl_loss' is taken by a metric of verl's"),
        ("Miscounts", r"counted names 'own_weight', .* the term's columns, \['own_weights'\]"),
        ("TakesOver", r"takes_over names 'own_weights', .* the term's columns over responses, \[\]"),
        ("Unclips", r"unclips names 'own_weights', .* the term's counted columns, \[\]"),
    ):
        with pytest.raises(ConfigError, match=rf"seele.loss_terms\[0\]: .*own.py:\d+: {complaint}"):
            LossTerms(settings(own, name))
    unknown = dataclasses.replace(settings(own), loss_terms=(LossTermConfig(term="entropy"),))
    with pytest.raises(ConfigError, match=r"seele.loss_terms\[0\].term: unknown name 'entropy'"):
        LossTerms(unknown)
    wrong = LossTermConfig(term=f"{own}:Term", settings={"size": 1})
    with pytest.raises(ConfigError, match=r"own.py:8: building it: TypeError: .*'size'"):
        LossTerms(dataclasses.replace(settings(own), loss_terms=(wrong,)))


# From a fault to the run's end


def test_a_fault_is_found_in_groups_and_in_what_ray_carries():
    fault = PluginError("own.py:1: broken")
    assert faults.plugin_fault(ExceptionGroup("a round", [ValueError(), fault])) is fault
    from_task = ray.exceptions.RayTaskError("compute", "Traceback", fault)
    assert faults.plugin_fault(from_task.as_instanceof_cause()) is fault
    nested = ExceptionGroup("a visit", [ExceptionGroup("a round", [from_task])])
    assert faults.plugin_fault(nested) is fault
    assert faults.plugin_fault(ExceptionGroup("a round", [ValueError()])) is None
    assert faults.plugin_fault(ray.exceptions.RayTaskError("f", "", ValueError())) is None


class Rows:
    """TransferQueue's tags as seen by a replay buffer."""

    def __init__(self):
        self.tags = {"train": {}, "val": {}}
        self.partitions = {}

    async def async_kv_put(self, *, key, partition_id, tag):
        self.tags[partition_id].setdefault(key, {}).update(tag)

    def _sync_metadata_from_transfer_queue(self):
        self.partitions = {name: dict(tags) for name, tags in self.tags.items()}


def note_in(dropped):
    async def note(reason):
        dropped.append(reason)

    return note


@pytest.mark.parametrize("validate", [False, True])
def test_a_fault_in_a_prompt_ends_the_run_at_the_trainers_next_look(monkeypatch, own, validate):
    rows, dropped = Rows(), []
    for module in (faults, rounds_worker):
        monkeypatch.setattr(module, "tq", rows)
    config = settings(own, off_policy=OffPolicyConfig(source=f"{own}:Source"))
    worker = object.__new__(rounds_worker.RoundsWorker)
    worker._prompts = {}
    worker.controller = SimpleNamespace(count_dropped_prompt=note_in(dropped))
    worker.seele, worker.source, worker.tokenizer = config, build_source(config.off_policy), None
    worker._validate_prompt = worker._train_prompt = lambda prompt, sampling: give(worker)
    faults.watch_for_faults(rows, on_news=lambda: None, on_look=lambda: None)

    async def give(worker):
        worker._given(INSTANCE, None, None)

    async def run():
        prompt = {"uid": "u", "instance": INSTANCE}
        await worker._run_prompt(prompt, {}, {"validate": validate})

    rows._sync_metadata_from_transfer_queue()
    asyncio.run(run())
    partition = "val" if validate else "train"
    assert len(dropped) == (not validate), "a step drops none of validation's prompts"
    assert rows.tags[partition]["u"]["status"] == "failure", "verl's wait for the group ends in any case"
    at = r"seele.off_policy.source: .*own.py:\d+: given, problem 'problem-7': KeyError"
    with pytest.raises(PluginError, match=at):
        rows._sync_metadata_from_transfer_queue()


def test_supplied_responses_are_checked_before_they_join_a_group():
    def supply(*given, adds_rollouts=True):
        worker = object.__new__(rounds_worker.RoundsWorker)
        worker.seele, worker.tokenizer = (
            SeeleConfig(method="grpo", hints=HintConfig(rounds=1, rollouts_per_prompt=2)),
            None,
        )
        worker.source = SimpleNamespace(given=lambda *_, **__: [*given], adds_rollouts=adds_rollouts)
        worker.rollout_config = SimpleNamespace(response_length=9)
        return worker._given(INSTANCE, None, None)

    right = Completion(text="ab", token_ids=(1, 2), log_probs=(-1.0, -2.0), finish=Finish.STOP)
    assert supply(right) == [right] and supply() == []
    for given, message in (
        ((right, right), "got 2 responses, at most 1 allowed: one must be generated"),
        ((dataclasses.replace(right, log_probs=(-1.0,)),), "got 2 tokens with 1 log-probabilities"),
        ((dataclasses.replace(right, token_ids=(), log_probs=()),), "got 0 tokens with 0 log-probabilities"),
    ):
        with pytest.raises(PluginError, match=f"given, problem 'problem-7': ValueError: {message}"):
            supply(*given)
    with pytest.raises(PluginError, match="ValueError: got 1 responses, but adds_rollouts is not true"):
        supply(right, adds_rollouts=False)


@pytest.mark.parametrize("fails", ["engine", "queue"])
def test_any_other_failure_only_drops_the_prompt(monkeypatch, fails):
    """The trainer hears of no visit whose rows it cannot read."""
    rows, dropped, kept = Rows(), [], []
    for module in (faults, rounds_worker):
        monkeypatch.setattr(module, "tq", rows)
    worker = object.__new__(rounds_worker.RoundsWorker)
    worker._prompts = {}
    worker.controller = SimpleNamespace(count_dropped_prompt=note_in(dropped), keep_visit=kept.append)

    async def fail(*_, **__):
        raise RuntimeError("it died")

    async def succeed(*_):
        return SimpleNamespace(keys=[], fields=None, tags=[]), "visit"

    rows.async_kv_batch_put, worker._train_prompt = fail, fail if fails == "engine" else succeed
    news = []
    faults.watch_for_faults(rows, on_news=lambda: news.append(1), on_look=lambda: None)
    rows._sync_metadata_from_transfer_queue()
    asyncio.run(worker._run_prompt({"uid": "u", "instance": INSTANCE}, {}, {"validate": False}))
    for _ in range(2):
        rows._sync_metadata_from_transfer_queue()
    assert news == [1], "a look that finds nothing new is not a sign of life"
    assert (kept, dropped) == ([], ["RuntimeError: it died"])
    assert rows.tags["train"]["u"]["status"] == "failure"


# --- Faults in a controller while no worker waits for the answer


FAULTY = """
from seele.hints import SequentialController


class Faulty(SequentialController):
    def next_hint_ratio(self, instance_id, *, round_index, legal_ratios):
        return legal_ratios[-1]

    def observe(self, instance_id, *, hint_ratio, num_correct, num_rollouts):
        if instance_id == "bad":
            raise RuntimeError("no")
"""


def test_a_fault_that_no_worker_waited_for_ends_the_step(tmp_path):
    (tmp_path / "own.py").write_text(FAULTY)
    hints = HintConfig(controller=f"{tmp_path}/own.py:Faulty", rounds=1, rollouts_per_prompt=4)
    actor = ControllerActor(SeeleConfig(method="seele", hints=hints))
    for uid, problem in {"u1": "good", "u2": "bad", "u3": "good"}.items():
        actor.plan_round(uid, RoundRequest(problem, 0, (0.0, 0.5)), num_rollouts=4)
        if problem == "bad":
            with pytest.raises(PluginError):
                actor.observe(uid, RoundOutcome(problem, 0.5, 1, 4))
        else:
            actor.observe(uid, RoundOutcome(problem, 0.5, 1, 4))
    with pytest.raises(
        PluginError, match=r"own.py:5: observe_rounds, problem 'bad': RuntimeError: no \(.*own.py:11\)"
    ):
        actor.take_step()


@pytest.mark.parametrize(("controller", "kept"), [("bayes", ["a"]), ("uniform", [])])
def test_the_actor_returns_the_curves_of_the_problems_asked_for(controller, kept):
    hints = HintConfig(controller=controller, rounds=1, rollouts_per_prompt=4)
    actor = ControllerActor(SeeleConfig(method="seele", hints=hints))
    for uid, problem in {"u1": "a", "u2": "b"}.items():
        (share,) = actor.plan_round(uid, RoundRequest(problem, 0, (0.0, 0.5)), num_rollouts=4)
        actor.observe(uid, RoundOutcome(problem, share.hint_ratio, 1, 4))
        actor.end_visit(uid, problem)
    actor.take_step()
    assert [curve.instance_id for curve in actor.curves({"a", "new"})] == kept


def test_what_a_step_teaches_does_not_depend_on_which_problem_is_done_first():
    hints = HintConfig(rounds=1, rollouts_per_prompt=4)
    right, states = {"easy": 4, "medium": 2, "hard": 0}, []
    for order in (list(right), list(reversed(right))):
        actor = ControllerActor(SeeleConfig(method="seele", hints=hints))
        for step in (1, 2):
            actor.begin_step(step)
            plans = {
                name: actor.plan_round(f"u-{name}", RoundRequest(name, 0, (0.0, 0.5)), num_rollouts=4)
                for name in right
            }
            for name in order:
                (share,) = plans[name]
                actor.observe(f"u-{name}", RoundOutcome(name, share.hint_ratio, right[name], 4))
                actor.end_visit(f"u-{name}", name)
            actor.take_step()
        states.append(actor.state_dict())
    assert states[0] == states[1]


@pytest.mark.parametrize("lost", [[], ["u1"], ["u2"]])
def test_a_problem_that_a_step_begins_twice_has_learnt_from_the_first_time(lost):
    """Also if a worker dies that has told of the first visit, and has not begun or told of the second."""
    actor = ControllerActor(SeeleConfig(method="seele", hints=HintConfig(rounds=1, rollouts_per_prompt=4)))
    request = RoundRequest("hard", 0, (0.0, 0.25, 0.5, 0.75))
    predicted = {}

    def visit(uid):
        (share,) = actor.plan_round(uid, request, num_rollouts=4)
        actor.observe(uid, RoundOutcome("hard", share.hint_ratio, 0, 4))
        actor.end_visit(uid, "hard")
        predicted.setdefault(uid, []).append(share.predicted_accuracy)

    visit("u1")
    actor.begin_again(lost)
    for uid in lost if lost == ["u1"] else []:
        visit(uid)
    visit("u2")
    assert predicted["u2"][0] < predicted["u1"][0] == predicted["u1"][-1]


def test_a_problem_that_is_begun_again_has_the_same_hints_and_teaches_once():
    """Its worker dies after two of three rounds, and the controller learns only of the third."""
    hints = HintConfig(rounds=3, rollouts_per_prompt=6)
    states, plans = [], []
    for dies in (False, True):
        actor = ControllerActor(SeeleConfig(method="seele", hints=hints))
        for again in (False, True) if dies else (False,):
            if again:
                actor.begin_again(["u"])
            for index in range(2 if dies and not again else 3):
                request = RoundRequest("hard", index, (0.0, 0.25, 0.5, 0.75))
                plan = actor.plan_round("u", request, num_rollouts=2)
                plans.append((index, plan))
                for share in plan:
                    actor.observe("u", RoundOutcome("hard", share.hint_ratio, index % 2, 2))
        actor.end_visit("u", "hard")
        actor.take_step()
        states.append(actor.state_dict())
    assert states[0] == states[1]
    whole, lost, again = plans[:3], plans[3:5], plans[5:]
    assert lost == whole[:2] and again == whole


@pytest.mark.parametrize("parts", [[(2, 3), (1, 3)], [(0, 1), (3, 5)]])
def test_a_problem_that_is_begun_again_may_report_its_hints_in_another_order_and_in_other_parts(parts):
    """A round with two hints: the worker dies once one of them is graded."""
    hints = HintConfig(rounds=2, rollouts_per_prompt=16)
    outcomes = [(0.5, 3, 6), (0.0, 0, 2)]
    states = []
    for dies in (False, True):
        actor = ControllerActor(SeeleConfig(method="seele", hints=hints))
        actor.plan_round("u", RoundRequest("hard", 0, (0.0, 0.5)), num_rollouts=8)
        if dies:
            actor.observe("u", RoundOutcome("hard", 0.5, 3, 6))
            actor.begin_again(["u"])
            actor.plan_round("u", RoundRequest("hard", 0, (0.0, 0.5)), num_rollouts=8)
            actor.observe("u", RoundOutcome("hard", 0.0, 0, 2))
            for right, size in parts:
                actor.observe("u", RoundOutcome("hard", 0.5, right, size))
        else:
            for outcome in outcomes:
                actor.observe("u", RoundOutcome("hard", *outcome))
        actor.end_visit("u", "hard")
        actor.take_step()
        states.append(actor.state_dict())
    assert states[0] == states[1]
