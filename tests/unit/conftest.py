"""Stand-ins of the evaluation's tests: a server that speaks OpenAI's interface, a model without weights."""

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

MODEL = "stand-in"


def boxed_digit(prompt: str, seed: int) -> str:
    """Some answer that prompt and seed decide."""
    return f"\\boxed{{{hashlib.sha256(f'{prompt}{seed}'.encode()).digest()[0] % 5}}}"


class StandInServer:
    """Answers at once, or misbehaves as told, and remembers what it was asked."""

    def __init__(self, answer: Callable[[str, int], str] = boxed_digit) -> None:
        self.answer = answer
        self.delay_s = 0.0
        self.asked: list[dict] = []
        self.headers: list[dict] = []
        self.failures: list[tuple[int, str]] = []
        """Status and body of the next replies; empty for honest ones."""
        self.hold_after: float = float("inf")
        """Replies nothing to requests beyond so many, until it is closed."""
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._http.shutdown()
        self._http.server_close()

    def reply(self, path: str, asked: dict) -> tuple[int, str]:
        with self._lock:
            self.asked.append({"path": path, **asked})
            number = len(self.asked)
            if self.failures:
                return self.failures.pop(0)
        if number > self.hold_after:
            self._closed.wait()
        is_chat = path.endswith("/chat/completions")
        text = self.answer(asked["messages"][0]["content"] if is_chat else asked["prompt"], asked["seed"])
        time.sleep(self.delay_s)
        choice = {"message": {"content": text}} if is_chat else {"text": text}
        choice["finish_reason"] = "stop" if len(text) <= asked["max_tokens"] else "length"
        return 200, json.dumps({"choices": [choice], "usage": {"completion_tokens": len(text)}})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, json.dumps({"data": [{"id": MODEL}]}))

            def do_POST(self) -> None:
                server.headers.append(dict(self.headers))
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(*server.reply(self.path, asked))

            def _send(self, status: int, body: str) -> None:
                # Who asked may be dead by now.
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body.encode())))
                    self.end_headers()
                    self.wfile.write(body.encode())

            def log_message(self, *_) -> None: ...

        return Handler


@pytest.fixture
def server():
    stand_in = StandInServer()
    yield stand_in
    stand_in.close()


CONTEXT_TOKENS = 32


@pytest.fixture(scope="session")
def bytes_model(tmp_path_factory):
    """Configuration and byte-level tokenizer of a model without weights and with a context of 32 tokens."""
    transformers = pytest.importorskip("transformers")
    from tokenizers.pre_tokenizers import ByteLevel

    folder = tmp_path_factory.mktemp("model")
    vocabulary = {symbol: index for index, symbol in enumerate([*sorted(ByteLevel.alphabet()), "<end>"])}
    tokenizer = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=[], unk_token="<end>", eos_token="<end>")
    tokenizer.save_pretrained(folder)
    transformers.Qwen2Config(max_position_embeddings=CONTEXT_TOKENS).save_pretrained(folder)
    return folder
