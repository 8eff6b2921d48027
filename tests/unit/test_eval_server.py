"""Completions over HTTP: honest replies, busy and broken servers, refusals."""

import json
import os

import pytest

from seele.errors import ConfigError, DataError
from seele.records import Finish
from seele_eval.generation import EngineSettings
from seele_eval.prompts import Request
from seele_eval.server import Server, complete_on_server

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
    assert complete(server, template="chat")[0].text == "0?"
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
        pytest.param((200, json.dumps({"choices": [{"text": "x"}]})), id="half a completion"),
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


def test_a_refusal_is_the_users_at_once(server):
    server.failures = [(400, "max_tokens is too large")]
    with pytest.raises(ConfigError, match="refused with status 400: max_tokens is too large"):
        complete(server)
    assert len(server.asked) == 1


def test_an_unknown_model_is_named_with_those_that_are_served(server):
    with pytest.raises(ConfigError, match=r"serves \['stand-in'\]"):
        complete(server, model="other")
    assert server.asked == []


@pytest.mark.parametrize(
    ("url", "error", "complaint"),
    [("http://127.0.0.1:9/v1", DataError, "is it running"), ("nonsense", ConfigError, "no server's address")],
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
