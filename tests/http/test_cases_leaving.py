"""Clients that go away, at every moment of a request and over every edge (case B34)."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.http.edges import Served, ask
from tests.http.raw import completion, connect
from tests.real_daemon import wire
from tests.server.harness import Client, Daemon, until

SLOTS = 2
LENGTH = 3000
LONG = 200  # tokens of a prompt that takes more steps than a poll of the status
fresh = itertools.count()
PHASES = ("queue", "prefill", "first token", "mid-stream")
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: no goodbye


class Leaver:
    """One request of a client that will not wait for its end."""

    def __init__(self, edge: str, served: Served, prompt: list[int]) -> None:
        stream = edge.endswith("stream")
        self._stack: Any = None
        if edge.startswith("http"):
            self._sock = connect(served)
            data = completion(prompt=prompt, max_tokens=LENGTH, stream=stream)
            name = b"X-Request-Id: same\r\nHost: localhost\r\n"
            self._sock.sendall(data.replace(b"Host: localhost\r\n", name))
        else:
            self._stack = wire(served.socket)
            client = self._stack.__enter__()
            self._sock = client.socket.socket
            client.send(
                type="generate",
                id="same",
                prompt_tokens=prompt,
                params={"max_tokens": LENGTH},
                stream=stream,
            )

    def leave(self, how: int) -> None:
        """As a killed process does (0), at once and without goodbye (1), or only half (2)."""
        if how == 1 and self._sock.family == socket.AF_INET:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._sock.close()
            return
        self._sock.shutdown(socket.SHUT_WR if how == 2 else socket.SHUT_RDWR)
        if self._stack is not None:
            self._stack.__exit__(None, None, None)
        elif how == 0:
            self._sock.close()


@pytest.fixture(scope="module")
def slow(start_for_module: Callable[..., Daemon]) -> Daemon:
    """A few steps a poll, and chunks so small that a prefill takes many of them."""
    engine = {"step_s": 0.005, "max_num_seqs": SLOTS, "budget": 4, "max_model_len": 4096}
    return start_for_module(engine=engine | {"num_pages": 2048}, http="127.0.0.1:0")


@pytest.fixture
def watch(slow: Daemon) -> Iterator[Client]:
    """Who looks on."""
    with slow.client() as client:
        yield client


def leave_in(phase: str, edge: str, served: Served, watch: Client, how: int) -> None:
    """One request is begun and left in this phase."""
    before = watch.status()
    at = next(fresh)  # no prompt is cached
    leaver = Leaver(
        edge, served, [at % 250, at // 250] + [65] * (LONG if phase == "prefill" else 1)
    )
    wanted = {"first token": 1, "mid-stream": 8}.get(phase, 0)

    def reached() -> bool:
        now = watch.status()
        if phase == "queue":
            return bool(now["requests"]["waiting"])
        if phase == "prefill":
            return bool(now["requests"]["running"])
        return bool(now["tokens"]["generated"] >= before["tokens"]["generated"] + wanted)

    until(reached, phase)
    leaver.leave(how)


def rounds(phase: str, edge: str, slow: Daemon, watch: Client, count: int) -> None:
    served = Served.of(slow)
    process = psutil.Process(slow.process.pid)
    holders: list[Leaver] = []
    if phase == "queue":
        # these two never end by themselves: they are left at the end
        holders = [Leaver("wire-stream", served, [65]) for _ in range(SLOTS)]
        until(lambda: watch.status()["requests"]["running"] == SLOTS, "no free slot")
    before = watch.status()
    memory = 0
    for at in range(count):
        if phase == "queue" and at % 10 == 9:
            for holder in holders:
                holder.leave(0)
            until(lambda: not watch.status()["requests"]["running"], "free slots")
            holders = [Leaver("wire-stream", served, [65]) for _ in range(SLOTS)]
            until(lambda: watch.status()["requests"]["running"] == SLOTS, "no free slot")
        leave_in(phase, edge, served, watch, at % 3)
        left = SLOTS if phase == "queue" else 0
        until(
            lambda left=left: (
                (now := watch.status()["requests"])["waiting"] == 0 and now["running"] == left
            ),
            "the end of a request that nobody waits for",
        )
        if at == count // 4:
            memory = process.memory_info().rss
    assert process.memory_info().rss - memory < 8 << 20
    for holder in holders:
        holder.leave(0)
    after = slow.until_quiet()
    finished = after["requests"]["finished_total"] - before["requests"]["finished_total"]
    assert finished == 0, "a request went on to its end"
    if phase == "prefill":
        assert after["tokens"]["generated"] - before["tokens"]["generated"] < LENGTH
    assert ask(edge, served, "xyz", max_tokens=4).text == "xyzx"
    until(lambda: watch.status()["connections"] == 1, "the connections to end")


@pytest.mark.parametrize("phase", PHASES)
def test_b34_clients_that_leave(slow: Daemon, watch: Client, edge: str, phase: str) -> None:
    rounds(phase, edge, slow, watch, 9)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_b34_two_hundred_clients_that_leave(
    slow: Daemon, watch: Client, edge: str, phase: str
) -> None:
    rounds(phase, edge, slow, watch, 200)


@pytest.mark.parametrize("edge", ["http", "http-stream"])
def test_b34_one_that_waited_is_never_scheduled(slow: Daemon, watch: Client, edge: str) -> None:
    served = Served.of(slow)
    holders = [Leaver("wire-stream", served, [65]) for _ in range(SLOTS)]
    until(lambda: watch.status()["requests"]["running"] == SLOTS, "no free slot")
    prompts = watch.status()["tokens"]["prompt"]
    leave_in("queue", edge, served, watch, 0)
    until(lambda: watch.status()["requests"]["waiting"] == 0, "it to be gone")
    for holder in holders:
        holder.leave(0)
    slow.until_quiet()
    assert watch.status()["tokens"]["prompt"] == prompts


def test_b34_one_of_many_prompts_takes_all_with_it(slow: Daemon, watch: Client) -> None:
    served = Served.of(slow)
    before = watch.status()["requests"]["cancelled_total"]
    with connect(served) as sock:
        sock.sendall(completion(prompt=["abc", "de", "fgh", "i"], max_tokens=LENGTH, n=2))
        until(lambda: watch.status()["requests"]["running"], "one to run")
    after = slow.until_quiet()
    assert after["requests"]["cancelled_total"] == before + 4


def test_b34_a_pipelining_client_is_missed_too(slow: Daemon, watch: Client) -> None:
    """What waits behind a request is no reason not to see that its client has gone."""
    served = Served.of(slow)
    before = watch.status()["requests"]["finished_total"]
    for extra in (b"\r\n", completion(max_tokens=LENGTH)):
        with connect(served) as sock:
            sock.sendall(completion(max_tokens=LENGTH))
            until(lambda: watch.status()["requests"]["running"] == 1, "it to run")
            sock.sendall(extra)
            watch.status()
            sock.sendall(extra)
            watch.status()
        slow.until_quiet()
    assert watch.status()["requests"]["finished_total"] == before
