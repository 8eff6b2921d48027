"""Responses from a server that speaks OpenAI's interface, such as ``vllm serve``.

Many requests are under way at once; each is tried again while the server is busy, restarting or talking
nonsense, and given up only when that goes on. A request that the server refuses is an error of the user.
"""

import http.client
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from seele.errors import ConfigError, DataError
from seele.records import Finish
from seele.rollout.templates import CHAT, check_template, render_prompt
from seele_eval.generation import EngineSettings
from seele_eval.prompts import Request, Response, Responses

API_KEY = "OPENAI_API_KEY"
"""Environment variable with the server's key, where it wants one."""

# 0.5, 1, 2, ... seconds, at most 30 each: about three minutes for a server to come back.
_ATTEMPTS = 11
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_TOO_MANY_REQUESTS = 429
_REQUEST_TIMEOUT_S = 3600.0


class _PassingError(Exception):
    """What may be over at the next attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where to ask, and for which model."""

    url: str
    """Ends in ``/v1`` as a rule."""
    model: str
    concurrency: int = 64
    """Requests under way at the same time."""
    first_wait_s: float = _FIRST_WAIT_S


def complete_on_server(server: Server, requests: Sequence[Request], settings: EngineSettings) -> Responses:
    """One response per request, as the server finishes them.

    Raises:
        ConfigError: If a template is unknown, a request has a hint, or the server serves no such model.
        DataError: If the server does not answer.
    """
    for request in requests:
        check_template(request.template)
        if request.hint:
            raise ConfigError("a server completes prompts without hints only; use a model folder")
    _check_model(server)
    return _stream(server, [_payload(server, request, settings) for request in requests])


def _stream(server: Server, payloads: Sequence[dict[str, Any]]) -> Responses:
    stop = threading.Event()
    with ThreadPoolExecutor(server.concurrency) as threads:
        pending = {
            threads.submit(_complete_one, server, payload, stop): index
            for index, payload in enumerate(payloads)
        }
        try:
            for future in as_completed(pending):
                yield pending.pop(future), future.result()
        finally:
            stop.set()
            threads.shutdown(wait=False, cancel_futures=True)


def _payload(server: Server, request: Request, settings: EngineSettings) -> dict[str, Any]:
    asked: dict[str, Any] = (
        {"messages": [{"role": "user", "content": request.question}]}
        if request.template == CHAT
        else {"prompt": render_prompt(request.question, request.template)}
    )
    return asked | {
        "model": server.model,
        "max_tokens": settings.max_tokens,
        "temperature": request.temperature,
        "top_p": settings.top_p,
        "seed": request.seed,
    }


def _complete_one(server: Server, payload: dict[str, Any], stop: threading.Event) -> Response:
    path = "/chat/completions" if "messages" in payload else "/completions"
    wait_s = server.first_wait_s
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _to_response(_exchange(server, path, payload))
        except _PassingError as error:
            if attempt == _ATTEMPTS or stop.wait(wait_s):
                raise DataError(f"{server.url}{path}: gave up after {attempt} attempts: {error}") from error
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
    raise AssertionError("the last attempt returns or raises")


def _to_response(reply: Any) -> Response:
    try:
        choice = reply["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        return Response(
            text=text or "",
            num_tokens=int(reply["usage"]["completion_tokens"]),
            finish={"stop": Finish.STOP, "length": Finish.LENGTH}.get(choice["finish_reason"], Finish.ERROR),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _PassingError(f"not a completion: {str(reply)[:200]}") from error


def _check_model(server: Server) -> None:
    try:
        reply = _exchange(server, "/models", None)
        served = [model["id"] for model in reply["data"]]
    except (_PassingError, KeyError, TypeError) as error:
        raise DataError(
            f"--server {server.url}: no list of models at {server.url}/models ({error}); "
            "is it running, and does the address end in /v1?"
        ) from error
    if server.model not in served:
        raise ConfigError(f"--model {server.model}: the server at {server.url} serves {served}; name one")


def _exchange(server: Server, path: str, payload: dict[str, Any] | None) -> Any:
    """The reply to a POST of ``payload``, or to a GET where there is none."""
    headers = {"Content-Type": "application/json"}
    if API_KEY in os.environ:
        headers["Authorization"] = f"Bearer {os.environ[API_KEY]}"
    body = None if payload is None else json.dumps(payload).encode()
    try:
        call = urllib.request.Request(server.url.rstrip("/") + path, data=body, headers=headers)
        with urllib.request.urlopen(call, timeout=_REQUEST_TIMEOUT_S) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")[:500]
        if error.code < 500 and error.code != _TOO_MANY_REQUESTS:
            raise ConfigError(f"{server.url}{path}: refused with status {error.code}: {said}") from error
        raise _PassingError(f"status {error.code}: {said}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _PassingError(str(error) or type(error).__name__) from error
