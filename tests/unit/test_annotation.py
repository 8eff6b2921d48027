"""Annotation: over real HTTP, from a reply to steps, and in a process that is killed."""

import errno
import fcntl
import json
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import exit_status as run
from helpers.commands import kill_at
from seele.config.settings import RewardConfig
from seele.data.annotation.annotate import Annotation
from seele.data.annotation.calls import Annotator
from seele.data.annotation.cost import Budget, Prices
from seele.data.annotation.file import AnnotationOrder, prepare
from seele.data.annotation.ledger import CallLedger
from seele.data.annotation.prompt import AnnotatorPrompt, judge
from seele.data.annotation.reply import Rejection
from seele.data.annotation.report import make_solutions
from seele.data.storage.append_log import LineAppender
from seele.data.storage.files import file_sha256
from seele.data.storage.parquet import set_column
from seele.data.storage.schema import content_id, read_columns, read_problems, write_problems
from seele.endpoint import Endpoint, Patience, RefusedError, Reply
from seele.errors import CheckpointError, ConfigError, DataError
from seele.records import Finish, Grade, GradeReason, Instance
from seele.reward.grader import GraderPool

# --- Annotation over real HTTP: what is asked, kept, counted, paid and never paid again


PRICES = Prices(per_million_in=100.0, per_million_out=200.0)


def problem(number):
    return Instance(
        instance_id=f"sums-{number}",
        data_source="sums",
        question=f"What is {number} + 1?",
        steps=(f"The sum is {number + 1}.\n", f"\\boxed{{{number + 1}}}"),
        answer=str(number + 1),
        level=number % 3,
    )


def solve(prompt, seed):
    """A right solution of whatever problem stands in the prompt."""
    number = int(re.search(r"What is (\d+) \+ 1\?", prompt)[1])
    return f"Step 1: One after {number}.\n\nStep 2: That is \\boxed{{{number + 1}}}."


def wrong(prompt, seed):
    return "Step 1: Who knows.\nStep 2: \\boxed{-1}"


@pytest.fixture(scope="module")
def grader():
    with GraderPool(RewardConfig(num_workers=1)) as pool:
        yield pool


def accept(grader, prompt=None):
    prompt = prompt or AnnotatorPrompt()
    return partial(judge, grader=grader, min_steps=prompt.min_steps, max_steps=prompt.max_steps)


@pytest.fixture
def annotate(server, grader, tmp_path):
    """Annotate problems and return what is reported; settings of order, annotator and prompt by name."""

    def run(
        problems,
        *,
        topics=None,
        prompt=None,
        prices=None,
        concurrency=4,
        tries=4,
        out="out",
        check=True,
        **settings,
    ):
        write_problems(file := tmp_path / "in.parquet", problems, split="train")
        if topics:
            set_column(file, file, pa.field("topic", pa.string()), topics)
        spending = {name: settings.pop(name) for name in ("max_cost", "may_exceed") if name in settings}
        annotator = {"model": "m", "max_tokens": 1000, "attempts": 3} | settings
        order = AnnotationOrder(
            file=tmp_path / "in.parquet",
            out=tmp_path / f"{out}.parquet",
            calls=tmp_path / "calls.jsonl",
            annotator=Annotator(
                endpoint=Endpoint(url=server.url), prompt=prompt or AnnotatorPrompt(), **annotator
            ),
            prices=prices or Prices(),
            **spending,
        )
        ready = prepare(order, accept(grader, prompt), reply_tokens=50)
        if check:
            ready.check_cost()
        return ready.annotate(
            make_solutions,
            grader_name="mathruler",
            patience=Patience(attempts=tries, first_wait_s=0.001),
            concurrency=concurrency,
            on_outcome=lambda outcome: None,
        )

    return run


def manifest(tmp_path, out="out"):
    return json.loads((tmp_path / f"{out}.manifest.json").read_text())


def replies(tmp_path):
    events = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    return [event["key"] for event in events if event["event"] == "reply"]


PROBLEMS = [problem(number) for number in range(12)]


def test_every_problem_gets_its_steps_and_keeps_the_rest(server, annotate, tmp_path):
    server.answer = solve
    report = annotate(PROBLEMS)
    annotated = read_problems(tmp_path / "out.parquet")
    assert [each.question for each in annotated] == [each.question for each in PROBLEMS]
    assert [each.level for each in annotated] == [each.level for each in PROBLEMS]
    assert annotated[3].instance_id == content_id("sums", "What is 3 + 1?", annotated[3].steps, "4")
    assert [each.revealed_at for each in annotated] == [2] * 12
    assert annotated[3].steps == ("Step 1: One after 3.\n\n", "Step 2: That is \\boxed{4}.")
    assert report.is_complete
    written = manifest(tmp_path)
    assert written["problems"] == {"annotated": 12} and written["replies"] == {"accepted": 12}
    assert written["sha256"] == file_sha256(tmp_path / "out.parquet")
    assert written["paid"]["replies"] == 12 and written["paid"]["lost_calls"] == 0
    assert written["served_as"] == {"m-0": 12}


def test_what_is_asked_is_the_problem_with_its_solution(server, annotate):
    server.answer = solve
    annotate(PROBLEMS[:1], temperature=0.1, max_tokens=500, seed=7, extra={"top_p": 0.9})
    [asked] = server.asked
    [message] = asked.pop("messages")
    assert asked == {
        "path": "/v1/chat/completions", "model": "m", "temperature": 0.1, "max_tokens": 500, "seed": 7,
        "top_p": 0.9,
    }  # fmt: skip
    assert message["role"] == "user"
    for part in ("What is 0 + 1?", "The sum is 1.\n\\boxed{1}", "The final answer is: 1", "Between 2 and 5"):
        assert part in message["content"]


def test_the_solution_can_be_held_back_and_fields_left_out(server, annotate):
    server.answer = solve
    annotate(PROBLEMS[:1], prompt=AnnotatorPrompt(shows_solution=False), extra={"seed": None})
    assert "The sum is" not in server.asked[0]["messages"][0]["content"]
    assert "seed" not in server.asked[0]


def test_a_rejected_reply_is_drawn_again_with_another_seed_and_temperature(server, annotate, tmp_path):
    server.answer = lambda prompt, seed: solve(prompt, seed) if seed == 12 else wrong(prompt, seed)
    annotate(PROBLEMS[:3], seed=10)
    assert Counter((each["seed"], each["temperature"]) for each in server.asked) == {
        (10, 0.0): 3,
        (11, 0.7): 3,
        (12, 0.7): 3,
    }
    assert manifest(tmp_path)["replies"] == {"accepted": 3, "wrong_answer": 6}


CHOICES = {
    0: {"message": {"content": None, "refusal": "no"}, "finish_reason": "stop"},
    1: {"message": {"content": "Step 1: and so"}, "finish_reason": "length"},
    2: "Sure! Step 1: a\nStep 2: \\boxed{3}",
    3: "Step 1: a\nStep 2:\nStep 3: \\boxed{4}",
    4: "Step 1: \\boxed{5}",
    5: "\n".join(f"Step {n}: \\boxed{{6}}" for n in range(1, 7)),
    6: "Step 1: a\nStep 2: seven",
    7: "Step 1: a\nStep 2: \\boxed{9}",
    8: "Step 1: It is 9.\nStep 2: \\boxed{9}",
}
REASONS = [
    "refused", "truncated", "format", "blank_step", "too_few_steps", "too_many_steps", "no_answer",
    "wrong_answer",
]  # fmt: skip


def test_every_problem_ends_annotated_or_counted_with_its_reason(server, annotate, tmp_path):
    server.answer = lambda prompt, seed: (
        CHOICES.get(int(re.search(r"What is (\d+)", prompt)[1])) or solve(prompt, seed)
    )
    annotate(PROBLEMS, attempts=2)
    written = manifest(tmp_path)
    assert written["problems"] == {"annotated": 4} | dict.fromkeys(REASONS, 1)
    assert written["replies"] == {"accepted": 4} | dict.fromkeys(REASONS, 2)
    assert written["revealed_early"] == 1
    kept = [int(each.answer) - 1 for each in read_problems(tmp_path / "out.parquet")]
    assert kept == [8, 9, 10, 11]


FAILURES = [
    (429, "slow down", {"Retry-After": "0.02"}),
    (429, "slow down"),
    (500, "oops"),
    (503, "starting"),
    (504, "gateway"),
    (200, "no json"),
    (200, "{}"),
    (200, json.dumps({"choices": [{"message": {"content": 3}}], "usage": {}})),
    (200, "null"),
    (200, "{}", {"Content-Length": 99}),
]


def test_failures_cost_nothing_but_time(server, annotate, tmp_path):
    chance, misbehaved = random.Random(0), []

    def misbehave(number):
        if chance.random() < 0.4:
            misbehaved.append(chance.choice(FAILURES))
            return misbehaved[-1]

    server.answer, server.misbehave = solve, misbehave
    problems = [problem(number) for number in range(60)]
    annotate(problems, tries=30, concurrency=8)
    written = manifest(tmp_path)
    assert written["problems"] == {"annotated": 60}
    assert len(misbehaved) > 20 and len(server.asked) == 60 + len(misbehaved)
    assert len(replies(tmp_path)) == len(set(replies(tmp_path))) == 60
    # Refusals cost nothing; what came back unreadable may have.
    assert written["paid"]["lost_calls"] == sum(status in (200, 504) for status, *_ in misbehaved)


def test_a_problem_that_the_server_does_not_want_is_counted_and_the_others_go_on(server, annotate, tmp_path):
    server.answer = solve
    server.misbehave = lambda number: (
        (400, "content policy") if "What is 4 " in server.asked[-1]["messages"][0]["content"] else None
    )
    annotate(PROBLEMS)
    assert manifest(tmp_path)["problems"] == {"annotated": 11, "refused": 1}
    assert manifest(tmp_path)["paid"]["lost_calls"] == 0


def test_a_problem_without_a_reply_is_counted_and_asked_again_by_the_next_run(server, annotate, tmp_path):
    server.answer, server.failures = solve, [(503, "busy")] * 4
    annotate(PROBLEMS, concurrency=1, tries=4)
    assert manifest(tmp_path)["problems"] == {"annotated": 11, "gave_up": 1}
    asked = len(server.asked)
    annotate(PROBLEMS)
    assert manifest(tmp_path)["problems"] == {"annotated": 12}
    assert len(server.asked) == asked + 1


def test_a_wrong_key_ends_the_run_at_once_and_what_was_replied_stays(server, annotate, tmp_path):
    server.answer = solve
    server.misbehave = lambda number: (401, "no such key") if number > 5 else None
    with pytest.raises(RefusedError, match="refused with status 401: no such key"):
        annotate(PROBLEMS, concurrency=1)
    # The next one may have been on its way.
    assert 6 <= len(server.asked) <= 7 and len(replies(tmp_path)) == 5
    assert not (tmp_path / "out.parquet").exists() and not (tmp_path / "out.manifest.json").exists()


def test_a_server_that_counts_no_tokens_is_asked_once_and_may_have_been_paid(server, annotate, tmp_path):
    message = {"message": {"content": "Step 1: x"}, "finish_reason": "stop"}
    server.misbehave = lambda number: (200, json.dumps({"choices": [message]}))
    with pytest.raises(RefusedError, match=r"lacks 'usage\.completion_tokens'"):
        annotate(PROBLEMS[:1])
    assert len(server.asked) == 1
    assert '"unpaid"' not in (tmp_path / "calls.jsonl").read_text()


@pytest.mark.parametrize(("failure", "asked"), [((400, "no such model"), 20), ((503, "down"), 40)])
def test_a_server_that_has_no_reply_to_twenty_problems_is_not_asked_about_the_rest(
    server, annotate, failure, asked
):
    server.misbehave = lambda number: failure
    with pytest.raises(DataError, match=f"no reply for 20 problems in a row.*{failure[1]}"):
        annotate([problem(number) for number in range(200)], concurrency=1, tries=2)
    assert len(server.asked) == asked


def test_recorded_replies_do_not_hide_that_the_server_is_down(server, annotate):
    many = [problem(number) for number in range(60)]
    server.answer = wrong
    with pytest.raises(DataError, match="no reply was kept"):
        annotate(many, attempts=1)
    server.misbehave = lambda number: (503, "down")
    server.asked.clear()
    with pytest.raises(DataError, match="no reply for 20 problems in a row"):
        annotate(many, attempts=2, concurrency=1, tries=1)
    assert len(server.asked) == 20


def test_a_server_that_refuses_long_problems_is_asked_about_all(server, annotate):
    server.answer = solve
    server.misbehave = lambda number: (400, "too long") if number > 1 else None
    report = annotate([problem(number) for number in range(30)], concurrency=1)
    assert "1 annotated, 29 refused" in report.text


def test_problems_that_the_budget_does_not_cover_do_not_speak_against_the_server(server, annotate):
    server.answer, server.failures = solve, [(400, "refused")]
    long = [replace(problem(number), question="x" * 100_000) for number in range(25)]
    report = annotate(
        [*long, problem(25), problem(26)], prices=PRICES, max_cost=1.0, concurrency=1, check=False
    )
    assert "1 annotated, 1 refused, 25 budget" in report.text


def test_what_the_server_said_against_some_problems_is_shown(server, annotate):
    server.answer = solve
    server.failures = [(400, "Unsupported parameter:\n max_tokens"), (503, "busy"), (503, "busy")]
    report = annotate(PROBLEMS, concurrency=1, tries=2)
    assert "10 annotated, 1 refused, 1 gave_up" in report.text
    assert "\nrefused, for instance: http" in report.text
    assert "refused with status 400: Unsupported parameter: max_tokens\n" in report.text
    assert re.search(
        r"\ngave_up, for instance: http.* gave up after 2 attempts: status 503: busy\n", report.text
    )


@pytest.fixture
def annotation(server, grader, tmp_path):
    """An annotation with a limit, and its tasks."""

    def make(limit):
        annotator = Annotator(endpoint=Endpoint(url=server.url), model="m", max_tokens=10_000)
        made = Annotation(
            annotator=annotator,
            ledger=CallLedger(tmp_path / "calls.jsonl"),
            judge=accept(grader),
            prices=PRICES,
            budget=Budget(PRICES, limit=limit, spent=0.0),
            patience=Patience(),
        )
        return made, [annotator.task(each) for each in PROBLEMS]

    return make


def test_an_interrupt_while_tasks_are_submitted_cancels_those_that_were(server, annotation):
    server.answer, server.delay_s = solve, 0.2
    run, tasks = annotation(math.inf)

    def interrupted():
        yield tasks[0]
        raise KeyboardInterrupt

    with run.ledger, pytest.raises(KeyboardInterrupt):
        run.run(interrupted(), concurrency=2, on_outcome=lambda outcome: None)
    assert len(server.asked) <= 1


def test_who_waits_for_money_when_the_run_ends_asks_nothing(server, annotation):
    server.answer, server.delay_s = solve, 0.3
    # For one request at a time, and in the end for all.
    run, tasks = annotation(1.9 * PRICES.cost(500, 10_000))

    def interrupt(outcome):
        raise KeyboardInterrupt

    with run.ledger, pytest.raises(KeyboardInterrupt):
        run.run(tasks, concurrency=8, on_outcome=interrupt)
    # The second one took the first one's money before the interrupt.
    assert len(server.asked) <= 2
    assert run.ledger.account("m").lost_calls == 0


def test_the_forecast_knows_which_replies_are_kept(server, grader, annotate, tmp_path):
    server.answer = lambda prompt, seed: (wrong if "What is 7 " in prompt else solve)(prompt, seed)
    annotate(PROBLEMS[:10], attempts=1)
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")

    def expected(attempts):
        order = AnnotationOrder(
            file=tmp_path / "in.parquet",
            out=tmp_path / "other.parquet",
            calls=tmp_path / "calls.jsonl",
            annotator=Annotator(
                endpoint=Endpoint(url=server.url), model="m", max_tokens=1000, attempts=attempts
            ),
            prices=Prices(per_million_out=1000.0),
        )
        return prepare(order, accept(grader), reply_tokens=100).expected

    # Two problems were never asked; the seventh has no attempt left, or else two more.
    assert (expected(1).calls, expected(1).cost, expected(1).most) == (2, 0.2, 2.0)
    assert expected(3).calls == 3
    assert expected(3).cost == pytest.approx(0.3) and expected(3).most == pytest.approx(2 * 3 + 2)


def test_further_columns_stay_with_their_problem(server, annotate, tmp_path):
    server.answer = lambda prompt, seed: (wrong if "What is 1 " in prompt else solve)(prompt, seed)
    annotate([problem(0), problem(1), problem(2)], topics=["a", "b", "c"])
    assert read_columns(tmp_path / "out.parquet", ["question", "topic"]) == [
        {"question": "What is 0 + 1?", "topic": "a"},
        {"question": "What is 2 + 1?", "topic": "c"},
    ]


def test_twins_are_asked_once(server, annotate, tmp_path):
    server.answer = solve
    twin = Instance(
        **{name: getattr(PROBLEMS[0], name) for name in PROBLEMS[0].__slots__} | {"instance_id": "t"}
    )
    annotate([*PROBLEMS, twin])
    assert len(server.asked) == 12
    assert manifest(tmp_path)["problems"] == {"annotated": 12, "twin": 1}
    assert manifest(tmp_path)["replies"] == {"accepted": 12}
    assert len(read_problems(tmp_path / "out.parquet")) == 12


def test_a_second_run_asks_nothing_and_writes_the_same_bytes(server, annotate, tmp_path):
    server.answer = lambda prompt, seed: (solve if seed or "7 + 1" not in prompt else wrong)(prompt, seed)
    annotate(PROBLEMS)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    asked = len(server.asked)
    annotate(PROBLEMS, concurrency=1)
    assert len(server.asked) == asked == 13
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"model": "other"}, 12),
        ({"temperature": 0.5}, 12),
        ({"seed": 1}, 12),
        ({"prompt": AnnotatorPrompt(max_steps=4)}, 12),
        ({"extra": {"top_p": 0.5}}, 12),
        ({"retry_temperature": 0.5}, 0),
        ({"attempts": 9}, 0),
    ],
    ids=str,
)
def test_replies_belong_to_what_was_asked(server, annotate, changes, more):
    server.answer = solve
    annotate(PROBLEMS)
    annotate(PROBLEMS, **changes)
    assert len(server.asked) == 12 + more


def test_more_problems_cost_only_themselves(server, annotate, tmp_path):
    server.answer = solve
    annotate(PROBLEMS[:5])
    annotate(PROBLEMS, out="more")
    assert len(server.asked) == 12
    assert manifest(tmp_path, "more")["problems"] == {"annotated": 12}


def test_the_money_is_never_exceeded_and_the_run_goes_on_with_more(server, annotate, tmp_path):
    server.answer, server.delay_s = solve, 0.01
    most_of_one = PRICES.cost(600, 1000)
    report = annotate(PROBLEMS, prices=PRICES, max_cost=4 * most_of_one, may_exceed=True)
    assert not report.is_complete
    written = manifest(tmp_path)
    assert 0 < written["problems"]["annotated"] < 12
    assert sum(written["problems"].values()) == 12 and "budget" in written["problems"]
    # Tokens of the stand-in are characters, three times as many as were estimated.
    assert written["paid"]["cost"] <= 4 * most_of_one + PRICES.cost(4 * 2000, 0)
    asked = len(server.asked)
    report = annotate(PROBLEMS, prices=PRICES, max_cost=1000.0)
    assert report.is_complete and manifest(tmp_path)["problems"] == {"annotated": 12}
    assert len(server.asked) == 12 and asked < 12


def test_more_than_is_allowed_is_refused_before_anything_is_asked(server, annotate):
    for limits in ({}, {"max_cost": 0.01}):
        with pytest.raises(ConfigError, match="more than may be spent"):
            annotate(PROBLEMS, prices=PRICES, **limits)
    assert server.asked == []
    server.answer = solve
    assert annotate(PROBLEMS, prices=PRICES, may_exceed=True).is_complete


@pytest.mark.parametrize(
    ("limit", "prices", "said"),
    [
        (1.0, Prices(), "without prices calls cost nothing"),
        (math.nan, PRICES, "must be 0 or above, got nan"),
        (-1.0, PRICES, "must be 0 or above, got -1"),
    ],
)
def test_a_limit_that_limits_nothing_is_refused(annotate, limit, prices, said):
    with pytest.raises(ConfigError, match=f"--max-cost.*{said}"):
        annotate(PROBLEMS, max_cost=limit, prices=prices)


def test_the_key_is_written_nowhere(server, annotate, tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "secret-key")
    server.answer, server.failures = solve, [(429, "not yet, secret-key"), (400, "never, secret-key")]
    annotate(PROBLEMS)
    assert server.headers[0]["Authorization"] == "Bearer secret-key"
    assert all(b"secret-key" not in (tmp_path / name).read_bytes() for name in os.listdir(tmp_path))


def test_where_no_reply_is_kept_nothing_is_written(server, annotate, tmp_path):
    server.answer = wrong
    with pytest.raises(DataError, match=r"no reply was kept\.\nproblems: 12, 0 annotated, 12 wrong_answer"):
        annotate(PROBLEMS)
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize(
    ("out", "calls", "said"),
    [
        ("a.parquet", "calls.jsonl", "--out .*a.parquet: is a folder or .*a.parquet; name another file"),
        ("a.annotated", "calls.jsonl", "--out .*a.annotated: would have the manifest of .*a.parquet"),
        ("b.parquet", "a.parquet", "--calls .*a.parquet: is the file of problems, --out or its manifest"),
        ("b.parquet", "x/../b.parquet", "--calls .*b.parquet: is the file of problems"),
        ("b.parquet", "b.manifest.json", "--calls .*b.manifest.json: is the file of problems"),
    ],
)
def test_files_that_replace_each_other_are_refused(tmp_path, server, out, calls, said):
    annotator = Annotator(endpoint=Endpoint(url=server.url), model="m")
    with pytest.raises(ConfigError, match=said):
        AnnotationOrder(
            file=tmp_path / "a.parquet",
            out=tmp_path / out,
            calls=tmp_path / calls,
            annotator=annotator,
            prices=Prices(),
        )


@pytest.mark.parametrize("cut", [1, 30])
def test_a_reply_that_was_cut_off_in_the_ledger_is_asked_again_and_nothing_else(
    server, annotate, tmp_path, cut
):
    server.answer = solve
    annotate(PROBLEMS, concurrency=1)
    path = tmp_path / "calls.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    annotate(PROBLEMS)
    assert len(server.asked) == 13
    assert manifest(tmp_path)["paid"]["lost_calls"] == 1


def test_a_line_that_does_not_fit_the_disk_leaves_no_half_line_before_the_next(tmp_path):
    path = tmp_path / "calls.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with LineAppender(path, whole_bytes=0, total_bytes=0) as lines:
        lines.append("first")
        resource.setrlimit(resource.RLIMIT_FSIZE, (9, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                lines.append("second")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        lines.append("third")
    assert path.read_text() == "first\nthird\n"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_is_named_and_written_to(tmp_path, monkeypatch, capsys, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "calls.jsonl"
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            LineAppender(path, whole_bytes=0, total_bytes=0)
        return
    with LineAppender(path, whole_bytes=0, total_bytes=0) as lines:
        lines.append("first")
    assert path.read_text() == "first\n"
    error = capsys.readouterr().err
    assert f"{path}: not locked ({os.strerror(code)})" in error and error.count("\n") == 1


@pytest.mark.parametrize("damage", ["{", "[]", '{"event": "reply", "key": "no"}', '{"event": "x"}'])
def test_damage_elsewhere_in_the_ledger_is_named(server, annotate, tmp_path, damage):
    server.answer = solve
    annotate(PROBLEMS[:2])
    path = tmp_path / "calls.jsonl"
    path.write_text(f"{damage}\n{path.read_text()}")
    with pytest.raises(CheckpointError, match="line 1 is damaged"):
        annotate(PROBLEMS[:2])


def test_a_file_of_one_line_that_is_no_ledger_is_kept(annotate, tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_text('[{"my": "replies"}]')
    with pytest.raises(
        CheckpointError, match=r"calls.jsonl: begins with .*, so this command has not written it"
    ):
        annotate(PROBLEMS[:2])
    assert path.read_text() == '[{"my": "replies"}]'


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"attempts": 0}, "attempts must be at least 1"),
        ({"temperature": -1.0}, "temperature must be 0 or above"),
        ({"retry_temperature": float("nan")}, "retry_temperature must be 0 or above"),
        ({"extra": {"stream": True}}, r"\['stream'\] cannot be set"),
    ],
)
def test_settings_are_checked(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Annotator(**{"endpoint": Endpoint(url="http://x"), "model": "m"} | settings)


def test_a_prompt_fills_its_fields_once():
    prompt = AnnotatorPrompt(template="{question}|{reference}|{max_steps}", shows_solution=False)
    hostile = Instance(
        instance_id="i", data_source="d", question="{reference} {max_steps}", steps=(), answer="{question}"
    )
    assert prompt.render(hostile) == "{reference} {max_steps}|The final answer is: {question}|5"
    assert prompt.sha256 != AnnotatorPrompt().sha256
    assert prompt.sha256 != AnnotatorPrompt(template=prompt.template).sha256


@pytest.mark.parametrize(
    "settings", [{"template": "no field"}, {"min_steps": 0}, {"min_steps": 4, "max_steps": 3}]
)
def test_a_prompt_that_cannot_work_is_refused(settings):
    with pytest.raises(ConfigError):
        AnnotatorPrompt(**settings)


# --- From an annotator's reply to steps, or to the reason why it is not kept


TWO = "Step 1: Add 3 and 4 to get 7.\n\nStep 2: So the answer is \\boxed{7}."


class LiteralGrader:
    """Right is what stands in the last box letter by letter; ``?`` cannot be graded."""

    def grade_problem(self, text, instance):
        _, box, answer = text.rpartition("\\boxed{")
        if not box:
            return Grade(False, GradeReason.NO_ANSWER)
        if answer.startswith("?"):
            return Grade(False, GradeReason.TIMEOUT)
        is_right = answer.split("}")[0] == instance.answer
        return Grade(is_right, GradeReason.CORRECT if is_right else GradeReason.WRONG)


def reply(text, finish=Finish.STOP):
    return Reply(text=text, finish=finish, tokens_in=1, tokens_out=1, model="m")


def verdict(text, finish=Finish.STOP, *, answer="7", min_steps=2, max_steps=3):
    about = Instance(instance_id="i", data_source="sums", question="3 + 4?", steps=(), answer=answer)
    return judge(reply(text, finish), about, LiteralGrader(), min_steps=min_steps, max_steps=max_steps)


def test_the_steps_together_are_the_reply():
    steps, rejection = verdict(f"\n {TWO}\n")
    assert rejection is None
    assert steps == ("Step 1: Add 3 and 4 to get 7.\n\n", "Step 2: So the answer is \\boxed{7}.")


@pytest.mark.parametrize(
    "marker",
    ["Step {}:", "**Step {}:**", "**Step {}**:", "### Step {}: S", "Step {}.", "  Step {}:", "__Step {}:__"],
)
def test_markers_may_be_dressed_up(marker):
    text = f"{marker.format(1)} 3 + 4 = 7.\n{marker.format(2)} \\boxed{{7}}"
    steps, rejection = verdict(text)
    assert rejection is None
    assert "".join(steps) == text.strip() and len(steps) == 2


def test_the_thoughts_of_a_reasoning_model_are_left_out():
    steps, rejection = verdict(f"<think>Step 1: hm, \\boxed{{8}}?</think>\n{TWO}")
    assert rejection is None
    assert "".join(steps) == TWO


def test_a_mention_of_a_step_is_no_marker():
    text = "Step 1: We need two steps.\nIn Step 2: nothing.\nSo it goes.\nStep 2: By Step 1: \\boxed{7}"
    assert len(verdict(text)[0]) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Rejection.REFUSED),
        ("<think>for ever</think>", Rejection.REFUSED),
        ("I cannot help with that.", Rejection.FORMAT),
        (f"Here is the solution.\n{TWO}", Rejection.FORMAT),
        ("Step 1: a\nStep 3: \\boxed{7}", Rejection.FORMAT),
        ("Step 2: a\nStep 3: \\boxed{7}", Rejection.FORMAT),
        ("Step 1: a\nStep 1: \\boxed{7}", Rejection.FORMAT),
        ("Step 1: half a sign \ud83d\nStep 2: \\boxed{7}", Rejection.FORMAT),
        ("Step 1: \\begin{align}x&=5\nStep 2: y&=1\\end{align}\nStep 3: \\boxed{7}", Rejection.FORMAT),
        ("Step 1: a\nStep 2:\n\nStep 3: \\boxed{7}", Rejection.BLANK_STEP),
        ("Step 1:\r\n\r\nStep 2: \\boxed{7}", Rejection.BLANK_STEP),
        ("Step 1: a\n**Step 2:**\n---\nStep 3: \\boxed{7}", Rejection.BLANK_STEP),
        ("Step 1: \\boxed{7}", Rejection.TOO_FEW_STEPS),
        ("Step 1: a\nStep 2: b\nStep 3: c\nStep 4: \\boxed{7}", Rejection.TOO_MANY_STEPS),
        ("Step 1: \\boxed{7}\nStep 2: As said.", Rejection.NO_ANSWER),
        ("Step 1: \\boxed{7}\nStep 2: \\boxed{8}", Rejection.WRONG_ANSWER),
        ("Step 1: a\nStep 2: \\boxed{?}", Rejection.UNGRADED),
    ],
)
def test_what_is_not_kept_has_a_reason(text, reason):
    assert verdict(text)[1] is reason


def test_a_reply_that_was_cut_off_or_filtered_is_not_read():
    assert verdict(TWO, Finish.LENGTH) == ((), Rejection.TRUNCATED)
    assert verdict(TWO, Finish.ERROR) == ((), Rejection.REFUSED)


def test_a_single_step_is_kept_where_that_is_wanted():
    assert verdict("Step 1: \\boxed{7}", min_steps=1)[1] is None


BODIES = st.text(alphabet=" aStep1:2\n\\boxed{}$.", max_size=20)


@given(st.lists(BODIES, min_size=0, max_size=5), st.sampled_from(["\n", "\n\n", " ", ""]))
def test_whatever_is_said_pieces_make_the_whole_and_what_is_kept_is_in_order(bodies, separator):
    text = separator.join(f"Step {number}:{body}" for number, body in enumerate(bodies, start=1))
    steps, rejection = verdict(text)
    if steps:
        assert "".join(steps) == text.strip()
    if rejection is None:
        assert 2 <= len(steps) <= 3
        assert all(step.startswith(f"Step {n}") and step.strip() for n, step in enumerate(steps, start=1))
        assert "\\boxed{7}" in steps[-1]


# --- ``seele data annotate`` in a real process, killed at random moments, against a server that misbehaves


NUM_KILLS = 4
MOST = 18
"""Replies that each killed process is waited for, at the most: there are 98 in all."""
EIGHTY_PROBLEMS = [
    Instance(
        instance_id=f"sums-{number}",
        data_source="sums",
        question=f"What is {number} + 1?",
        steps=(),
        answer=str(number + 1),
    )
    for number in range(80)
]
ATTEMPTS = 2


def solve_by_prompt(prompt, seed):
    """Right for most; a ninth of the problems needs the second attempt, and another ninth has none."""
    number = int(re.search(r"What is (\d+) \+ 1\?", prompt)[1])
    if number % 9 == 4 or (number % 9 == 7 and not seed):
        return "Step 1: Who knows.\nStep 2: \\boxed{-1}"
    return f"Step 1: One after {number}.\n\nStep 2: That is \\boxed{{{number + 1}}}."


def command(server, folder, *more):
    return [
        *("data", "annotate", folder / "in.parquet", "--out", folder / "out.parquet"),
        *("--endpoint", server.url, "--model", "m", "--attempts", ATTEMPTS, "--max-tokens", 1000),
        *("--concurrency", 4, "--graders", 1, *more),
    ]


def process_command(server, folder):
    return [sys.executable, "-m", "seele.cli.main", *map(str, command(server, folder))]


def events(folder):
    path = folder / "out.calls.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def replied(folder):
    return [event["key"] for event in events(folder) if event["event"] == "reply"]


def key_of(asked):
    """The key of the call that a request belongs to."""
    [message] = asked["messages"]
    number = int(re.search(r"What is (\d+) \+ 1\?", message["content"])[1])
    annotator = Annotator(endpoint=Endpoint(url="http://x"), model="m", max_tokens=1000, attempts=ATTEMPTS)
    return annotator.call(annotator.task(EIGHTY_PROBLEMS[number]), asked["seed"]).key


@pytest.mark.timeout(300)
def test_killed_at_random_moments_nothing_that_was_answered_is_asked_again(new_server, tmp_path):
    chance, servers = random.Random(0), []

    def misbehave(number):
        luck = chance.random()
        if luck < 0.05:
            return 429, "slow down", {"Retry-After": "0.05"}
        return (200, "garbage") if luck < 0.1 else None

    def next_server():
        servers.append(server := new_server())
        server.answer, server.delay_s, server.misbehave = solve_by_prompt, 0.02, misbehave
        return server

    for folder in (tmp_path / "killed", tmp_path / "whole"):
        write_problems(folder / "in.parquet", EIGHTY_PROBLEMS, split="train")
    folder = tmp_path / "killed"
    for _ in range(NUM_KILLS):
        before, some, server = replied(folder), chance.randrange(1, 1 + MOST), next_server()
        # However late it is killed: it does not end before.
        server.hold_after = some + 1
        kill_at(
            lambda: len(replied(folder)),
            len(before) + some,
            process_command(server, folder),
            after_s=chance.random() * 0.1,
        )
        assert replied(folder)[: len(before)] == before
        assert {key_of(each) for each in server.asked}.isdisjoint(before)
    before, server = replied(folder), next_server()
    assert not (folder / "out.parquet").exists()

    assert run(*command(server, folder)) == 0
    assert {key_of(each) for each in server.asked}.isdisjoint(before)
    kinds = Counter(event["event"] for event in events(folder))
    assert Counter(Counter(replied(folder)).values()) == {1: len(EIGHTY_PROBLEMS) + 9 + 9}
    written = json.loads((folder / "out.manifest.json").read_text())
    assert written["problems"] == {"annotated": 71, "wrong_answer": 9}
    assert written["replies"] == {"accepted": 71, "wrong_answer": 27}
    assert written["paid"]["replies"] == kinds["reply"]
    assert written["paid"]["lost_calls"] == kinds["sent"] - kinds["reply"] - kinds["unpaid"] > 0
    assert sum(len(server.asked) for server in servers) <= kinds["sent"]

    honest = new_server()
    honest.answer = solve_by_prompt
    assert run(*command(honest, tmp_path / "whole")) == 0
    assert (tmp_path / "whole" / "out.parquet").read_bytes() == (folder / "out.parquet").read_bytes()
    assert len(read_problems(folder / "out.parquet")) == 71


def test_an_interrupted_run_waits_for_what_is_paid_for(server, tmp_path):
    write_problems(tmp_path / "in.parquet", EIGHTY_PROBLEMS, split="train")
    server.answer, server.delay_s = solve_by_prompt, 0.5
    process = subprocess.Popen(
        process_command(server, tmp_path),
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background are deaf to it, and so would this process be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while len(server.asked) < 4:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode in (1, 130) and "Traceback" not in said
    kinds = Counter(event["event"] for event in events(tmp_path))
    assert kinds["sent"] == kinds["reply"] == len(server.asked) < len(EIGHTY_PROBLEMS)


def test_a_dry_run_says_what_it_would_cost_and_asks_nothing(server, tmp_path, capsys):
    write_problems(tmp_path / "in.parquet", EIGHTY_PROBLEMS, split="train")
    prices = ("--price-in", 100, "--price-out", 200, "--reply-tokens", 500)
    assert run(*command(server, tmp_path, *prices, "--dry-run")) == 0
    said = capsys.readouterr().out
    # 80 replies of 500 tokens for 200 a million are 8.00; the prompts come on top.
    [cost] = re.findall(r"40,000 out, cost (\d+\.\d+) \(at most", said)
    assert 8.0 < float(cost) < 14.0
    assert server.asked == [] and [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_spending_needs_leave(server, tmp_path, capsys):
    write_problems(tmp_path / "in.parquet", EIGHTY_PROBLEMS[:3], split="train")
    server.answer = solve_by_prompt
    prices = ("--price-in", 1, "--price-out", 2)
    assert run(*command(server, tmp_path, *prices)) == 2
    assert "--yes" in capsys.readouterr().err and server.asked == []
    assert run(*command(server, tmp_path, *prices, "--max-cost", 0.003, "--yes")) == 1
    assert "budget" in capsys.readouterr().out
    assert run(*command(server, tmp_path, *prices, "--max-cost", 1)) == 0
    said = capsys.readouterr().out
    assert "problems: 3, 3 annotated" in said and "paid: 3 replies" in said


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--extra", "[1]"), "expected a JSON object"),
        (("--extra", "{"), "not JSON"),
        (("--prompt", "absent.txt"), "cannot be read as text"),
        (("--max-steps", "1"), "1 <= min_steps <= max_steps"),
        (("--grader", "kind"), "unknown grader 'kind'"),
        (("--price-in", "-1"), "prices must be 0 or above"),
        (("--endpoint", "localhost:8000/v1"), "not a server's address"),
        (("--timeout-s", "inf"), "timeout_s must be above 0 and at most 1,000,000,000 seconds, got inf"),
        (("--calls", "."), "--calls .: is a folder; name a file"),
    ],
)
def test_what_the_user_gets_wrong_ends_with_one_line(server, tmp_path, capsys, more, complaint):
    write_problems(tmp_path / "in.parquet", EIGHTY_PROBLEMS[:3], split="train")
    assert run(*command(server, tmp_path, *more)) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
    assert server.asked == []


def test_a_prompt_of_ones_own_is_asked(server, tmp_path):
    write_problems(tmp_path / "in.parquet", EIGHTY_PROBLEMS[:2], split="train")
    (tmp_path / "prompt.txt").write_text("Solve in {max_steps} steps: {question}", encoding="utf-8")
    server.answer = solve_by_prompt
    assert run(*command(server, tmp_path, "--prompt", tmp_path / "prompt.txt")) == 0
    assert {each["messages"][0]["content"] for each in server.asked} == {
        "Solve in 5 steps: What is 0 + 1?",
        "Solve in 5 steps: What is 1 + 1?",
    }
