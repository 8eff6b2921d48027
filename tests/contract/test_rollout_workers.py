"""How rollouts end: a step's groups, a problem that is cut, a given response."""

import asyncio
import dataclasses
from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from seele.config import HintConfig, OffPolicyConfig, SeeleConfig
from seele.methods.sources import build_source
from seele.records import (
    Completion,
    Finish,
    Grade,
    GradeReason,
    HintShare,
    Instance,
    Milestone,
    Origin,
    Rollout,
)
from seele.rollout.sampling import rollout_seed
from seele.rollout.solutions import EncodedProblem
from seele_models.tokenizer import byte_tokenizer
from seele_verl import rounds_worker as module
from seele_verl.controller_actor import ControllerActor
from seele_verl.faults import watch_for_faults
from seele_verl.replay_buffer import SpareProblemsBuffer
from seele_verl.runs.watchdog import LIFE


@pytest.fixture
def buffer() -> SpareProblemsBuffer:
    return SpareProblemsBuffer(
        trainer_mode="sync",
        trainer_config=None,
        max_off_policy_threshold=None,
        max_off_policy_strategy="drop",
        sampler_kwargs=None,
    )


def test_a_step_ends_when_enough_groups_are_done_with_the_awaited_ones_among_them(buffer, monkeypatch):
    nothing = set(), set(), set(), Counter()

    def select(finished, running=(), failed=()):
        buffer.finished_keys["train"], buffer.running_keys["train"] = set(finished), set(running)
        buffer.failure_keys["train"] = set(failed)
        done = buffer._sampleable_terminal_keys("train", nothing)
        return sorted(buffer._select_prompt_uids("train", done, 2)[0])

    assert select({"a", "b", "c"}) == ["a", "b"]
    buffer.awaited = frozenset({"c"})
    assert select({"a", "b"}, running={"c"}) == []
    assert select({"a", "b", "c"}) == ["a", "c"]
    assert select({"a", "b"}, running={"d"}, failed={"c"}) == ["a", "c"], "an awaited one may fail"
    buffer.awaited = frozenset()
    assert select({"b"}, running={"c"}, failed={"a", "d"}) == ["b"], "failed ones do not make a batch"
    assert select({"b", "c"}, failed={"a"}) == ["b", "c"]
    assert select({"b"}, failed={"a"}) == ["a", "b"]
    # Validation waits for everything anyway.
    buffer.finished_keys["val"] = {"v"}
    assert buffer._sampleable_terminal_keys("val", nothing) == {"v"}
    monkeypatch.setattr(buffer, "_sync_metadata_from_transfer_queue", lambda: None)
    buffer.finished_keys["train"], buffer.pending_keys["train"] = {"b"}, {"d"}
    buffer.running_keys["train"], buffer.failure_keys["train"] = {"a"}, {"c"}
    assert buffer.left_behind() == ["a", "b", "c", "d"]


def test_a_worker_that_replaces_a_lost_one_begins_no_group_that_was_cut(buffer, monkeypatch):
    looks, replaced, cleared = [], [], []
    monkeypatch.setattr(ReplayBuffer, "_sync_metadata_from_transfer_queue", lambda self: looks.append(self))
    monkeypatch.setattr(buffer, "_clear_groups", lambda partition, uids: cleared.append(uids))
    watch_for_faults(buffer, on_news=lambda: None, on_look=lambda: replaced.append("unfinished"))
    buffer.left_behind()
    assert replaced == ["unfinished"], "a group that still runs is begun again"
    buffer.forget(["a"])
    assert (len(looks), replaced, cleared) == (2, ["unfinished"], [{"a"}])


def test_tokens_count_although_their_problem_was_cut(monkeypatch, tmp_path):
    """The first of two rounds of two is complete; the second still runs when the problem is left behind.
    The watchdog has seen the first. The step has begun the problem before, with four seeds of each round.
    """
    seeds = []

    class Controller(ControllerActor):
        def of_visit(self, uid):
            return self

        async def plan_round(self, request, *, num_rollouts):
            return (HintShare(0.0, num_rollouts),)

        async def observe(self, instance_id, **outcome):
            pass

        async def end_visit(self, instance_id):
            pass

    async def complete(request, **_):
        seeds.append(request["seeds"])
        if worker.sampled_first_round.is_set():
            worker.waits.set()
            await asyncio.Event().wait()
        worker.sampled_first_round.set()
        each = Completion(
            text="", token_ids=(1, 2, 3), log_probs=(), finish=Finish.STOP, cached_prompt_tokens=1
        )
        yield dict.fromkeys(range(len(request["seeds"])), each), 7

    async def grade(completion, instance, *, hint_steps):
        return Grade(False, GradeReason.WRONG)

    encoded = EncodedProblem(prompt_ids=[1, 2, 3, 4], step_ids=[], moved_cuts=0)
    monkeypatch.setattr(module, "encode_problem", lambda *_, **__: encoded)
    worker = object.__new__(module.RoundsWorker)
    worker.cache, worker.run = None, tmp_path
    (tmp_path / LIFE).parent.mkdir()
    worker.seele = SeeleConfig(method="seele", hints=HintConfig(rounds=2, rollouts_per_prompt=4))
    worker.source = build_source(worker.seele.off_policy)
    worker.controller, worker.tokenizer = Controller(worker.seele), None
    worker.rollout_config = SimpleNamespace(response_length=9)
    worker.engine, worker.grade = SimpleNamespace(complete=complete), grade
    grade.walks = False
    worker.sampled_first_round, worker.waits = asyncio.Event(), asyncio.Event()
    instance = Instance(instance_id="i", data_source="d", question="q", steps=(), answer="1", level=1)

    async def cut():
        problem = {"uid": "u", "instance": instance, "global_steps": 1, "repeat": 1}
        task = asyncio.create_task(worker._train_prompt(problem, {}))
        await worker.waits.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cut())
    assert seeds == [[rollout_seed(0, 1, "i", index, 4 + rollout) for rollout in (0, 1)] for index in (0, 1)]
    assert (tmp_path / LIFE).exists()
    visits, metrics = worker.controller.take_step()
    assert not visits
    tokens = {name: value for name, value in metrics.items() if name.startswith("tokens/")}
    assert tokens == {
        f"tokens/{name}{of}": count
        for name, count in (("prompt", 8.0), ("prefilled", 6.0), ("generated", 6.0))
        for of in ("", "_round_0")
    }
    # Only the first round has ended.
    assert [name for name in metrics if "seconds" in name] == ["rollout/seconds_round_0"]
    assert metrics["rollout/seconds_round_0"] >= 0.0
    assert worker.controller.take_step()[1]["tokens/generated"] == 0.0


def test_a_cut_trace_has_no_end_and_is_judged_as_one_that_hit_the_limit():
    worker = object.__new__(module.RoundsWorker)
    worker.tokenizer = byte_tokenizer()
    worker.seele = SeeleConfig(
        method="luffy",
        off_policy=OffPolicyConfig(source="trace"),
        hints=HintConfig(controller="none", rounds=1),
    )
    worker.source = build_source(worker.seele.off_policy)
    worker.rollout_config = SimpleNamespace(response_length=6)
    instance = Instance(instance_id="i", data_source="x", question="?", steps=("a", "b"), answer="b")

    def encoded(*step_ids):
        return EncodedProblem(prompt_ids=[], step_ids=[*step_ids], moved_cuts=0)

    end = worker.tokenizer.eos_token_id
    [whole] = worker._given(instance, encoded([1, 2], [3, 4, 5]), None)
    assert (whole.token_ids, whole.finish) == ((1, 2, 3, 4, 5, end), Finish.STOP)
    [cut] = worker._given(instance, encoded([1, 2], [3, 4, 5, 6]), None)
    assert (cut.token_ids, cut.finish) == ((1, 2, 3, 4, 5, 6), Finish.LENGTH)
    assert len(cut.log_probs) == 6


@pytest.mark.parametrize(
    ("when", "stops", "watched"),
    [
        ("always", True, [None, 2, 2]),
        # Any round may be the only one that is kept.
        ("until_success", True, [None, 2, None]),
        ("always", False, None),
    ],
)
def test_every_rollout_but_a_problems_first_may_end_at_an_error(when, stops, watched):
    worker = object.__new__(module.RoundsWorker)
    worker.seele = SeeleConfig(method="milestones", hints=HintConfig(when=when, rounds=2))
    worker.source = build_source(worker.seele.off_policy)
    worker.engine = worker.run = worker.controller = worker.cache = None
    worker.rollout_config = SimpleNamespace(response_length=9)
    worker.grade = SimpleNamespace(walks=True, watch=lambda instance, hint_steps: hint_steps)
    milestones = (Milestone("1", 1),)
    instance = Instance(
        instance_id="i", data_source="x", question="?", steps=("1",), answer="1", milestones=milestones
    )
    problem = {"uid": "u", "global_steps": 1, "stops": stops}
    watch_of = worker._training_sampler(problem, instance, None, {}).watch_of
    # By round and rollout in the round.
    assert watched == (watch_of and [watch_of(2, *place) for place in ((0, 0), (0, 1), (1, 0))])


@pytest.mark.parametrize(("source", "of_policy"), [("none", -0.25), ("prefix", -0.75), ("trace", -0.25)])
def test_only_the_policys_responses_are_penalized_a_prefix_included(source, of_policy):
    worker = object.__new__(module.RoundsWorker)
    buffer = {"enable": True, "len": 4, "penalty_factor": 1.0}
    kwargs = {"max_resp_len": 8, "overlong_buffer_cfg": buffer}
    worker.config = OmegaConf.create({"reward": {"reward_kwargs": kwargs}})
    worker.source = build_source(OffPolicyConfig(source=source))
    encoded = EncodedProblem(prompt_ids=[1] * 9, step_ids=[[2], [3], [4]], moved_cuts=0)
    made = Rollout(
        round_index=0,
        rollout_index=0,
        share=HintShare(2 / 3, 1),
        hint_steps=2,
        completion=Completion(text="", token_ids=(5,) * 5, log_probs=(), finish=Finish.STOP),
        grade=Grade(False, GradeReason.WRONG),
    )
    assert worker._penalty(made, encoded) == of_policy
    assert worker._penalty(dataclasses.replace(made, origin=Origin.TRACE), encoded) == 0.0
    worker.config.reward.reward_kwargs.overlong_buffer_cfg.enable = False
    assert worker._penalty(made, encoded) == 0.0


@pytest.mark.parametrize(("limit", "longest"), [(4, 0), (5, 0), (10, 1), (11, 2), (99, 3)])
def test_hints_of_the_policys_own_solution_end_where_the_prompt_is_full(limit, longest):
    instance = Instance(instance_id="i", data_source="x", question="?", steps=("a",) * 4, answer="b")
    encoded = EncodedProblem(prompt_ids=[1] * 5, step_ids=[[2] * 3] * 4, moved_cuts=0)
    legal = module._within(instance, encoded, limit).legal_hint_ratios
    assert legal == instance.legal_hint_ratios[: longest + 1]
