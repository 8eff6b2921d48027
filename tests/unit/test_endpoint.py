"""One exchange with a server, and patience with it. Honest replies are in test_eval_server.py."""

import email.utils
import json
import os
import threading
import time

import pytest

from seele.endpoint import (
    Endpoint,
    GaveUpError,
    PassingError,
    Patience,
    RefusedError,
    RequestRefusedError,
    StoppedError,
    exchange,
    read_reply,
)
from seele.errors import ConfigError
from seele.records import Finish

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
    [None, [], "text", {}, {"choices": []}, {"choices": [{"text": 3}], "usage": {"completion_tokens": 1}},
     {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": None}],
)  # fmt: skip
def test_what_is_no_completion_may_pass(value):
    with pytest.raises(PassingError, match="not a completion"):
        read_reply(value)


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


def test_where_nobody_listens_nothing_is_paid(server):
    server.close()
    with pytest.raises(PassingError) as raised:
        ask(server)
    assert raised.value.is_unpaid


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


def test_the_key_goes_to_the_named_server_only(server, other_server, monkeypatch):
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
        ConfigError, match=r"no server's address; expected one such as 'http://localhost:8000"
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
    ["86400", "inf", email.utils.formatdate(time.time() + 86400, usegmt=True)],
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
