"""Samples from a server: exchanges with it, completions, difficulty and hint curves."""

import email.utils
import errno
import json
import os
import re
import ssl
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from urllib.error import URLError

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import exit_status as run
from seele.data.difficulty import Band, Count, filter_file, problem_key, read_counts, write_counts
from seele.data.storage.files import file_sha256
from seele.data.storage.schema import read_problems, write_problems
from seele.endpoint import (
    Endpoint,
    GaveUpError,
    PassingError,
    Patience,
    RefusedError,
    RequestRefusedError,
    StoppedError,
    UncountedError,
    exchange,
    read_reply,
)
from seele.errors import ConfigError, DataError
from seele.records import BOX_REQUEST, Finish, GradeReason, Instance
from seele.rollout.unanswered import Graded
from seele_eval.difficulty import parse, sample
from seele_eval.generation import EngineSettings
from seele_eval.hint_curve import choose_problems, curve, markdown
from seele_eval.hint_curve import main as hint_curve_main
from seele_eval.hint_curve import parse as parse_hint_curve
from seele_eval.hint_curve import write as write_hint_curve
from seele_eval.prompts import Request
from seele_eval.server import Server, complete_on_server

# --- One exchange with a server, and patience with it. Honest replies are in the next section


ASKED = {"prompt": "?", "model": "stand-in", "seed": 0, "max_tokens": 50}
PATH = "/completions"


def ask(server, *, timeout_s=10.0):
    return exchange(Endpoint(url=server.url, timeout_s=timeout_s), PATH, ASKED)


def insist(server, **patience):
    return Patience(**{"first_wait_s": 0.001} | patience).insist(lambda: ask(server), at="here")


def test_a_reply_is_read_with_what_the_server_counted(server):
    server.answer = lambda prompt, seed: "four"
    reply = read_reply(ask(server))
    assert (reply.text, reply.finish, reply.model) == ("four", Finish.STOP, "stand-in-0")
    assert (reply.tokens_in, reply.tokens_out) == (len("?"), len("four"))


@pytest.mark.parametrize(
    ("choice", "text", "finish"),
    [
        ({"message": {"content": None, "refusal": "no"}, "finish_reason": "stop"}, "", Finish.STOP),
        ({"message": {"content": "x"}, "finish_reason": "content_filter"}, "x", Finish.ERROR),
        ({"text": "x", "finish_reason": "length"}, "x", Finish.LENGTH),
        ({"text": "x", "finish_reason": None}, "x", Finish.ERROR),
    ],
)
def test_replies_without_an_ordinary_end_say_so(choice, text, finish):
    reply = read_reply({"choices": [choice], "usage": {"completion_tokens": 1}})
    assert (reply.text, reply.finish, reply.tokens_in) == (text, finish, None)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        {},
        {"choices": []},
        {"choices": [{"text": 3}], "usage": {"completion_tokens": 1}},
        {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"completion_tokens": float("inf")}},
    ],
)
def test_what_is_no_completion_may_pass(value):
    with pytest.raises(PassingError, match="not a completion"):
        read_reply(value)


@pytest.mark.parametrize("usage", [{}, {"usage": None}, {"usage": {"prompt_tokens": 1}}])
def test_a_completion_without_a_count_is_not_paid_for_again(server, usage):
    uncounted = {"choices": [{"text": "x", "finish_reason": "stop"}], **usage}
    server.failures = [(200, json.dumps(uncounted))] * 3
    with pytest.raises(UncountedError, match=r"lacks 'usage\.completion_tokens'") as raised:
        Patience(first_wait_s=0.001).insist(lambda: read_reply(ask(server)), at="here")
    assert len(server.failures) == 2 and not raised.value.is_unpaid


@pytest.mark.parametrize(
    ("failure", "is_unpaid"),
    [
        pytest.param((429, "slow down"), True, id="too many requests"),
        pytest.param((500, "oops"), True, id="server error"),
        pytest.param((504, "the gateway lost it"), False, id="gateway time-out"),
        pytest.param((200, "{"), False, id="no JSON"),
        pytest.param((200, "[" * 100_000), False, id="too deep"),
        pytest.param((200, "{}", {"Content-Length": 1000}), False, id="cut off"),
        pytest.param((200, "\udcff".encode("utf-8", "surrogatepass").decode("latin-1")), False, id="no text"),
    ],
)
def test_a_failure_that_may_pass_says_whether_it_can_have_cost_anything(server, failure, is_unpaid):
    server.failures = [failure]
    with pytest.raises(PassingError) as raised:
        ask(server)
    assert raised.value.is_unpaid is is_unpaid


def test_a_reply_without_end_is_not_read_whole(server, monkeypatch):
    monkeypatch.setattr("seele.endpoint.http._LONGEST_REPLY_BYTES", 100_000)
    server.failures = [(200, "x" * 300_000)]
    with pytest.raises(PassingError, match="a reply of more than 100000 bytes") as raised:
        ask(server)
    assert not raised.value.is_unpaid


def test_where_nobody_listens_nothing_is_paid(server):
    server.close()
    with pytest.raises(PassingError) as raised:
        ask(server)
    assert raised.value.is_unpaid


@pytest.mark.parametrize(
    ("reason", "is_unpaid"),
    [
        (ssl.SSLCertVerificationError("self-signed certificate"), True),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), True),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), False),
    ],
)
def test_a_request_that_never_left_is_not_paid(server, monkeypatch, reason, is_unpaid):
    def fail(*_, **__):
        raise URLError(reason)

    monkeypatch.setattr("seele.endpoint.http._OPENER", SimpleNamespace(open=fail))
    with pytest.raises(PassingError) as raised:
        ask(server)
    assert raised.value.is_unpaid is is_unpaid


@pytest.mark.parametrize("slowness", ["delay_s", "drip_s"])
def test_a_reply_that_takes_too_long_is_not_waited_for(server, slowness):
    setattr(server, slowness, {"delay_s": 60.0, "drip_s": 0.05}[slowness])
    start = time.monotonic()
    with pytest.raises(PassingError, match="timed out") as raised:
        ask(server, timeout_s=0.3)
    assert time.monotonic() - start < 30.0
    assert not raised.value.is_unpaid


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, RequestRefusedError), (413, RequestRefusedError), (401, RefusedError), (402, RefusedError),
     (404, RefusedError)],
)  # fmt: skip
def test_a_refusal_is_about_the_request_or_about_everything(server, status, error):
    server.failures = [(status, "no")]
    with pytest.raises(RefusedError, match=f"refused with status {status}: no") as raised:
        insist(server)
    assert type(raised.value) is error
    assert len(server.asked) == 1


def test_the_key_goes_to_the_named_server_only(server, new_server, monkeypatch):
    other_server = new_server()
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "secret-key")
    for status in (301, 302, 303, 307, 308):
        server.failures = [(status, "over there", {"Location": other_server.url})]
        with pytest.raises(RefusedError, match=f"status {status}"):
            ask(server)
    assert all(headers["Authorization"] == "Bearer secret-key" for headers in server.headers)
    assert other_server.headers == []


@pytest.mark.parametrize("status", [401, 429])
def test_the_key_stands_in_no_message(server, monkeypatch, status):
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "secret-key")
    server.failures = [(status, "not a key: secret-key")] * 3
    with pytest.raises((RefusedError, GaveUpError), match=r"not a key: \[key\]"):
        insist(server, attempts=3)


@pytest.mark.parametrize("before", [480, 495, 499])
def test_no_part_of_a_key_stands_in_the_beginning_of_a_long_message(server, monkeypatch, before):
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "secret-key")
    server.failures = [(401, "x" * before + "secret-key" + "x" * 100)]
    with pytest.raises(RefusedError) as error:
        ask(server)
    assert "s" not in str(error.value).partition("x" * before)[2]


def test_the_key_stands_in_no_message_on_a_reply_that_is_no_completion():
    with pytest.raises(PassingError, match=r"not a completion: .*wrong key: \[key\]"):
        read_reply({"error": {"message": "wrong key: secret-key"}}, key="secret-key")


@pytest.mark.parametrize("end", ["\n", "\r\n", " "])
def test_the_line_end_of_a_file_is_no_part_of_the_key(server, monkeypatch, end):
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", f"secret-key{end}")
    server.failures = [(401, "not a key: secret-key")]
    with pytest.raises(RefusedError, match=r"not a key: \[key\]"):
        ask(server)
    assert server.headers[0]["Authorization"] == "Bearer secret-key"


@pytest.mark.parametrize("key", ["secret\nkey", "secret\x7fkey", "secret-k\u0435y", "secret\udcffkey"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(monkeypatch, key):
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="the key in OPENAI_API_KEY has characters") as raised:
        Endpoint(url="http://localhost/v1")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000/v1", "http:///v1", "http://a b/v1", "http://a/v1\n", "http://[::1/v1", "http://a:x/v1",
     "ftp://a/v1", "http://\u0435/v1"],
)  # fmt: skip
def test_what_cannot_be_an_address_is_refused_before_anything_is_asked(url):
    with pytest.raises(
        ConfigError, match=r"not a server's address; expected one such as 'http://localhost:8000"
    ):
        Endpoint(url=url)


def test_a_server_is_left_alone_for_as_long_as_it_asks(server):
    server.failures = [(429, "wait", {"Retry-After": "0.5"})]
    start = time.monotonic()
    insist(server)
    assert time.monotonic() - start >= 0.5
    assert len(server.asked) == 2


def test_by_all_threads_that_share_the_patience(server):
    patience, called = Patience(first_wait_s=0.001), []
    server.failures = [(429, "wait", {"Retry-After": "0.6"})]

    def call():
        called.append(time.monotonic())
        return ask(server)

    first = threading.Thread(target=patience.insist, args=(call,), kwargs={"at": "here"})
    first.start()
    while len(server.asked) < 1:
        time.sleep(0.01)
    while not patience._not_before_s:
        time.sleep(0.01)
    patience.insist(call, at="here")
    first.join()
    assert len(called) == 3 and min(called[1:]) - called[0] >= 0.6


# Named: the processes of a test run collect in different seconds.
@pytest.mark.parametrize(
    "asks_for",
    ["86400", "inf", email.utils.formatdate(time.time() + 86400, usegmt=True)],  # noqa: TID251
    ids=["seconds", "for ever", "date"],
)
def test_a_server_that_wants_to_be_left_alone_for_a_day_is_given_up(server, asks_for):
    server.failures = [(429, "quota", {"Retry-After": asks_for})] * 2
    with pytest.raises(GaveUpError, match="gave up after 1 attempts: status 429: quota"):
        insist(server)


@pytest.mark.parametrize("asks_for", ["soon", "", "-5", "nan", email.utils.formatdate(0, usegmt=True)])
def test_other_wishes_are_no_reason_to_wait(server, asks_for):
    server.failures = [(503, "busy", {"Retry-After": asks_for})]
    start = time.monotonic()
    insist(server)
    assert time.monotonic() - start < 10.0


def test_who_is_told_to_stop_waits_no_longer_and_calls_no_more(server):
    server.failures = [(429, "wait", {"Retry-After": "60"})]
    patience = Patience()

    def stop():
        while not server.asked:
            time.sleep(0.01)
        patience.stop()

    threading.Thread(target=stop).start()
    with pytest.raises(StoppedError):
        patience.insist(lambda: ask(server), at="here")
    with pytest.raises(StoppedError):
        patience.insist(lambda: ask(server), at="here")
    assert len(server.asked) == 1


def test_a_request_is_what_was_given(server):
    assert json.loads(json.dumps(ask(server)))["choices"]
    assert server.asked == [{"path": "/v1/completions", **ASKED}]


# --- Completions over HTTP: honest replies, busy and broken servers, refusals


SETTINGS = EngineSettings(max_tokens=50, top_p=0.9)


def requests(count, template="plain"):
    return [Request(question=f"{n}?", template=template, temperature=0.5, seed=n) for n in range(count)]


def complete(server, count=1, *, template="plain", model="stand-in", **changes):
    where = Server(url=server.url, model=model, **({"first_wait_s": 0.001, "concurrency": 4} | changes))
    return dict(complete_on_server(where, requests(count, template), SETTINGS))


def test_each_request_gets_its_own_response(server):
    server.answer = lambda prompt, seed: f"{prompt.strip()} {seed}"
    responses = complete(server, 20)
    assert {index: response.text for index, response in responses.items()} == {
        n: f"{n}? {n}" for n in range(20)
    }
    assert responses[3].num_tokens == len("3? 3") and responses[3].finish is Finish.STOP


def test_the_settings_travel_with_every_request(server):
    complete(server)
    [asked] = server.asked
    assert asked == {
        "path": "/v1/completions", "prompt": "0?\n", "model": "stand-in", "max_tokens": 50,
        "temperature": 0.5, "top_p": 0.9, "seed": 0,
    }  # fmt: skip


def test_chat_is_left_to_the_servers_template(server):
    server.answer = lambda prompt, seed: prompt
    assert complete(server, template="chat")[0].text == f"0?\n{BOX_REQUEST}"
    assert server.asked[0]["path"] == "/v1/chat/completions"


def test_the_key_comes_from_the_environment(server, monkeypatch):
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "secret")
    complete(server)
    assert server.headers[0]["Authorization"] == "Bearer secret"


def test_a_response_at_the_limit_is_truncated(server):
    server.answer = lambda prompt, seed: "x" * 51
    assert complete(server)[0].finish is Finish.LENGTH


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param((429, "slow down"), id="too many requests"),
        pytest.param((500, "oops"), id="server error"),
        pytest.param((503, "starting"), id="not ready"),
        pytest.param((200, "no json"), id="garbage"),
        pytest.param((200, "{}"), id="no choices"),
        pytest.param((200, json.dumps({"choices": [{"text": 1}]})), id="half a completion"),
        pytest.param((200, "null"), id="null"),
    ],
)
def test_what_may_pass_is_tried_again(server, failure):
    server.failures = [failure] * 5
    assert len(complete(server, 3)) == 3
    assert len(server.asked) == 3 + 5


def test_what_does_not_pass_is_given_up_with_what_the_server_said(server):
    server.failures = [(503, "closed for good")] * 1000
    with pytest.raises(DataError, match=r"gave up after 11 attempts: status 503: closed for good"):
        complete(server)


def test_after_a_failure_nothing_more_is_asked_and_what_is_in_progress_still_comes(server):
    server.delay_s = 0.2
    server.failures = [(400, "max_tokens is too large")]
    where, finished = Server(url=server.url, model="stand-in", concurrency=4), []
    with pytest.raises(ConfigError, match="max_tokens is too large"):
        finished.extend(complete_on_server(where, requests(20), SETTINGS))
    assert len(finished) == 3 and len(server.asked) == 4


def test_a_refusal_is_the_users_at_once(server):
    server.failures = [(400, "max_tokens is too large")]
    with pytest.raises(ConfigError, match="refused with status 400: max_tokens is too large"):
        complete(server)
    assert len(server.asked) == 1


def test_nothing_waits_for_requests_in_progress_when_the_command_ends(server):
    server.hold_after = 1
    where = Server(url=server.url, model="stand-in", concurrency=2)
    responses = complete_on_server(where, requests(4), SETTINGS)
    next(iter(responses))
    ended = threading.Timer(5, server.close)  # only so that this test cannot hang
    ended.start()
    responses.close()
    assert not server._closed.is_set()
    ended.cancel()


def test_an_unknown_model_is_named_with_those_that_are_served(server):
    with pytest.raises(ConfigError, match=r"serves \['stand-in'\]"):
        complete(server, model="other")
    assert server.asked == []


@pytest.mark.parametrize(
    ("url", "error", "complaint"),
    [
        ("http://127.0.0.1:9/v1", DataError, "is it running"),
        ("nonsense", ConfigError, "not a server's address"),
    ],
)
def test_an_address_where_nobody_answers_is_refused(url, error, complaint):
    with pytest.raises(error, match=complaint):
        complete_on_server(Server(url=url, model="m"), requests(1), SETTINGS)


def test_hints_and_unknown_templates_are_refused_before_anything_is_asked(server):
    where = Server(url=server.url, model="stand-in")
    hinted = Request(question="?", template="plain", temperature=0.0, seed=0, steps=("a", "b"), hint_steps=1)
    with pytest.raises(ConfigError, match="without hints only"):
        complete_on_server(where, [hinted], SETTINGS)
    with pytest.raises(ConfigError, match="unknown prompt template"):
        complete_on_server(where, requests(1, "plane"), SETTINGS)


# --- Counts of correct samples: drawn from a stand-in server, kept, and filtered by any band


SAMPLES = 4


def problem(number, **changes):
    made = Instance(
        instance_id=f"sums-{number}",
        data_source="sums",
        question=f"What is {number} + 1?",
        steps=("Add.\n", f"\\boxed{{{number + 1}}}"),
        answer=str(number + 1),
    )
    return replace(made, **changes)


PROBLEMS = [problem(number) for number in range(10)]


@pytest.fixture
def file(tmp_path):
    """A file of ten problems, of which number n has n % 5 correct samples, and its counts."""
    path = tmp_path / "in.parquet"
    write_problems(path, PROBLEMS, split="train")
    counts = [
        Count(
            problem=problem_key(each.question, each.answer),
            instance_id=each.instance_id,
            correct=number % 5,
            truncated=SAMPLES if number == 5 else 0,
            no_answer=SAMPLES if number in (0, 5) else 0,
        )
        for number, each in enumerate(PROBLEMS)
    ]
    write_counts(tmp_path / "counts.jsonl", counts, samples=SAMPLES, conditions={"temperature": 0.6})
    return path


def kept(path):
    return [int(each.answer) - 1 for each in read_problems(path)]


@pytest.mark.parametrize(
    ("band", "numbers"),
    [("0:0", [0, 5]), ("4:4", [4, 9]), ("1:3", [1, 2, 3, 6, 7, 8]), ("0:4", list(range(10)))],
)
def test_a_band_keeps_both_its_ends_and_the_order(file, tmp_path, band, numbers):
    filter_file(file, tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band.parse(band))
    assert kept(tmp_path / "out.parquet") == numbers


def test_the_manifest_says_what_was_kept_and_under_which_conditions(file, tmp_path):
    said = filter_file(file, tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 0))
    assert "2 of 10 problems have 0 to 0 correct of 4" in said
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert manifest["by_correct_samples"] == {"0": 2, "1": 2, "2": 2, "3": 2, "4": 2}
    assert (manifest["problems"], manifest["kept"], manifest["samples"]) == (10, 2, 4)
    assert manifest["kept_with_all_samples_truncated"] == 1
    assert (manifest["no_answer_share"], manifest["truncated_share"]) == (0.2, 0.1)
    assert said.endswith("samples without an answer: 20.0%, truncated: 10.0%")
    assert manifest["conditions"] == {"temperature": 0.6}
    assert manifest["sha256"] == file_sha256(tmp_path / "out.parquet")
    assert manifest["source"]["sha256"] == file_sha256(file)


def test_a_filter_warns_where_most_samples_lack_an_answer(tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS[:2], split="train")

    def said(no_answer, band):
        counts = [
            Count(
                problem=problem_key(each.question, each.answer),
                instance_id=each.instance_id,
                correct=0,
                truncated=0,
                no_answer=no_answer,
            )
            for each in PROBLEMS[:2]
        ]
        write_counts(tmp_path / "counts.jsonl", counts, samples=4, conditions={})
        return filter_file(tmp_path / "in.parquet", tmp_path / "out.parquet", tmp_path / "counts.jsonl", band)

    line = "samples without an answer: 75.0%, truncated: 0.0%; warning: most are without an answer and count"
    assert line in said(3, Band(0, 0))
    assert "warning" not in said(2, Band(0, 0))
    with pytest.raises(DataError, match=r"0 of 2 problems .*without an answer: 75.0%.*; warning: most are"):
        said(3, Band(1, 4))
    # Files from before there was the count.
    assert said(None, Band(0, 0)).endswith("\nsamples truncated: 0.0%")
    assert json.loads((tmp_path / "out.manifest.json").read_text())["no_answer_share"] is None


def test_all_columns_stay_and_the_same_band_gives_the_same_bytes(file, tmp_path):
    table = pq.read_table(file)
    table = table.append_column("topic", pa.array([f"topic {n}" for n in range(10)]))
    pq.write_table(table, file)
    for out in ("a", "b"):
        filter_file(file, tmp_path / f"{out}.parquet", tmp_path / "counts.jsonl", Band(0, 0))
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == table.take([0, 5]).to_pylist()
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_counts_hold_for_the_problem_with_any_solution(file, tmp_path):
    annotated = [replace(each, instance_id=f"new-{each.instance_id}", steps=("Other.",)) for each in PROBLEMS]
    write_problems(tmp_path / "annotated.parquet", annotated[3:], split="train")
    filter_file(
        tmp_path / "annotated.parquet", tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 1)
    )
    assert kept(tmp_path / "out.parquet") == [5, 6]


def test_a_problem_without_samples_is_an_error(file, tmp_path):
    write_problems(tmp_path / "more.parquet", [*PROBLEMS, problem(11)], split="train")
    with pytest.raises(DataError, match=r"1 problems, the first of them 'sums-11', have no samples"):
        filter_file(
            tmp_path / "more.parquet", tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 0)
        )
    assert not (tmp_path / "out.parquet").exists()


def test_an_empty_band_is_an_error_that_shows_where_the_problems_are(tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS[:1], split="train")
    key = problem_key(PROBLEMS[0].question, PROBLEMS[0].answer)
    count = Count(problem=key, instance_id="sums-0", correct=2, truncated=0)
    write_counts(tmp_path / "counts.jsonl", [count], samples=2, conditions={})
    with pytest.raises(DataError, match="0: 0, 1: 0, 2: 1"):
        filter_file(tmp_path / "in.parquet", tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 1))


@pytest.mark.parametrize("text", ["", "0", "1:0", "-1:2", "a:b", "0:1:2", "0.5:1"])
def test_a_band_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="expected LEAST:MOST"):
        Band.parse(text)


def test_a_band_beyond_the_samples_is_refused(file, tmp_path):
    with pytest.raises(ConfigError, match="4 samples of each problem"):
        filter_file(file, tmp_path / "out.parquet", tmp_path / "counts.jsonl", Band(0, 5))


@pytest.mark.parametrize("line", ["[]", "{", '{"problem": "p"}', "null"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_damaged_counts_file_is_named(file, tmp_path, line, place):
    path = tmp_path / "counts.jsonl"
    lines = path.read_text().splitlines()
    lines[place] = line
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=f"counts.jsonl: line {place + 1}"):
        read_counts(path)


@given(st.text(), st.text(), st.text(), st.text())
def test_problems_that_differ_have_different_keys(question, answer, other_question, other_answer):
    are_equal = (question, answer) == (other_question, other_answer)
    keys = problem_key(question, answer), problem_key(other_question, other_answer)
    assert (keys[0] == keys[1]) is are_equal
    assert problem_key(question + "1", "2") != problem_key(question, "12")


# Sampling


def answer_some(prompt, seed):
    """Right for even numbers whatever the seed, and for the others about every second time."""
    number = int(re.search(r"What is (\d+)", prompt)[1])
    return f"\\boxed{{{number + 1 if number % 2 == 0 or seed % 2 else -1}}}"


def sampler_arguments(server, folder, *more):
    return [
        *(str(folder / "in.parquet"), "--out", str(folder / "samples"), "--model", "stand-in"),
        *("--server", server.url, "--template", "plain", *more),
    ]


def test_only_boxes_count_for_a_filter_as_in_training_whatever_the_template():
    argv = ["in.parquet", "--out", "out", "--model", "m", "--template", "chat"]
    assert parse(argv)[1].answers == "box"
    assert parse([*argv, "--answers", "box-or-last"])[1].answers == "box-or-last"
    # Options may come before the file.
    assert parse(["--model", "m", "problems.parquet", "--out", "o"])[0].name == "problems.parquet"
    file, several = parse([*argv, "--temperature", "0.6", "1"])
    with pytest.raises(ConfigError, match=r"--temperature: expected one value, got \[0.6, 1.0\]"):
        sample(file, several)


def test_samples_are_counted_with_their_conditions(server, tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    server.answer = answer_some
    sample(*parse(sampler_arguments(server, tmp_path)))
    counts = read_counts(tmp_path / "samples" / "counts.jsonl")
    assert counts.samples == 8 and len(server.asked) == 80
    assert {each["temperature"] for each in server.asked} == {0.6}
    assert {each["max_tokens"] for each in server.asked} == {2048}
    assert counts.conditions["temperature"] == 0.6 and counts.conditions["max_tokens"] == 2048
    by_id = {count.instance_id: count.correct for count in counts.by_problem.values()}
    assert all(by_id[f"sums-{number}"] == 8 for number in range(0, 10, 2))
    odd = {each["prompt"]: 0 for each in server.asked}
    for each in server.asked:
        odd[each["prompt"]] += each["seed"] % 2
    assert all(by_id[f"sums-{number}"] == odd[f"What is {number} + 1?\n"] for number in range(1, 10, 2))
    assert any(0 < by_id[f"sums-{number}"] < 8 for number in range(1, 10, 2))


def test_samples_without_an_answer_are_counted_and_warned_of(server, tmp_path, capsys):
    write_problems(tmp_path / "in.parquet", PROBLEMS[:2], split="train")
    server.answer = lambda prompt, seed: "It is 2."
    sample(*parse(sampler_arguments(server, tmp_path, "--samples", "2")))
    counts = read_counts(tmp_path / "samples" / "counts.jsonl").by_problem.values()
    assert [(count.no_answer, count.truncated) for count in counts] == [(2, 0), (2, 0)]
    error = capsys.readouterr().err
    assert "(problems: 100.0% of 4)" in error and '"It is 2."' in error and "--template chat" in error
    # A reward function of one's own may look for answers anywhere.
    (tmp_path / "own.py").write_text("def judge(*, solution_str, **_):\n    return '2' in solution_str\n")
    own = ("--samples", "2", "--grader", f"{tmp_path / 'own.py'}:judge")
    sample(*parse(sampler_arguments(server, tmp_path, *own)))
    counts = read_counts(tmp_path / "samples" / "counts.jsonl").by_problem.values()
    assert [(count.correct, count.no_answer) for count in counts] == [(2, None), (2, None)]


def test_more_samples_and_problems_cost_only_themselves(server, tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS[:5], split="train")
    sample(*parse(sampler_arguments(server, tmp_path, "--samples", "2")))
    sample(*parse(sampler_arguments(server, tmp_path, "--samples", "2")))
    assert len(server.asked) == 10
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    sample(*parse(sampler_arguments(server, tmp_path, "--samples", "3")))
    assert len(server.asked) == 30
    fewer = parse(sampler_arguments(server, tmp_path, "--samples", "1"))
    sample(*fewer)
    assert len(server.asked) == 30
    assert read_counts(tmp_path / "samples" / "counts.jsonl").samples == 1


def test_the_first_other_sample_sets_counts_aside(server, tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS[:2], split="train")
    sample(*parse(sampler_arguments(server, tmp_path, "--samples", "1")))
    others = parse(
        sampler_arguments(server, tmp_path, "--samples", "1", "--max-tokens", "9", "--concurrency", "1")
    )
    server.misbehave = lambda number: (400, "no more")
    with pytest.raises(ConfigError, match="no more"):
        sample(*others)
    assert (tmp_path / "samples" / "counts.jsonl").is_file()
    server.misbehave = lambda number: (400, "no more") if number == 5 else None
    with pytest.raises(ConfigError, match="no more"):
        sample(*others)
    assert not (tmp_path / "samples" / "counts.jsonl").exists()
    assert (tmp_path / "samples" / "earlier_1" / "counts.jsonl").is_file()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--temperature", "0"), "gives one sample, not 8"),
        (("--limit", "3"), "needs --out and the whole file"),
        (("--benchmarks", "gsm8k"), "needs --out and the whole file"),
        (("--problems", "a=other.parquet"), r"--problems: the problems are those of .*in\.parquet; omit it"),
    ],
)
def test_what_is_no_sampling_of_a_file_is_refused(server, tmp_path, more, complaint):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    with pytest.raises(ConfigError, match=complaint):
        sample(*parse(sampler_arguments(server, tmp_path, *more)))
    assert server.asked == []


# The command


def test_one_command_samples_and_filters_and_another_band_samples_nothing(server, tmp_path, capfd):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    server.answer = lambda prompt, seed: answer_some(prompt, 0)
    command = ("data", "filter", tmp_path / "in.parquet", "--out", tmp_path / "hard.parquet")
    sampling = ("--model", "stand-in", "--samples", 2, "--", "--server", server.url, "--template", "plain")
    assert run(*command, *sampling) == 0
    assert kept(tmp_path / "hard.parquet") == [1, 3, 5, 7, 9]
    assert len(server.asked) == 20
    said = capfd.readouterr()
    assert "5 of 10 problems have 0 to 0 correct of 2" in said.out
    assert "samples without an answer: 0.0%, truncated: 0.0%" in said.out and "warning" not in said.err
    easy = ("data", "filter", tmp_path / "in.parquet", "--out", tmp_path / "easy.parquet", "--band", "1:2")
    assert run(*easy) == 0
    assert kept(tmp_path / "easy.parquet") == [0, 2, 4, 6, 8]
    assert len(server.asked) == 20


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ((), "no such file; pass --model"),
        (("--samples", 4), "only for sampling, which needs --model"),
        (("--", "--template", "plain"), "only for sampling, which needs --model"),
        (("--model", "m", "--band", "0:9"), "8 samples of each problem"),
        (("--model", "m", "--band", "9"), "expected LEAST:MOST"),
    ],
)
def test_what_the_user_gets_wrong_ends_with_one_line(tmp_path, capsys, more, complaint):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    command = ("data", "filter", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    assert run(*command, *more) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1


def test_where_sampling_fails_nothing_is_filtered(tmp_path, capfd):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    command = ("data", "filter", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    assert run(*command, "--model", tmp_path / "absent") == 2
    assert "no such model folder" in capfd.readouterr().err
    assert not (tmp_path / "out.parquet").exists()


# --- Accuracy against revealed steps: which problems are asked, and how verdicts become points


def problem_of_length(index, num_steps):
    return Instance(
        instance_id=f"p{index}",
        data_source="d",
        question="q",
        steps=tuple(f"s{step}\n" for step in range(num_steps)),
        answer="1",
    )


def test_only_problems_of_the_same_length_are_compared(tmp_path):
    path = tmp_path / "p.parquet"
    write_problems(path, [problem_of_length(i, 2 + i % 2) for i in range(8)], split="p")
    assert [p.instance_id for p in choose_problems(path, steps=3, limit=2)] == ["p1", "p3"]
    with pytest.raises(DataError, match=r"no problem has 5 steps; the problems have \[2, 3\]"):
        choose_problems(path, steps=5, limit=2)
    write_problems(path, [problem_of_length(i, n) for i, n in enumerate([1, 1, 1, 2, 3, 3, 2])], split="p")
    assert [p.instance_id for p in choose_problems(path, steps=None, limit=9)] == ["p4", "p5"]
    write_problems(path, [problem_of_length(0, 1)], split="p")
    with pytest.raises(DataError, match="no problem has two steps"):
        choose_problems(path, steps=None, limit=2)


def test_hand_worked_curve():
    right = Graded("\\boxed{1}", GradeReason.CORRECT, Finish.STOP)
    wrong = Graded("\\boxed{2}", GradeReason.WRONG, Finish.LENGTH)
    none = Graded("1, I think", GradeReason.NO_ANSWER, Finish.STOP)
    # Two problems, two samples: without hint 1 of 4 correct, after one step 3 of 4.
    points = curve([[[right, none], [none, wrong]], [[right, right], [right, wrong]]], steps=2)
    assert [(p.no_answer_share, p.truncated_share) for p in points] == [(0.5, 0.25), (0.0, 0.25)]
    assert [(p.revealed_steps, p.hint_ratio, p.accuracy) for p in points] == [(0, 0.0, 0.25), (1, 0.5, 0.75)]
    assert all(low < p.accuracy < high for p in points for low, high in [p.interval_95])
    assert "| 1 | 0.50 | 75.0% |" in markdown(points)
    assert markdown(points).endswith("| 0.0% | 25.0% |\n")


@pytest.mark.parametrize("option", ["--samples", "--limit", "--steps", "--max-tokens"])
def test_numbers_are_positive(option, capsys):
    with pytest.raises(SystemExit) as ended:
        hint_curve_main(["--model", "m", "--problems", "p.parquet", "--out", "o", option, "0"])
    assert ended.value.code == 2 and f"{option}: must be at least 1" in capsys.readouterr().err


def test_what_contradicts_in_a_curves_options_is_one_line(capsys):
    arguments = ["--model", "m", "--problems", "p.parquet", "--out", "o"]
    assert hint_curve_main([*arguments, "--system", "Be brief."]) == 2
    assert capsys.readouterr().err.startswith("error: --system, ")
    with pytest.raises(SystemExit):
        hint_curve_main([*arguments, "--temperature", "nan"])
    assert "--temperature: must be 0 (greedy) or above, got nan" in capsys.readouterr().err


def test_a_curves_conditions_say_how_the_model_was_asked(tmp_path):
    arguments = ["--model", "m", "--problems", "p.parquet", "--out", str(tmp_path), "--template", "chat"]
    options = parse_hint_curve([*arguments, "--system", "Be brief."])
    table = write_hint_curve(curve([[[Graded("", GradeReason.CORRECT, Finish.STOP)]]], steps=1), options)
    assert (tmp_path / "hint_curve.md").read_text() == table
    conditions = json.loads((tmp_path / "hint_curve.json").read_text())["conditions"]
    assert conditions["chat"] == {"system": "Be brief.", "kwargs": {}, "ask": BOX_REQUEST}
    assert conditions["template"] == "chat"


def test_an_output_that_is_a_file_is_refused_before_the_work(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    for out, said in ((tmp_path / "out", "is a file; give a folder"), ("/proc/x", "cannot be written")):
        assert hint_curve_main(["--model", "m", "--problems", "p.parquet", "--out", str(out)]) == 2
        assert capsys.readouterr().err.startswith(f"error: --out {out}: {said}")


def test_a_missing_file_is_one_clear_line_and_nothing_written(tmp_path, capsys):
    out = tmp_path / "out"
    status = hint_curve_main(
        ["--model", str(tmp_path), "--problems", str(tmp_path / "none.parquet"), "--out", str(out)]
    )
    assert status == 2 and not out.exists()
    assert "none.parquet" in capsys.readouterr().err
