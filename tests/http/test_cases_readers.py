"""Clients that do not read what they asked for (case B41)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from pagedd.server.http.job import SLOW_GRACE_S
from tests.http.edges import Served, ask
from tests.http.raw import closed, completion, connect
from tests.server.harness import Daemon, until

Start = Callable[..., Daemon]
SILENT, NORMAL = 20, 5
OUTBOX = 100_000
CAP = 64 << 20  # of resident memory, for all of them


@pytest.fixture
def flooded(start: Start) -> Daemon:
    engine = {"step_s": 0.0005, "max_model_len": 4096, "num_pages": 20_000, "max_num_seqs": 64}
    return start(engine=engine, outbox_bytes=OUTBOX)


def flood(served: Served, *, stream: bool = True) -> socket.socket:
    """A client that asks for much and never reads."""
    sock = connect(served, receive_buffer=2048)
    sock.sendall(completion(max_tokens=4000, logprobs=20, ignore_eos=True, stream=stream))
    return sock


def test_b41_silent_clients_are_cut_off_and_the_others_go_on(flooded: Daemon) -> None:
    """Their requests end when so much is unread, and their connections SLOW_GRACE_S later."""
    served = Served.of(flooded)
    process = psutil.Process(flooded.process.pid)
    with flooded.client() as watch, ThreadPoolExecutor(NORMAL) as pool:
        before = process.memory_info().rss
        silent = [flood(served) for _ in range(SILENT)]
        normal = [
            pool.submit(ask, ("http-stream", "wire-stream")[at % 2], served, "abc", max_tokens=300)
            for at in range(NORMAL)
        ]
        for answer in normal:
            assert answer.result().text == "abc" * 100
        until(lambda: watch.status()["requests"]["cancelled_total"] == SILENT, "the end of all")
        assert process.memory_info().rss - before < CAP
        assert SLOW_GRACE_S < 20
        until(lambda: watch.status()["connections"] == 1, "their connections to be closed")
        for sock in silent:
            assert closed(sock)
            sock.close()
    flooded.until_quiet()
    assert ask("http", served, "xyz", max_tokens=4).text == "xyzx"
    code, errors = flooded.stop()
    assert (code, "Traceback" in errors) == (0, False)


def test_b41_who_reads_in_time_learns_why(flooded: Daemon) -> None:
    served = Served.of(flooded)
    with flood(served) as sock, flooded.client() as watch:
        until(lambda: watch.status()["requests"]["cancelled_total"] == 1, "the end of it")
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            got = sock.recv(65536)
            assert got, "the connection ended before the stream"
            received += got
    assert b'"code":"slow_consumer"' in received
    assert b"data: [DONE]" in received
    flooded.until_quiet()


def test_b41_a_whole_answer_that_nobody_reads_holds_nothing_up(flooded: Daemon) -> None:
    served = Served.of(flooded)
    with flooded.client() as watch:
        silent = [flood(served, stream=False) for _ in range(3)]
        until(lambda: watch.status()["requests"]["finished_total"] == 3, "the answers")
        flooded.until_quiet()
        assert ask("http", served, "xyz", max_tokens=4).text == "xyzx"
        for sock in silent:
            sock.close()
        until(lambda: watch.status()["connections"] == 1, "the connections to end")


def test_b41_who_lags_gets_everything(flooded: Daemon) -> None:
    """As long as what is unread fits: pieces are merged, and nothing is lost."""
    served = Served.of(flooded)
    with connect(served, receive_buffer=2048) as sock, flooded.client() as watch:
        sock.sendall(completion(max_tokens=4000, ignore_eos=True, stream=True))
        until(lambda: watch.status()["requests"]["finished_total"] == 1, "the engine's end")
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += sock.recv(65536)
    text = "".join(part.partition('"')[0] for part in received.decode().split('"text":"')[1:])
    assert text == ("abc" * 1400)[:4000]


def test_b41_subscribers_that_never_read(flooded: Daemon) -> None:
    """Frames of the state are dropped for them; see also ``tests/server/test_leaving_clients``."""
    process = psutil.Process(flooded.process.pid)
    served = Served.of(flooded)
    with flooded.client(max_queue=1) as silent, flooded.client() as normal:
        silent.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.send(type="subscribe", topic="state", hz=30)
        silent.send(type="subscribe", topic="events")
        before = process.memory_info().rss
        for _ in range(5):
            normal.generate("n", prompt="abc", params={"max_tokens": 300})
        assert process.memory_info().rss - before < CAP
        assert ask("http", served, "xyz", max_tokens=4).text == "xyzx"
