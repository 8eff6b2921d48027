"""Responses from a server with OpenAI's interface, such as ``vllm serve``.

Many requests run at once. Each is retried while the server is busy, restarting or sending malformed replies,
and given up if that persists. A refused request is the user's error. After a failure no new request is sent,
and the responses in progress still come. Nothing waits for them when the user ends the command.
"""

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from seele.endpoint import Endpoint, PassingError, Patience, Reply, exchange, read_reply
from seele.errors import ConfigError, DataError
from seele.rollout.templates import CHAT, chat_messages, check_template, render_prompt
from seele.threads import start_call
from seele_eval.generation import EngineSettings
from seele_eval.prompts import Request, Response, Responses


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server's address and the model to use there."""

    url: str
    """Base address, which usually ends in ``/v1``."""
    model: str
    concurrency: int = 64
    """Number of concurrent requests."""
    first_wait_s: float = 0.5


def complete_on_server(server: Server, requests: Sequence[Request], settings: EngineSettings) -> Responses:
    """One response per request, as the server finishes them.

    Raises:
        ConfigError: If a template is unknown, a request has a hint, or the server does not serve the model.
        DataError: If the server does not answer.
    """
    for request in requests:
        check_template(request.template)
        if request.hint_steps:
            raise ConfigError("a server completes prompts without hints only; use a model folder")
        if request.chat.open_thinking:
            raise ConfigError(
                "--open-thinking: a server begins the model's turn by itself; use a model folder, or omit "
                "it: a thinking model opens its thoughts without it"
            )
    _check_model(server)
    return _stream(server, [_payload(server, request, settings) for request in requests])


def _stream(server: Server, payloads: Sequence[dict[str, Any]]) -> Responses:
    endpoint, patience = Endpoint(url=server.url), Patience(first_wait_s=server.first_wait_s)
    left = enumerate(payloads)
    running: dict[Future[Response], int] = {}
    failure: BaseException | None = None
    try:
        while True:
            room = 0 if failure else server.concurrency - len(running)
            for index, payload in islice(left, room):
                running[start_call(partial(_complete_one, endpoint, payload, patience))] = index
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                index = running.pop(future)
                if error := future.exception():
                    failure = failure or error
                    patience.stop()  # what is in progress may still succeed, but is not retried
                else:
                    yield index, future.result()
        if failure:
            raise failure
    finally:
        patience.stop()


def _payload(server: Server, request: Request, settings: EngineSettings) -> dict[str, Any]:
    asked: dict[str, Any]
    if request.template == CHAT:
        asked = {"messages": chat_messages(request.question, request.chat)}
        if request.chat.kwargs:  # vLLM and SGLang read the key; other servers may reject it
            asked["chat_template_kwargs"] = dict(request.chat.kwargs)
    else:
        asked = {"prompt": render_prompt(request.question, request.template)}
    return asked | {
        "model": server.model,
        "max_tokens": settings.max_tokens,
        "temperature": request.temperature,
        "top_p": settings.top_p,
        "seed": request.seed,
        **_ends(request),
    }


def _ends(request: Request) -> dict[str, Any]:
    if not request.stop:
        return {}
    # A chat server marks its turns itself. One that completes our text must not leave special
    # tokens such as <|im_end|> out of the text that it searches, as vLLM and SGLang do by default.
    marks = {} if request.template == CHAT else {"skip_special_tokens": False}
    return {"stop": list(request.stop), **marks}


def _complete_one(endpoint: Endpoint, payload: dict[str, Any], patience: Patience) -> Response:
    path = "/chat/completions" if "messages" in payload else "/completions"
    return patience.insist(
        lambda: _to_response(read_reply(exchange(endpoint, path, payload), key=endpoint.key)),
        at=f"{endpoint.url}{path}",
    )


def _to_response(reply: Reply) -> Response:
    return Response(text=reply.text, num_tokens=reply.tokens_out, finish=reply.finish)


def _check_model(server: Server) -> None:
    try:
        reply = exchange(Endpoint(url=server.url), "/models")
        served = [model["id"] for model in reply["data"]]
    except (PassingError, KeyError, TypeError) as error:
        raise DataError(
            f"--server {server.url}: no list of models at {server.url}/models ({error}); "
            "is it running, and does the address end in /v1?"
        ) from error
    if server.model not in served:
        raise ConfigError(f"--model {server.model}: the server at {server.url} serves {served}; name one")
