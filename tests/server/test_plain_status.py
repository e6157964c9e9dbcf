"""The status by a plain GET on the Unix socket: ``pagedd status`` asks this way, curl may."""

from __future__ import annotations

import io
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from pagedd import protocol
from pagedd.cli.glance import STATUS_PATH, glance, status_of
from pagedd.cli.status_view import lines_of
from pagedd.protocol import Status
from tests.cli.terminal import environment, run
from tests.cli.test_main import imported
from tests.server.harness import Daemon, make_text_dir


@pytest.fixture
def daemon(home: Path) -> Iterator[Daemon]:
    running = Daemon(home / "d", make_text_dir(home / "text"))
    yield running
    assert running.stop()[0] == 0


def told_the_same(body: bytes, daemon: Daemon) -> None:
    """What lasts longer than a look is as the websocket says."""
    theirs = daemon.status()
    mine = json.loads(body)
    assert mine.keys() == theirs.keys()
    for name in ("boot_id", "state", "pid", "model", "pages", "requests", "endpoints"):
        assert mine[name] == theirs[name]


def test_the_status_is_the_same_as_over_the_websocket(daemon: Daemon) -> None:
    with daemon.client() as client:
        client.generate("r", prompt="a b c", params={"max_tokens": 3})
        body = glance(f"unix:{daemon.settings.socket}")
        assert body is not None
        told_the_same(body, daemon)


def test_it_reads_the_same_without_the_types(daemon: Daemon) -> None:
    assert STATUS_PATH == protocol.STATUS_PATH
    body = glance(f"unix:{daemon.settings.socket}")
    assert body is not None
    typed = msgspec.json.decode(body, type=Status)
    for status in (typed, msgspec.structs.replace(typed, reason="why", advice="do")):
        untyped = status_of(msgspec.json.encode(status))
        assert untyped is not None
        assert lines_of(untyped, io.StringIO()) == lines_of(status, io.StringIO())


def test_the_command_asks_this_way_and_answers_as_before(daemon: Daemon, home: Path) -> None:
    env = environment(home, PAGEDD_URL=f"unix:{daemon.settings.socket}")
    as_json = run("status", "--json", env=env)
    assert (as_json.returncode, as_json.stderr) == (0, b"")
    told_the_same(as_json.stdout, daemon)
    shown = run("status", env=env)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"ready  fake" in shown.stdout


def test_the_command_loads_nothing_that_takes_long(daemon: Daemon, home: Path) -> None:
    code, modules = imported(
        ["status"], environment(home, PAGEDD_URL=f"unix:{daemon.settings.socket}")
    )
    assert code == 0
    slow = {"websockets", "msgspec", "dataclasses", "inspect", "shutil", "subprocess", "ssl"}
    assert not modules & slow


def test_not_on_tcp_where_a_web_page_may_come_without_an_origin(daemon: Daemon) -> None:
    port = daemon.status()["endpoints"][1].rpartition(":")[2]
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}{STATUS_PATH}", timeout=10)
    assert refused.value.code == 404
    refused.value.close()
    assert glance(f"ws://127.0.0.1:{port}") is None


@pytest.mark.parametrize(
    "answer", [b"", b"no http", b"HTTP/1.1 404 Not Found\r\n\r\n{}", b"HTTP/1.1 200 OK\r\n\r\n"]
)
def test_any_other_answer_is_none(home: Path, answer: bytes) -> None:
    path = str(home / "odd.sock")
    assert glance(f"unix:{path}") is None
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(path)
        server.listen()
        serving = threading.Thread(target=answer_once, args=(server, answer))
        serving.start()
        assert glance(f"unix:{path}") is None
        serving.join()
    assert glance("unix:" + "x" * 200) is None


def answer_once(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(answer)


def test_what_is_no_json_is_no_status() -> None:
    assert status_of(b"{") is None
    assert status_of(b"\xff") is None
