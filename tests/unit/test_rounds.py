"""The rounds of one problem, their records, and the seeds of rollouts."""

import asyncio
from functools import partial
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seele.errors import ConfigError, DataError, DependencyError, SeeleError
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance
from seele.rollout.rounds import (
    NoHintController,
    ProblemVisit,
    run_rounds,
    run_until_success,
    run_with_rescue,
)
from seele.rollout.sampling import SEED_BITS, rollout_seed

# --- The rounds of one problem, with a controller and an engine made of strings


CHAIN = Instance(
    instance_id="chain", data_source="chains", question="q", steps=("a", "b", "c", "d"), answer="yes"
)


class HalvingController:
    """Reveals half as much after every round; keeps what it was told."""

    def __init__(self):
        self.told = []

    async def plan_round(self, request, *, num_rollouts):
        ratio = 0.5 / 2**request.round_index
        assert ratio in (*request.legal_ratios, 0.125)
        self.told.append(("plan", request.instance_id, request.round_index))
        return (HintShare(ratio if ratio in request.legal_ratios else 0.0, num_rollouts),)

    async def observe(self, instance_id, *, hint_ratio, num_correct, num_rollouts):
        self.told.append(("observe", hint_ratio, num_correct, num_rollouts))

    async def end_visit(self, instance_id):
        self.told.append(("end", instance_id))


class Engine:
    """Completes with the number of revealed steps."""

    async def __call__(self, *, hint_steps, num_rollouts, **_):
        yield {position: completion(f"{hint_steps}") for position in range(num_rollouts)}


def completion(text):
    return Completion(text=text, token_ids=(1,), log_probs=(), finish=Finish.STOP)


async def grade(completion, instance, *, hint_steps):
    correct = completion.text == "2" and instance.answer == "yes"
    return Grade(correct, GradeReason.CORRECT if correct else GradeReason.WRONG)


def test_the_grader_is_told_how_much_the_prompt_showed():
    seen = []

    async def note(completion, instance, *, hint_steps):
        seen.append((completion.text, str(hint_steps)))
        return await grade(completion, instance, hint_steps=hint_steps)

    rollouts_of(HalvingController(), grade=note)
    assert seen == [(text, text) for text in "221100"]


def rollouts_of(controller, *, run=run_rounds, round_sizes=(2, 2, 2), **parts):
    visit = ProblemVisit(
        instance=CHAIN, controller=controller, **{"sample": Engine(), "grade": grade} | parts
    )
    return asyncio.run(run(visit, round_sizes))


def test_each_round_uses_the_hint_chosen_after_the_rounds_before_it():
    controller = HalvingController()
    rollouts = rollouts_of(controller)
    assert [rollout.hint_ratio for rollout in rollouts] == [0.5, 0.5, 0.25, 0.25, 0.0, 0.0]
    assert [rollout.hint_steps for rollout in rollouts] == [2, 2, 1, 1, 0, 0]
    assert [rollout.reward for rollout in rollouts] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert controller.told == [
        ("plan", "chain", 0),
        ("observe", 0.5, 2, 2),
        ("plan", "chain", 1),
        ("observe", 0.25, 0, 2),
        ("plan", "chain", 2),
        ("observe", 0.0, 0, 2),
        ("end", "chain"),
    ]


def test_rollouts_are_numbered_over_all_rounds():
    assert [(r.round_index, r.rollout_index) for r in rollouts_of(HalvingController())] == [
        (0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)
    ]  # fmt: skip


class LaddersController(HalvingController):
    """No step, then one, two and three, of which two succeed."""

    async def plan_round(self, request, *, num_rollouts):
        self.told.append(("plan", request.round_index, request.rollouts_left))
        return (HintShare(request.round_index / 4, num_rollouts),)


@pytest.mark.parametrize(("rounds", "kept"), [(4, 2), (2, 1)])
def test_rounds_that_fail_are_thrown_away_until_one_succeeds(rounds, kept):
    controller = LaddersController()
    run = partial(run_until_success, failing_accuracy=0.0)
    rollouts = rollouts_of(controller, run=run, round_sizes=(3,) * rounds)
    assert [(r.round_index, r.rollout_index, r.hint_steps) for r in rollouts] == [
        (kept, index, kept) for index in range(3)
    ]
    seen = [each for number in range(kept + 1) for each in (("plan", number, 3), ("observe", number / 4))]
    told = [each[:2] if each[0] == "observe" else each for each in controller.told]
    assert told == [*seen, ("end", "chain")]
    assert sum(rollout.reward for rollout in rollouts) == (3 if kept == 2 else 0)


def test_a_hint_that_failed_is_not_rolled_out_again():
    class Unhintable(HalvingController):
        async def plan_round(self, request, *, num_rollouts):
            self.told.append(("plan", request.round_index))
            return (HintShare((0.0, 0.5, 0.25, 0.5)[request.round_index], num_rollouts),)

    class Wrong(Engine):
        async def __call__(self, *, num_rollouts, **_):
            yield {each: completion("0") for each in range(num_rollouts)}

    controller = Unhintable()
    run = partial(run_until_success, failing_accuracy=0.0)
    rollouts = rollouts_of(controller, run=run, sample=Wrong(), round_sizes=(3,) * 5)
    assert [rollout.hint_steps for rollout in rollouts] == [1] * 3
    planned = [each for each in controller.told if each[0] == "plan"]
    assert planned == [("plan", index) for index in range(4)], "the hint of an earlier round ends the visit"
    assert controller.told[-1] == ("end", "chain")


class EachController(HalvingController):
    """No hint, then all of them, in no order."""

    hints = (0.5, 0.25, 0.75)

    async def plan_round(self, request, *, num_rollouts):
        self.told.append(("plan", request.round_index, num_rollouts))
        if request.round_index == 0 or not self.hints:
            return (HintShare(0.0, num_rollouts),)
        return tuple(HintShare(hint, 1) for hint in self.hints)


def test_the_weakest_hint_that_helps_replaces_one_failure():
    class Helped(Engine):
        async def __call__(self, *, hint_steps, num_rollouts, **_):
            yield {
                each: completion("2" if hint_steps >= self.from_steps else "0")
                for each in range(num_rollouts)
            }

    class LaterRight(Helped):
        async def __call__(self, *, round_index, num_rollouts, **_):
            yield {each: completion("2" if round_index else "0") for each in range(num_rollouts)}

    def rescued(from_steps, *, controller, failing=0.0, sample=None):
        sample = sample or Helped()
        sample.from_steps = from_steps
        run = partial(run_with_rescue, failing_accuracy=failing)
        rollouts = rollouts_of(controller, run=run, sample=sample, round_sizes=(3,))
        assert [each.rollout_index for each in rollouts] == [0, 1, 2]
        assert controller.told[-1] == ("end", "chain")
        return [(each.round_index, each.hint_steps, each.reward) for each in rollouts]

    controller = EachController()
    assert rescued(2, controller=controller) == [(0, 0, 0.0), (0, 0, 0.0), (1, 2, 1.0)]
    assert controller.told[:3] == [("plan", 0, 3), ("observe", 0.0, 0, 3), ("plan", 1, 3)]
    observed = {each for each in controller.told[3:] if each[0] == "observe"}
    assert observed == {("observe", 0.25, 0, 1), ("observe", 0.5, 1, 1), ("observe", 0.75, 1, 1)}
    # A success that lost its hint is no rescue.
    dropped = EachController()
    dropped.hints = (0.0, 0.25, 0.75)
    assert rescued(0, controller=dropped, sample=LaterRight())[2] == (1, 1, 1.0)
    # No hint helps, none is needed, or none is given.
    assert rescued(9, controller=EachController()) == [(0, 0, 0.0)] * 3
    needless = EachController()
    assert rescued(0, controller=needless) == [(0, 0, 1.0)] * 3 and len(needless.told) == 3
    without = EachController()
    without.hints = ()
    assert rescued(2, controller=without) == [(0, 0, 0.0)] * 3 and len(without.told) == 4

    class Mixed(Helped):
        async def __call__(self, *, round_index, num_rollouts, **_):
            right = [round_index == 1 or each == 2 for each in range(num_rollouts)]
            yield {each: completion("2" if right[each] else "0") for each in range(num_rollouts)}

    # A failure is replaced where the round has a success.
    mixed = rescued(0, controller=EachController(), failing=0.5, sample=Mixed())
    assert mixed == [(0, 0, 0.0), (1, 1, 1.0), (0, 0, 1.0)]


def test_what_is_a_failure_is_a_setting_and_a_fault_ends_the_visit():
    class Mixed(Engine):
        async def __call__(self, *, round_index, num_rollouts, **_):
            yield {each: completion("2" if each <= round_index else "0") for each in range(num_rollouts)}

    for failing, kept in ((0.0, 0), (0.25, 1), (0.5, 2)):
        run = partial(run_until_success, failing_accuracy=failing)
        rollouts = rollouts_of(LaddersController(), run=run, sample=Mixed(), round_sizes=(4,) * 3)
        assert {rollout.round_index for rollout in rollouts} == {kept}

    # The rounds have 1, 2, 3 and 4 of 4 right; the first one has no hint, so it is never too easy.
    for failing, passing, kept in ((0.0, 0.1, 0), (0.25, 0.5, 1), (0.25, 0.4, 3)):
        run = partial(run_until_success, failing_accuracy=failing, passing_accuracy=passing)
        rollouts = rollouts_of(LaddersController(), run=run, sample=Mixed(), round_sizes=(4,) * 4)
        assert {rollout.round_index for rollout in rollouts} == {kept}

    class Broken(Engine):
        async def __call__(self, **_):
            raise RuntimeError("gone")
            yield

    controller = LaddersController()
    with pytest.raises(ExceptionGroup):
        rollouts_of(controller, run=partial(run_until_success, failing_accuracy=0.0), sample=Broken())
    assert controller.told[-1] == ("end", "chain")


def test_a_controller_with_no_more_to_learn_takes_all_rollouts_that_are_left():
    class Settled(HalvingController):
        async def plan_round(self, request, *, num_rollouts):
            (share,) = await super().plan_round(request, num_rollouts=num_rollouts)
            assert request.rollouts_left == {0: 6, 1: 4}[request.round_index]
            size = request.rollouts_left if request.round_index == 1 else num_rollouts
            return (HintShare(share.hint_ratio, size),)

    controller = Settled()
    rollouts = rollouts_of(controller)
    assert [rollout.hint_ratio for rollout in rollouts] == [0.5, 0.5, 0.25, 0.25, 0.25, 0.25]
    assert [(r.round_index, r.rollout_index) for r in rollouts] == [
        (0, 0), (0, 1), (1, 2), (1, 3), (1, 4), (1, 5)
    ]  # fmt: skip
    assert ("observe", 0.25, 0, 4) in controller.told and ("plan", "chain", 2) not in controller.told


def test_a_failing_engine_ends_the_visit_and_is_not_hidden():
    async def broken(**_):
        raise RuntimeError("engine died")
        yield

    controller = HalvingController()
    with pytest.raises(ExceptionGroup) as caught:
        rollouts_of(controller, sample=broken)
    assert [str(error) for error in caught.value.exceptions] == ["engine died"]
    assert controller.told == [("plan", "chain", 0), ("end", "chain")]


def test_problems_do_not_wait_for_each_other():
    # The slow problem's first round ends only after the fast problem's last one has begun.
    fast_is_in_last_round = asyncio.Event()

    class Paced(Engine):
        def __init__(self, slow):
            self.slow = slow

        async def __call__(self, *, round_index, **request):
            if self.slow:
                await asyncio.wait_for(fast_is_in_last_round.wait(), timeout=5)
            elif round_index == 2:
                fast_is_in_last_round.set()
            async for part in super().__call__(**request):
                yield part

    async def both():
        visits = [
            ProblemVisit(instance=CHAIN, controller=HalvingController(), sample=Paced(slow), grade=grade)
            for slow in (True, False)
        ]
        return await asyncio.gather(*(run_rounds(visit, (1, 1, 1)) for visit in visits))

    assert [len(rollouts) for rollouts in asyncio.run(both())] == [3, 3]


def test_validation_never_reveals_anything():
    rollouts = rollouts_of(NoHintController())
    assert {(rollout.hint_ratio, rollout.hint_steps) for rollout in rollouts} == {(0.0, 0)}


def test_a_round_may_divide_over_several_hints():
    class Probing(HalvingController):
        async def plan_round(self, request, *, num_rollouts):
            return (HintShare(0.0, 1, is_probe=True), HintShare(0.5, num_rollouts - 1))

    asked = []

    class Recording(Engine):
        async def __call__(self, *, hint_steps, round_index, first_rollout, num_rollouts, quorum):
            asked.append((hint_steps, round_index, first_rollout, num_rollouts))
            async for part in super().__call__(hint_steps=hint_steps, num_rollouts=num_rollouts):
                yield part

    controller = Probing()
    rollouts = rollouts_of(controller, sample=Recording(), round_sizes=(3, 3))
    # No two rollouts of a round have the same number, so none has the seed of another.
    assert asked == [(0, 0, 0, 1), (2, 0, 1, 2), (0, 1, 0, 1), (2, 1, 1, 2)]
    assert [rollout.rollout_index for rollout in rollouts] == [0, 1, 2, 3, 4, 5]
    assert [rollout.hint_steps for rollout in rollouts] == [0, 2, 2, 0, 2, 2]
    assert [rollout.share.is_probe for rollout in rollouts] == [True, False, False] * 2
    observed = [told for told in controller.told if told[0] == "observe"]
    assert observed == [("observe", 0.0, 0, 1), ("observe", 0.5, 2, 2)] * 2


class Straggling:
    """Gives what each round asks for at once, the right ones first; the rest once the round after has
    begun, so a round that waits for it never ends.
    """

    def __init__(self):
        self.begun = [asyncio.Event() for _ in range(4)]
        self.quorums = []

    async def __call__(self, *, round_index, num_rollouts, quorum, **_):
        self.begun[round_index].set()
        self.quorums.append(quorum)
        yield {position: completion("2") for position in reversed(range(num_rollouts - quorum, num_rollouts))}
        if quorum < num_rollouts:
            await asyncio.wait_for(self.begun[round_index + 1].wait(), timeout=5)
            yield {position: completion("0") for position in range(num_rollouts - quorum)}


def test_with_a_quorum_the_next_round_begins_before_the_stragglers_are_back():
    controller, engine = HalvingController(), Straggling()
    run = partial(run_rounds, quorum=0.7)
    rollouts = rollouts_of(controller, run=run, sample=engine, round_sizes=(4, 4))
    # Nothing follows the last round, so it comes as a whole.
    assert engine.quorums == [3, 4]
    assert [(r.round_index, r.rollout_index, r.reward) for r in rollouts] == [
        (0, 0, 0.0), *((0, index, 1.0) for index in (1, 2, 3)), *((1, index, 1.0) for index in (4, 5, 6, 7))
    ]  # fmt: skip
    assert controller.told[:3] == [("plan", "chain", 0), ("observe", 0.5, 3, 3), ("plan", "chain", 1)]
    assert sorted(controller.told[3:-1]) == [("observe", 0.25, 4, 4), ("observe", 0.5, 0, 1)]
    assert controller.told[-1] == ("end", "chain")


def test_probes_are_waited_for():
    class Probing(HalvingController):
        async def plan_round(self, request, *, num_rollouts):
            return (HintShare(0.0, 4, is_probe=True), HintShare(0.5, num_rollouts - 4))

    engine = Straggling()
    run = partial(run_rounds, quorum=0.5)
    rollouts_of(Probing(), run=run, sample=engine, round_sizes=(8, 8))
    assert engine.quorums == [4, 2, 4, 4]


def test_stragglers_of_a_round_are_stopped_when_a_later_round_fails():
    closed = []

    async def sample(*, round_index, num_rollouts, quorum, **_):
        if round_index == 1:
            raise RuntimeError("engine died")
        try:
            yield {position: completion("2") for position in range(quorum)}
            await asyncio.sleep(60)
        finally:
            closed.append(round_index)

    controller = HalvingController()
    run = partial(run_rounds, quorum=0.5)
    with pytest.raises(ExceptionGroup):
        rollouts_of(controller, run=run, sample=sample, round_sizes=(4, 4))
    assert closed == [0]
    assert controller.told[-1] == ("end", "chain")


def test_a_sampler_that_leaves_completions_out_ends_the_visit():
    async def sample(*, num_rollouts, **_):
        yield {position: completion("2") for position in range(num_rollouts - 1)}

    controller = HalvingController()
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="left out 1 of 2 completions")):
        rollouts_of(controller, sample=sample)
    assert controller.told[-1] == ("end", "chain")


async def turns(count):
    """Let other coroutines run so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


class Drawn:
    """A controller, an engine and a grader that do what Hypothesis drew, and keep every call in order."""

    def __init__(self, *, plans, delays):
        self.plans, self.delays = plans, delays
        self.calls = []
        self.asked = 0

    def delay(self):
        self.asked += 1
        return turns(self.delays[self.asked % len(self.delays)])

    async def plan_round(self, request, *, num_rollouts):
        self.calls.append(("plan", request, num_rollouts))
        await self.delay()
        ratios = self.plans[request.round_index % len(self.plans)]
        takes_all = request.round_index == len(self.plans)
        sizes = [request.rollouts_left] if takes_all else spread(num_rollouts, len(ratios))
        return tuple(
            HintShare(ratio, size, is_probe=ratio == 0.0, predicted_accuracy=ratio)
            for ratio, size in zip(ratios, sizes, strict=False)
            if size
        )

    async def observe(self, instance_id, *, hint_ratio, num_correct, num_rollouts):
        self.calls.append(("observe", instance_id, hint_ratio, num_correct, num_rollouts))

    async def end_visit(self, instance_id):
        self.calls.append(("end", instance_id))

    async def __call__(self, *, hint_steps, round_index, first_rollout, num_rollouts, quorum):
        self.calls.append(("sample", hint_steps, round_index, first_rollout, num_rollouts, quorum))
        await self.delay()
        yield {at: completion(f"{(hint_steps + at) % 3}") for at in reversed(range(num_rollouts))}

    async def grade(self, completion, instance, *, hint_steps):
        await self.delay()
        return await grade(completion, instance, hint_steps=hint_steps)


def spread(total, parts):
    """``total`` as ``parts`` sizes, the last of them with what is left."""
    size = total // parts
    return [size] * (parts - 1) + [total - size * (parts - 1)]


@given(
    plans=st.lists(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75]), min_size=1, max_size=3), min_size=1),
    delays=st.lists(st.integers(0, 4), min_size=1, max_size=7),
    round_sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
)
def test_a_round_is_planned_once_all_outcomes_of_the_one_before_are_known(plans, delays, round_sizes):
    drawn = Drawn(plans=plans, delays=delays)
    rollouts = rollouts_of(drawn, sample=drawn, grade=drawn.grade, round_sizes=round_sizes)
    assert [rollout.rollout_index for rollout in rollouts] == [*range(sum(round_sizes))]
    known = 0
    for kind, *call in drawn.calls:
        if kind == "plan":
            assert call[0].rollouts_left == sum(round_sizes) - known
        elif kind == "observe":
            known += call[-1]
    assert drawn.calls[-1] == ("end", "chain") and known == sum(round_sizes)


def test_the_hints_of_a_round_are_sampled_at_the_same_time():
    begun = set()

    class Two(HalvingController):
        async def plan_round(self, request, *, num_rollouts):
            return (HintShare(0.0, 1, is_probe=True), HintShare(0.5, num_rollouts - 1))

    async def sample(*, hint_steps, num_rollouts, **_):
        begun.add(hint_steps)
        async with asyncio.timeout(5):
            while len(begun) < 2:
                await asyncio.sleep(0)
        yield {position: completion("2") for position in range(num_rollouts)}

    assert len(rollouts_of(Two(), sample=sample, round_sizes=(4,))) == 4


def test_a_cancelled_visit_stops_its_engine_and_ends():
    closed = []

    async def sample(*, round_index, **_):
        try:
            await asyncio.sleep(60)
            yield {}
        finally:
            closed.append(round_index)

    controller = HalvingController()

    async def cancelled():
        visit = ProblemVisit(instance=CHAIN, controller=controller, sample=sample, grade=grade)
        task = asyncio.create_task(run_rounds(visit, (2, 2)))
        await turns(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    assert asyncio.run(cancelled())
    assert closed == [0]
    assert controller.told == [("plan", "chain", 0), ("end", "chain")]


# --- Records: the legal hints of an instance, and how many rollouts under one a round waits for


def instance(num_steps):
    return Instance(
        instance_id="i", data_source="d", question="q", steps=("s",) * num_steps, answer="a", level=num_steps
    )


@pytest.mark.parametrize("num_steps", [0, 1])
def test_below_two_steps_no_hint_is_possible(num_steps):
    assert instance(num_steps).legal_hint_ratios == (0.0,)


def test_every_prefix_but_the_whole_solution_is_legal():
    assert instance(4).legal_hint_ratios == (0.0, 0.25, 0.5, 0.75)


@given(st.integers(2, 300))
def test_ratio_and_number_of_steps_are_inverse(num_steps):
    ratios = instance(num_steps).legal_hint_ratios
    assert [instance(num_steps).num_hint_steps(ratio) for ratio in ratios] == list(range(num_steps))


@given(percent=st.integers(1, 100), num_rollouts=st.integers(1, 64))
@example(percent=56, num_rollouts=25)
def test_a_quorum_is_rounded_up_to_whole_rollouts_and_no_further(percent, num_rollouts):
    share = HintShare(0.0, num_rollouts)
    assert share.num_awaited(percent / 100) == -(-percent * num_rollouts // 100)
    assert HintShare(0.0, num_rollouts, is_probe=True).num_awaited(percent / 100) == num_rollouts


@pytest.mark.parametrize("error", [ConfigError, DataError, DependencyError])
def test_errors_survive_the_way_between_processes(error):
    import pickle

    restored = pickle.loads(pickle.dumps(error("file.parquet: row 3")))
    assert isinstance(restored, SeeleError) and str(restored) == "file.parquet: row 3"


# --- Seeds of rollouts


def test_every_place_in_the_run_has_its_own_seed():
    places = list(product((0, 1), (-1, 1, 2), ("a", "b"), range(4), range(8)))
    assert len({rollout_seed(*place) for place in places}) == len(places)


def test_seeds_fit_the_engine():
    assert all(0 <= rollout_seed(0, step, "a", 0, 0) < 2**SEED_BITS for step in range(100))


def test_a_seed_is_the_same_on_every_machine():
    # Pinned: a change here changes every run.
    assert rollout_seed(0, 1, "chains-0", 0, 0) == 702039401277444025
