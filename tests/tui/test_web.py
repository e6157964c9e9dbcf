"""``pagedd top --web``: nothing without the key, nothing for other hosts and pages."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from pagedd_tui.web import LOOPBACK, Gate
from tests.cli.terminal import environment, run, running

HERE = f"{LOOPBACK}:7412"
needs_textual_serve = pytest.mark.skipif(
    find_spec("textual_serve") is None, reason="textual-serve is not installed"
)


@pytest.fixture
def gate() -> Gate:
    return Gate(7412, "sesame")


def judge(gate: Gate, path: str = "/", key: str | None = None, **headers: str) -> int:
    return gate.judge(path, key, {"host": HERE, **headers})[0]


def test_the_key_opens_once_and_is_put_out_of_sight(gate: Gate) -> None:
    assert gate.url == f"http://{HERE}/?key=sesame"
    status, headers = gate.judge("/", "sesame", {"host": HERE})
    assert (status, headers["Location"]) == (302, "/")
    cookie = headers["Set-Cookie"]
    assert "sesame" not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    kept = cookie.partition(";")[0]
    for path in ("/", "/ws", "/static/x.js"):
        assert judge(gate, path, cookie=f"other=1; {kept}") == 200


def test_a_header_may_hold_the_key(gate: Gate) -> None:
    assert judge(gate, "/ws", authorization="Bearer sesame") == 200
    assert judge(gate, "/ws", authorization="bearer sesame") == 200
    assert judge(gate, "/ws", authorization="Basic sesame") == 401


@pytest.mark.parametrize("key", [None, "", "sesam", "sesame ", "ö", "\udc80"])
def test_without_the_key_nothing_passes(gate: Gate, key: str | None) -> None:
    assert judge(gate, "/", key) == 401
    assert judge(gate, "/ws", key) == 401
    assert judge(gate, "/", cookie=f"{gate.cookie}={key}") == 401
    assert judge(gate, "/", authorization=f"Bearer {key}") == 401
    assert judge(gate, "/", cookie="\x00;;=;[]") == 401


def test_the_key_counts_on_the_first_page_alone(gate: Gate) -> None:
    assert judge(gate, "/ws", "sesame") == 401


@pytest.mark.parametrize("host", ["", "evil.example:7412", "localhost:7412", f"{LOOPBACK}:80"])
def test_another_name_is_refused_even_with_the_key(gate: Gate, host: str) -> None:
    assert judge(gate, "/", "sesame", host=host, authorization="Bearer sesame") == 403


@pytest.mark.parametrize("origin", ["null", "http://evil.example", f"https://{HERE}"])
def test_pages_from_elsewhere_are_refused(gate: Gate, origin: str) -> None:
    assert judge(gate, "/ws", authorization="Bearer sesame", origin=origin) == 403
    assert judge(gate, "/ws", authorization="Bearer sesame", origin=f"http://{HERE}") == 200


@contextmanager
def served(home: Path) -> Iterator[tuple[str, int, str]]:
    """The dashboard of the simulation, served: its address without the key, its port, the key."""
    env = environment(home, PYTHONUNBUFFERED="1")
    with running("top", "--demo", "--web", "--web-port", "0", env=env) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.fullmatch(rf"open http://{LOOPBACK}:(\d+)/\?key=(\S+)\n", line)
        assert found is not None
        yield f"{LOOPBACK}:{found[1]}", int(found[1]), found[2]
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 130


def get(port: int, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=20)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


@needs_textual_serve
def test_a_browser_with_the_key_sees_the_dashboard(home: Path) -> None:
    with served(home) as (address, port, key):
        for path in ("/", "/ws", "/static/", "/download/x", "/?key=wrong"):
            assert get(port, path).status == 401
        with pytest.raises(InvalidStatus):
            connect(f"ws://{address}/ws?width=100&height=30", proxy=None)
        first = get(port, f"/?key={key}")
        assert first.status == 302
        cookie = str(first.getheader("Set-Cookie")).partition(";")[0]
        page = get(port, "/", Cookie=cookie)
        assert page.status == 200
        assert f"ws://{address}/ws" in page.read().decode()
        headers = {"Cookie": cookie, "Origin": f"http://{address}"}
        url = f"ws://{address}/ws?width=100&height=30"
        with connect(url, additional_headers=headers, proxy=None) as websocket:
            seen = b""
            while b"device pages" not in seen:
                data = websocket.recv(20)
                seen += data if isinstance(data, bytes) else b""


@needs_textual_serve
def test_a_port_that_is_taken_is_one_line(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        env = environment(home)
        done = run("top", "--demo", "--web", "--web-port", str(port), env=env)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
    assert b"--web-port 0" in done.stderr


def test_without_a_daemon_nothing_is_served(home: Path) -> None:
    done = run("top", "--web", env=environment(home, PAGEDD_URL=f"unix:{home}/none.sock"))
    assert done.returncode == 69
    assert b"pagedd start" in done.stderr


def test_without_textual_serve_one_line_says_how_to_get_it(home: Path) -> None:
    code = (
        "import sys; sys.modules['textual_serve'] = None;"
        "from pagedd.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "top", "--demo", "--web"],
        capture_output=True,
        text=True,
        env=environment(home),
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "pip install 'pagedd[web]'" in done.stderr
