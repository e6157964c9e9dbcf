"""Ending a daemon with HTTP clients, at every moment (case B42)."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.http.edges import HTTP_EDGES, Answer, Served, ask, health
from tests.http.raw import closed, completion, connect, exchange, head, response
from tests.server.harness import Daemon, Gate, alive, until

Start = Callable[..., Daemon]
BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
ENDLESS = {"engine": {"step_s": 0.02, "max_model_len": 100_000, "num_pages": 50_000}}


def ended(daemon: Daemon, served: Served, engine: int, code: int = 0) -> None:
    """It exits by itself; no process, port or file is left, and nothing went wrong."""
    result, errors = daemon.end()
    assert (result, "Traceback" in errors) == (code, False), errors
    assert not alive(engine)
    assert list(Path(daemon.settings.socket).parent.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        connect(served).close()


def again(start: Start, daemon: Daemon, served: Served) -> None:
    """Another one can be started at once in the same place."""
    folder = Path(daemon.settings.socket).parent
    other = start(folder, http=served.http.removeprefix("http://"))
    assert Served.of(other) == served
    assert ask("http", served, "ok", max_tokens=4).text == "okok"
    assert other.stop()[0] == 0


@BOTH
def test_b42_while_it_loads(start: Start, gate: Gate, number: int) -> None:
    daemon = start(wait=False, engine={"load_gate": gate.path})
    daemon.until_it_listens()
    served = Served.of(daemon)
    assert health(served)[0] == 503
    engine = until(lambda: daemon.status()["engine_pid"], "an engine")
    with connect(served) as kept:
        kept.sendall(head("GET", "/health"))
        assert response(kept, "GET").status == 503
        daemon.signal(number)
        assert closed(kept)
    ended(daemon, served, engine)
    again(start, daemon, served)


@BOTH
def test_b42_while_nothing_happens(start: Start, number: int) -> None:
    daemon = start()
    served, engine = Served.of(daemon), daemon.status()["engine_pid"]
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(served)) for _ in range(3)]
        silent[1].sendall(b"GET /health HTT")
        silent[2].sendall(completion()[:-3])
        daemon.status()
        daemon.signal(number)
        assert all(map(closed, silent))
    ended(daemon, served, engine)
    again(start, daemon, served)


@pytest.mark.parametrize(
    ("edge", "number"),
    [
        ("http", signal.SIGTERM),
        ("http-stream", signal.SIGINT),
        ("wire", signal.SIGINT),
        ("wire-stream", signal.SIGTERM),
    ],
)
def test_b42_what_ends_in_time_is_answered(start: Start, edge: str, number: int) -> None:
    daemon = start(engine={"step_s": 0.01})
    served, engine = Served.of(daemon), daemon.status()["engine_pid"]
    with ThreadPoolExecutor(3) as pool, daemon.client() as watch:
        runs = [pool.submit(ask, edge, served, "abc", max_tokens=150) for _ in range(3)]
        until(lambda: watch.status()["requests"]["running"] == 3, "them to run")
        daemon.signal(number)
        until(lambda: watch.status()["state"] == "draining", "the drain")
        code, said = health(served)
        assert (code, said["status"]) == (503, "draining")
        refused = exchange(served, completion())
        assert (refused.status, refused.error["code"]) == (503, "shutting_down")
        assert [each.result().text for each in runs] == ["abc" * 50] * 3
    ended(daemon, served, engine)


@pytest.mark.parametrize("edge", HTTP_EDGES)
def test_b42_what_does_not_end_in_time_is_told(start: Start, edge: str) -> None:
    daemon = start(drain_timeout=0.5, **ENDLESS)
    served, engine = Served.of(daemon), daemon.status()["engine_pid"]
    with ThreadPoolExecutor(5) as pool, daemon.client() as watch:
        runs = [pool.submit(ask, edge, served, "abc", max_tokens=10**5 - 9) for _ in range(3)]
        until(lambda: watch.status()["tokens"]["generated"] > 9, "tokens")
        daemon.signal(signal.SIGTERM)
        for answer in [each.result() for each in runs]:
            assert (answer.status, answer.code) == (503, "shutting_down"), answer
    ended(daemon, served, engine)
    again(start, daemon, served)


def test_b42_a_second_interrupt_ends_it_at_once(start: Start, edge: str) -> None:
    daemon = start(drain_timeout=1000.0, **ENDLESS)
    served, engine = Served.of(daemon), daemon.status()["engine_pid"]
    with ThreadPoolExecutor(3) as pool, daemon.client() as watch:
        run = pool.submit(ask, edge, served, "abc", max_tokens=10**5 - 9)
        until(lambda: watch.status()["tokens"]["generated"], "tokens")
        daemon.signal(signal.SIGINT)
        until(lambda: watch.status()["state"] == "draining", "the drain")
        daemon.signal(signal.SIGINT)
        answer: Answer = run.result()
        assert (answer.status, answer.code) == (503, "shutting_down")
    ended(daemon, served, engine, code=130)


@BOTH
def test_b42_a_client_that_does_not_read(start: Start, number: int) -> None:
    engine_options = {"step_s": 0.0005, "max_model_len": 4096, "num_pages": 4096}
    daemon = start(engine=engine_options, drain_timeout=0.5)
    served, engine = Served.of(daemon), daemon.status()["engine_pid"]
    with ExitStack() as stack:
        for stream in (True, True, False):
            silent = stack.enter_context(connect(served, receive_buffer=2048))
            silent.sendall(completion(max_tokens=4000, logprobs=20, stream=stream))
        until(lambda: daemon.status()["tokens"]["generated"] > 1000, "much to read")
        daemon.signal(number)
        ended(daemon, served, engine)


def test_b42_a_killed_daemon_leaves_no_engine_and_no_port(start: Start) -> None:
    daemon = start(engine={"step_s": 0.02})
    served, engine = Served.of(daemon), daemon.status()["engine_pid"]
    with connect(served) as stream:
        stream.sendall(completion(max_tokens=200, stream=True))
        assert stream.recv(10)
        daemon.process.kill()
        daemon.end()
        assert closed(stream)
    until(lambda: not alive(engine), "the engine's end")
    with socket.socket() as sock, pytest.raises(ConnectionRefusedError):
        sock.connect(("127.0.0.1", int(served.http.rpartition(":")[2])))
    again(start, daemon, served)
