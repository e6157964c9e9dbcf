"""Hub models: complete snapshots only, and errors that say what to do."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pagedd.errors import ModelError, ModelNotFound, PageddError
from pagedd.models.pull import pull
from pagedd.models.pull_hub import HubClient
from pagedd.models.resolve import resolve

REPO = "owner/name"
FILES = {"config.json": b"{}", "model.safetensors": b"x" * 3000, "tokenizer.json": b"{}"}


@pytest.fixture(autouse=True)
def no_foreign_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "foreign"))


class FakeHub(HubClient):
    """Has one model; ``fails`` is raised by the download after the first file."""

    def __init__(self, files: dict[str, bytes], fails: Exception | None = None) -> None:
        super().__init__()
        self.files = files
        self.fails = fails
        self.downloads = 0

    def size(self, repo: str) -> int:
        return sum(map(len, self.files.values()))

    def download(self, repo: str, cache: Path) -> Path:
        self.downloads += 1
        model = cache / f"models--{repo.replace('/', '--')}"
        snapshot = model / "snapshots" / "c0ffee"
        for folder in (snapshot, model / "blobs", model / "refs"):
            folder.mkdir(parents=True, exist_ok=True)
        (model / "refs" / "main").write_text("c0ffee")
        for name, content in self.files.items():
            (model / "blobs" / name).write_bytes(content)
            (snapshot / name).write_bytes(content)
            if self.fails is not None:
                raise self.fails
        return snapshot


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []

    def __call__(self, share: float, text: str) -> None:
        self.lines.append((share, text))


def test_a_model_is_fetched_once_and_then_resolves(tmp_path: Path) -> None:
    hub, told = FakeHub(FILES), Told()
    folder = pull(REPO, told, cache=tmp_path, hub=hub)
    assert resolve(REPO, cache=tmp_path).path == folder
    assert pull(REPO, told, cache=tmp_path, hub=hub) == folder
    assert hub.downloads == 1
    assert told.lines[-1] == (1.0, f"{REPO} is there already")
    assert all(0 <= share <= 1 for share, _ in told.lines)


def test_an_interrupted_download_is_incomplete_until_pulled_again(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no connection to the hub"):
        pull(REPO, Told(), cache=tmp_path, hub=FakeHub(FILES, ConnectionError("cut off")))
    with pytest.raises(ModelNotFound, match=rf"{REPO} is not complete .*run pagedd pull {REPO}"):
        resolve(REPO, cache=tmp_path)
    assert pull(REPO, Told(), cache=tmp_path, hub=FakeHub(FILES)).is_dir()


@pytest.mark.parametrize(
    ("fails", "kind", "message"),
    [
        (ConnectionError("refused"), ModelNotFound, r"no connection to the hub \(refused\)"),
        (TimeoutError(), ModelNotFound, "no connection to the hub"),
        (OSError(errno.ENOSPC, "No space left on device"), ModelError, "No space left on device"),
        (RuntimeError("odd\x1b[2J\nthing"), ModelError, r"RuntimeError: odd\[2J$"),
    ],
)
def test_failures_are_one_line(
    tmp_path: Path, fails: Exception, kind: type[PageddError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        pull(REPO, Told(), cache=tmp_path, hub=FakeHub(FILES, fails))
    assert caught.value.message.isprintable()


def test_a_repository_without_safetensors(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is no model that can be served: .*no \.safetensors"):
        pull(REPO, Told(), cache=tmp_path, hub=FakeHub({"config.json": b"{}"}))


class _Hub(BaseHTTPRequestHandler):
    """Answers each repository by its name: ``owner/gated`` with 403, ``owner/busy`` with 503, …"""

    def do_GET(self) -> None:
        answers = {"gated": (403, "GatedRepo"), "busy": (503, ""), "missing": (404, "RepoNotFound")}
        name = self.path.split("?")[0].split("/")[-1]
        if name not in answers:
            self.reply(200, "", json.dumps({"id": REPO, "siblings": SIBLINGS}).encode())
        else:
            self.reply(*answers[name], b"{}")

    def reply(self, status: int, code: str, body: bytes) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test reports what matters."""


SIBLINGS = [
    {"rfilename": "config.json", "size": 10},
    {"rfilename": "model.safetensors", "size": 1000},
    {"rfilename": "pytorch_model.bin", "size": 5000},
    {"rfilename": "original/consolidated.safetensors", "size": 7000},
]


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_size_counts_only_what_is_fetched(endpoint: str) -> None:
    assert HubClient(endpoint).size(REPO) == 1010


@pytest.mark.parametrize(
    ("repo", "message"),
    [
        ("owner/gated", "is gated: accept its terms"),
        ("owner/missing", "the hub has no model owner/missing, or it is private"),
        ("owner/busy", "the hub answered.*503"),
    ],
)
def test_refusals_of_the_hub(tmp_path: Path, endpoint: str, repo: str, message: str) -> None:
    with pytest.raises(ModelNotFound, match=message) as caught:
        pull(repo, Told(), cache=tmp_path, hub=HubClient(endpoint))
    assert caught.value.message.isprintable()


def test_no_connection(tmp_path: Path, endpoint: str) -> None:
    unused = HTTPServer(("127.0.0.1", 0), _Hub)
    port = unused.server_port
    unused.server_close()
    with pytest.raises(ModelNotFound, match="no connection to the hub"):
        pull(REPO, Told(), cache=tmp_path, hub=HubClient(f"http://127.0.0.1:{port}"))
