"""Who may connect, and in which form."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection

from tests.server.harness import PATIENCE_S, Client, Daemon, until

ORIGIN = "http://localhost:3000"


@pytest.fixture(scope="module")
def keyed(text_dir: Path, folders: Callable[[], Path]) -> Iterator[Daemon]:
    """A daemon with keys and an allowed origin."""
    daemon = Daemon(
        folders(), text_dir, api_keys=("first-key", "second-kéy"), allow_origin=(ORIGIN,)
    )
    yield daemon
    assert daemon.stop()[0] == 0


def status_of(connect: Callable[[], ClientConnection]) -> tuple[int, str]:
    """The status and the body of a refusal; 101 if there is none."""
    try:
        with connect():
            return 101, ""
    except InvalidStatus as error:
        return error.response.status_code, (error.response.body or b"").decode()


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (["pagedd.v1.json"], "pagedd.v1.json"),
        (["pagedd.v1.msgpack"], "pagedd.v1.msgpack"),
        (["pagedd.v9.json", "pagedd.v1.msgpack"], "pagedd.v1.msgpack"),
        (None, None),
    ],
)
def test_the_subprotocol_is_agreed_on(
    daemon: Daemon, offered: list[Any] | None, agreed: str | None
) -> None:
    with daemon.tcp(subprotocols=offered) as connection:
        assert connection.subprotocol == agreed
        client = Client(connection, json_frames=agreed != "pagedd.v1.msgpack")
        assert client.status()["state"] == "ready"


def test_an_unknown_subprotocol_is_refused_with_the_known_ones(daemon: Daemon) -> None:
    status, body = status_of(lambda: daemon.tcp(subprotocols=["pagedd.v2.json"]))
    assert status == 400
    assert "pagedd.v1.json, pagedd.v1.msgpack" in body


@pytest.mark.parametrize(
    ("path", "status"), [("/", 101), ("/?x=1", 101), ("/x", 404), ("/v1/chat/completions", 404)]
)
def test_another_path_is_not_found(daemon: Daemon, path: str, status: int) -> None:
    assert status_of(lambda: daemon.tcp(path))[0] == status


def test_web_pages_are_refused(daemon: Daemon, keyed: Daemon) -> None:
    assert status_of(lambda: daemon.tcp(origin=ORIGIN))[0] == 403
    key = {"Authorization": "Bearer first-key"}
    assert status_of(lambda: keyed.tcp(origin=ORIGIN, additional_headers=key))[0] == 101
    assert status_of(lambda: keyed.tcp(origin="null", additional_headers=key))[0] == 403
    twice = [("Origin", ORIGIN), ("Origin", "http://evil"), *key.items()]
    assert status_of(lambda: keyed.tcp(additional_headers=twice))[0] == 403


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        ("Bearer first-key2", 401),
        ("Basic first-key", 401),
        ("Bearer first-key", 101),
        ("bearer  first-key ", 101),
    ],
)
def test_tcp_needs_the_key(keyed: Daemon, header: str | None, status: int) -> None:
    headers = None if header is None else {"Authorization": header}
    assert status_of(lambda: keyed.tcp(additional_headers=headers))[0] == status


def test_a_wrong_key_is_told_from_none(keyed: Daemon) -> None:
    none = status_of(lambda: keyed.tcp())[1]
    wrong = {"Authorization": "Bearer not-this-one"}
    other = status_of(lambda: keyed.tcp(additional_headers=wrong))[1]
    assert "is needed" in none
    assert "is not one of" in other
    assert "not-this-one" not in other


def test_the_unix_socket_needs_no_key_but_is_private(keyed: Daemon) -> None:
    path = Path(keyed.settings.socket)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert keyed.status()["state"] == "ready"


@pytest.mark.parametrize(
    "data",
    [b"\x00\xff" * 100, b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b""],
)
def test_what_is_no_websocket_hurts_nobody(daemon: Daemon, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(daemon.settings.socket)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: sock.recv(4096), b""))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert daemon.status()["state"] == "ready"


def test_sockets_are_as_promised_and_gone_afterwards(start: Callable[..., Daemon]) -> None:
    daemon = start()
    path = Path(daemon.settings.socket)
    lock = json.loads(path.with_name("d.sock.lock").read_text())
    assert lock["pid"] == daemon.process.pid
    assert lock["boot_id"] == daemon.status()["boot_id"]
    code, errors = daemon.stop()
    assert (code, "Traceback" in errors) == (0, False)
    assert list(path.parent.iterdir()) == []


def test_a_second_daemon_is_refused_in_one_line(
    start: Callable[..., Daemon], tmp_path: Path
) -> None:
    first = start()
    log = tmp_path / "starts"
    second = start(Path(first.settings.socket).parent, wait=False, engine={"log_starts": str(log)})
    assert str(first.process.pid) in second.ready_line()
    code, errors = second.end()
    assert (code, errors.count("\n")) == (1, 1)
    assert f"pid {first.process.pid}" in errors
    assert not log.exists(), "no model may be loaded"
    assert first.status()["state"] == "ready"


def test_what_a_killed_daemon_left_is_no_obstacle(start: Callable[..., Daemon]) -> None:
    first = start()
    engine = first.status()["engine_pid"]
    first.process.kill()
    first.end()
    assert Path(first.settings.socket).exists()
    again = start(Path(first.settings.socket).parent)
    assert again.status()["state"] == "ready"
    until(lambda: not Path(f"/proc/{engine}").exists(), "the orphaned engine to end")


def test_a_taken_port_is_one_line_before_any_load(
    start: Callable[..., Daemon], tmp_path: Path
) -> None:
    log = tmp_path / "starts"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = start(wait=False, listen=listen, engine={"log_starts": str(log)})
        code, errors = daemon.end()
    assert (code, errors) == (1, f"pagedd: --listen {listen}: the port is taken\n")
    assert not log.exists()
    assert list(Path(daemon.settings.socket).parent.iterdir()) == []


@pytest.mark.parametrize(
    ("listen", "says"),
    [
        ("0.0.0.0:0", "--api-key"),
        ("[::]:0", "--api-key"),
        ("127.0.0.1", "HOST:PORT"),
        ("127.0.0.1:65536", "65535"),
        ("127.0.0.1:x", "HOST:PORT"),
    ],
)
def test_addresses_that_are_not_served(
    start: Callable[..., Daemon], listen: str, says: str
) -> None:
    code, errors = start(wait=False, listen=listen).end()
    assert (code, errors.count("\n")) == (2, 1)
    assert says in errors


def test_sockets_that_cannot_be_made(
    start: Callable[..., Daemon], folders: Callable[[], Path]
) -> None:
    folder = folders()
    long = folder / ("x" * 100)
    assert "103" in start(folder, wait=False, socket=str(long)).end()[1]
    kept = folder / "kept"
    kept.write_text("mine")
    code, errors = start(folder, wait=False, socket=str(kept)).end()
    assert (code, "is not a socket" in errors, kept.read_text()) == (2, True, "mine")
    open_folder = folder / "open"
    open_folder.mkdir()
    os.chmod(open_folder, 0o755)
    code, errors = start(folder, wait=False, socket=str(open_folder / "s")).end()
    assert (code, "0700" in errors) == (2, True)
