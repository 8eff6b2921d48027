"""A browser, and stand-ins: a server with OpenAI's interface, and a model without weights."""

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from seele.reward import process as grading
from seele.reward.process import WorkerPool, WorkerProcess

# No test depends on the clock, or draws new examples: `pytest --hypothesis-profile=default` does.
settings.register_profile("default", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)

MODEL = "stand-in"

_spec = importlib.util.spec_from_file_location(
    "chromium", Path(__file__).parents[2] / "benchmarks" / "chromium.py"
)
chromium = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(chromium)


def pytest_configure(config):
    settings.load_profile(config.getoption("--hypothesis-profile") or "repeatable")


def boxed_digit(prompt: str, seed: int) -> str:
    """An answer determined by prompt and seed."""
    return f"\\boxed{{{hashlib.sha256(f'{prompt}{seed}'.encode()).digest()[0] % 5}}}"


@pytest.fixture(autouse=True)
def no_waiting_for_the_hub(monkeypatch):
    """Retry an unreachable hub without waiting."""
    monkeypatch.setattr("seele.data.storage.hub.RETRY_DELAYS_S", (0.0, 0.0))


@pytest.fixture(scope="session")
def idle_graders():
    """Grading processes that their tests no longer need, each with its last batch, by how they start."""
    idle = defaultdict(list)
    yield idle
    for process, _ in (each for found in idle.values() for each in found):
        process.end()


@pytest.fixture(autouse=True)
def graders_go_on(monkeypatch, request, idle_graders):
    """Hand a grading process on to the next test, because each imports sympy, which takes a second; except to
    tests of these processes themselves.
    """
    if request.path.name == "test_grader.py":
        return

    def start_of(worker):
        inherited = (os.environ.get(name) for name in grading._INHERITED)
        return worker._command, grading.NO_NETWORK, *inherited

    def start(worker):
        while worker._environment is None and (found := idle_graders[start_of(worker)]):
            process, worker._batch = found.pop()
            if not process.is_dead:
                return process
        return start_new(worker)

    def close(pool):
        for _ in range(pool._num_workers):
            worker = pool._idle.get()
            if worker._environment is None and worker._process is not None:
                idle_graders[start_of(worker)].append((worker._process, worker._batch))
                worker._process = None
            pool._idle.put(worker)
        end(pool)

    start_new, end = WorkerProcess._start, WorkerPool.close
    monkeypatch.setattr(WorkerProcess, "_start", start)
    monkeypatch.setattr(WorkerPool, "close", close)


@pytest.fixture
def browser():
    """Command of a browser without a window and without requests of its own."""
    command = chromium.find_browser()
    if command is None:
        pytest.skip("needs a browser: chromium or google-chrome")
    return command


@pytest.fixture
def open_tab(browser):
    """Opens a page in a new browser, with this profile's folder."""
    pytest.importorskip("websockets")
    return partial(chromium.Tab, browser)


@pytest.fixture
def visit(browser, tmp_path):
    """Shows a page; returns its elements once scripts have run, and the log of what it asked for."""

    def visit(address):
        log = tmp_path / "net.json"
        command = [*browser, f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}"]
        command += ["--virtual-time-budget=5000", "--dump-dom", address]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
        return shown, log.read_text()

    return visit


class HubDouble(ModuleType):
    """A double of the ``datasets`` library: serves ``rows``, or fails as it does without a network."""

    def __init__(self, rows):
        super().__init__("datasets")
        self.rows = rows
        self.calls = []

    def load_dataset(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        if self.rows is None:
            raise ConnectionError("Couldn't reach the hub")
        return self.rows


@pytest.fixture
def serve_rows(monkeypatch):
    """Make the hub serve these rows, or be unreachable with ``None``; return its double."""

    def serve(rows):
        hub = HubDouble(rows)
        monkeypatch.setitem(sys.modules, "datasets", hub)
        return hub

    return serve


class StandInServer:
    """A server that answers at once, or misbehaves as told, and records its requests."""

    def __init__(self, answer: Callable[[str, int], str | dict] = boxed_digit) -> None:
        self.answer = answer
        """Returns a text, or a whole choice, for a prompt and seed."""
        self.delay_s = 0.0
        self.drip_s = 0.0
        """Seconds between two bytes of a reply."""
        self.asked: list[dict] = []
        self.headers: list[dict] = []
        self.failures: list[tuple] = []
        """Status, body and optional headers of the next replies; empty for honest ones."""
        self.misbehave: Callable[[int], tuple | None] = lambda number: None
        """The same for a request by its number, counted from 1."""
        self.hold_after: float = float("inf")
        """Number of honest replies that it gives; it holds further ones until it is closed."""
        self.honest = 0
        """Honest replies that were given, are in progress, or are held."""
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._http.shutdown()
        self._http.server_close()

    def reply(self, path: str, asked: dict) -> tuple:
        with self._lock:
            self.asked.append({"path": path, **asked})
            number = len(self.asked)
            if failure := self.failures.pop(0) if self.failures else self.misbehave(number):
                return failure
            self.honest += 1
            held = self.honest > self.hold_after
        if held:
            self._closed.wait()
        is_chat = path.endswith("/chat/completions")
        prompt = asked["messages"][0]["content"] if is_chat else asked["prompt"]
        said = self.answer(prompt, asked.get("seed"))
        time.sleep(self.delay_s)
        choice = (
            said if isinstance(said, dict) else {"message": {"content": said}} if is_chat else {"text": said}
        )
        text = choice["message"]["content"] or "" if "message" in choice else choice["text"]
        finish = "stop" if len(text) <= asked["max_tokens"] else "length"
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(text)}
        choices = [{"finish_reason": finish, **choice}]
        return 200, json.dumps({"model": f"{asked['model']}-0", "choices": choices, "usage": usage})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.headers.append(dict(self.headers))
                self._send(200, json.dumps({"data": [{"id": MODEL}]}))

            def do_POST(self) -> None:
                server.headers.append(dict(self.headers))
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(*server.reply(self.path, asked))

            def _send(self, status: int, body: str, headers: dict | None = None) -> None:
                # The client may be dead by now.
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    for name, value in ({"Content-Length": len(body.encode())} | (headers or {})).items():
                        self.send_header(name, str(value))
                    self.end_headers()
                    size = 1 if server.drip_s else max(1, len(body.encode()))
                    for start in range(0, len(body.encode()), size):
                        self.wfile.write(body.encode()[start : start + size])
                        time.sleep(server.drip_s)

            def log_message(self, *_) -> None: ...

        return Handler


@pytest.fixture
def new_server():
    """Starts a server, which has no requests of a process that was killed before."""
    with contextlib.ExitStack() as servers:
        yield lambda: servers.enter_context(contextlib.closing(StandInServer()))


@pytest.fixture
def server(new_server):
    return new_server()


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


@pytest.fixture
def model(tmp_path):
    """A folder that looks like a model, for evaluations whose engine is a double."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder
