"""A daemon that is asked at the wrong one of its doors: what commands and clients say of it."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from pagedd.cli.main import main
from pagedd.client import Client
from pagedd.config import BY_NAME
from pagedd.errors import PageddError, Unreachable
from pagedd.probe import probe, side_of
from pagedd.reach import USUAL_PORT
from pagedd.server.settings import TlsFiles
from tests.server.certificates import certificate
from tests.server.conftest import starting
from tests.server.harness import make_text_dir

Say = Callable[[str], str]


class Doors(NamedTuple):
    """HOST:PORT of the websocket and of HTTP."""

    websocket: str
    http: str


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Doors]]:
    """Those of a daemon that encrypts, of one that does not, and of one that wants a key."""
    folder = tmp_path_factory.mktemp("doors")
    text_dir = make_text_dir(folder / "tiny")
    cert, key = certificate(folder)
    wanted: dict[str, dict[str, Any]] = {
        "plain": {},
        "keyed": {"api_keys": ("k",)},
        "encrypted": {"tls": TlsFiles(str(cert), str(key))},
    }
    with (
        tempfile.TemporaryDirectory(prefix="pagedd-") as base,
        starting(text_dir, lambda: Path(tempfile.mkdtemp(dir=base))) as start,
    ):
        found = {}
        for name, options in wanted.items():
            daemon = start(http="127.0.0.1:0", **options)
            _, websocket, http = daemon.status()["endpoints"]
            found[name] = Doors(websocket.partition("://")[2], http.partition("://")[2])
        yield found


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time."""
    monkeypatch.setattr("pagedd.probe.PATIENCE_S", 30.0)


@pytest.fixture(params=["command", "client"])
def said(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Say:
    """The error of a command, or of the client with an event loop, at an address."""

    def command(url: str) -> str:
        assert main(["generate", "--url", url, "hi"]) in (1, Unreachable.exit_code)
        line = capsys.readouterr().err
        assert line.startswith("pagedd: ")
        assert line.count("\n") == 1
        return line.removeprefix("pagedd: ").rstrip("\n")

    async def connect(url: str) -> None:
        async with Client.connect(url):
            pytest.fail("this is no address of a daemon")

    def client(url: str) -> str:
        with pytest.raises(PageddError) as raised:
            anyio.run(connect, url)
        return raised.value.message

    return command if request.param == "command" else client


def test_what_is_encrypted_is_called_by_its_address(doors: dict[str, Doors], said: Say) -> None:
    place = doors["encrypted"].websocket
    assert (
        said(f"ws://{place}") == f"the daemon at ws://{place} wants encryption: try wss://{place}"
    )


@pytest.mark.parametrize("daemon", ["plain", "keyed"])
def test_what_does_not_encrypt_is_called_by_its_address(
    doors: dict[str, Doors], said: Say, daemon: str
) -> None:
    place = doors[daemon].websocket
    assert (
        said(f"wss://{place}") == f"the daemon at wss://{place} does not encrypt: try ws://{place}"
    )


@pytest.mark.parametrize(
    ("daemon", "asked", "answers"),
    [
        ("plain", "ws", "ws"),
        ("plain", "wss", "ws"),
        ("keyed", "ws", "ws"),
        ("encrypted", "ws", "wss"),
    ],
)
def test_http_is_told_from_the_websocket(
    doors: dict[str, Doors], said: Say, daemon: str, asked: str, answers: str
) -> None:
    place = doors[daemon].http
    assert said(f"{asked}://{place}") == (
        f"{asked}://{place} is the HTTP side of a daemon: commands use its websocket (--listen), "
        f"which is {answers}://127.0.0.1:{BY_NAME['listen'].default.port} unless it was told "
        "otherwise"
    )
    assert BY_NAME["listen"].default.port == USUAL_PORT


def test_a_refusal_has_its_reason(doors: dict[str, Doors], said: Say) -> None:
    url = f"ws://{doors['plain'].websocket}/chat"
    assert said(url) == f"the daemon at {url} refuses the connection (the path is /, HTTP 404)"


@pytest.mark.parametrize("daemon", ["plain", "keyed", "encrypted"])
def test_a_port_that_another_daemon_has_is_told(
    doors: dict[str, Doors],
    home: Path,
    daemon: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAGEDD_LISTEN", "127.0.0.1:0")
    for flag, place in zip(("--listen", "--http"), doors[daemon], strict=True):
        assert main(["start", flag, place, "--socket", str(home / "s")]) == 1
        said = f"pagedd: {flag} {place}: the port is taken by another daemon of pagedd; {flag} HOST"
        assert capsys.readouterr().err.startswith(said)


def test_a_stranger_is_no_side_of_a_daemon() -> None:
    assert side_of(b"HTTP/1.1 404 Not Found\r\n\r\n<html>") is None
    assert side_of(b"SSH-2.0-OpenSSH\r\n") is None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert probe(f"ws://127.0.0.1:{port}", encrypted=False) is None
    assert probe("ws://127.0.0.1:port", encrypted=True) is None
