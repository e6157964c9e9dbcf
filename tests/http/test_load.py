"""Many connections: idle ones are small, busy ones all get their answers, and nothing is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pagedd.models.catalog import DEFAULT_MODEL
from tests.http.edges import Served
from tests.http.load import (
    AnyClient,
    HttpClient,
    Reply,
    WireClient,
    descriptors,
    open_all,
    resident,
)
from tests.real_daemon import daemon, quiet, wire
from tests.server.harness import Daemon, Frame, until

Start = Callable[..., Daemon]
KINDS: tuple[type[WireClient] | type[HttpClient], ...] = (WireClient, HttpClient)
IDLE_LIMIT = 100_000  # bytes of the daemon's memory for a connection


class Load(NamedTuple):
    """So many requests of so many tokens; a step of the fake engine takes ``step_s``.

    ``ended``: as many may have ended before the last one comes.
    """

    running: int
    queued: int
    tokens: int
    step_s: float = 0.05
    ended: int = 0


def status_of(served: Served) -> Frame:
    with wire(served.socket) as client:
        return client.status()


def all_open(served: Served, count: int) -> None:
    until(lambda: status_of(served)["connections"] >= count, f"{count} connections")


def all_gone(pid: int, files: int) -> None:
    until(lambda: descriptors(pid) <= files, "the end of all connections")


async def flood(served: Served, load: Load) -> list[Reply]:
    """So many requests at once, each on a connection of its own, half of them by either edge."""
    count = load.running + load.queued
    clients: list[AnyClient] = [KINDS[at % 2](served) for at in range(count)]
    await open_all(clients)
    await asyncio.to_thread(all_open, served, count)
    params = {"max_tokens": load.tokens, "ignore_eos": True, "temperature": 0}
    await asyncio.gather(*(each.send(f"<{at}>", **params) for at, each in enumerate(clients)))
    await asyncio.to_thread(all_busy, served, load)
    replies = await asyncio.gather(*(each.reply() for each in clients))
    await asyncio.gather(*(each.close() for each in clients))
    return replies


def all_busy(served: Served, load: Load) -> None:
    """Wait until as many run and wait as should; the first to run do so for long enough."""
    with wire(served.socket) as client:

        def busy() -> bool:
            requests = client.status()["requests"]
            full = requests["waiting"] >= load.queued - load.ended
            return full and requests["running"] == load.running

        until(busy, f"{load.running} running and {load.queued} waiting")
        print(f"the daemon has {resident(client.status()['pid']) / 1e6:.0f} MB meanwhile")


def check_flood(served: Served, load: Load) -> list[Reply]:
    """All end well, and leave nothing behind. The first engine of the daemon has done nothing."""
    asyncio.run(flood(served, Load(2, 0, 20)))  # what is made once is made
    with wire(served.socket) as client:
        pid = quiet(client)["pid"]
        files = descriptors(pid)
        replies = asyncio.run(flood(served, load))
        assert [reply.code for reply in replies] == [None] * len(replies)
        assert [reply.reason for reply in replies] == ["length"] * len(replies)
        requests = quiet(client)["requests"]
        assert requests["finished_total"] == len(replies) + 2
        assert requests["failed_total"] == requests["cancelled_total"] == 0
        all_gone(pid, files)
    return replies


def check_echoes(start: Start, load: Load) -> None:
    """The fake engine says the prompt again and again."""
    daemon = start(
        engine={
            "max_num_seqs": load.running,
            "num_pages": load.running * (load.tokens + 16) // 8,
            "budget": max(64, load.running * 2),
            "step_s": load.step_s,
        },
        config={"max_queue": load.running + load.queued},  # for a moment all may wait
    )
    for at, reply in enumerate(check_flood(Served.of(daemon), load)):
        assert reply.text == (f"<{at}>" * load.tokens)[: load.tokens]
    assert daemon.stop()[0] == 0


def check_idle(start: Start, kind: type[WireClient] | type[HttpClient], count: int) -> float:
    """Bytes of memory for each of so many connections that nobody uses."""
    daemon = start()
    served = Served.of(daemon)

    async def idle(count: int) -> int:
        clients: list[AnyClient] = [kind(served) for _ in range(count)]
        before = resident(daemon.process.pid)
        await open_all(clients)
        await asyncio.to_thread(all_open, served, count)
        grown = resident(daemon.process.pid) - before
        await asyncio.gather(*(each.close() for each in clients))
        return grown

    asyncio.run(idle(10))
    files = descriptors(daemon.process.pid)
    grown = asyncio.run(idle(count))
    daemon.until_quiet()
    all_gone(daemon.process.pid, files)
    assert daemon.stop()[0] == 0
    return grown / count


@pytest.mark.parametrize("kind", KINDS)
def test_idle_connections_take_little_memory(
    start: Start, kind: type[WireClient] | type[HttpClient]
) -> None:
    assert check_idle(start, kind, count=200) < IDLE_LIMIT


def test_all_get_their_answers(start: Start) -> None:
    check_echoes(start, Load(running=20, queued=40, tokens=16))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_1000_idle_connections_take_little_memory(
    start: Start, kind: type[WireClient] | type[HttpClient]
) -> None:
    each = check_idle(start, kind, count=1000)
    print(f"{kind.__name__}: {each / 1000:.1f} kB for each of 1000 idle connections")
    assert each < IDLE_LIMIT


@pytest.mark.slow
def test_1000_connections_with_200_requests_running_and_800_queued(start: Start) -> None:
    check_echoes(start, Load(running=200, queued=800, tokens=120))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_1000_connections_and_a_model(folders: Callable[[], Path]) -> None:
    load = Load(running=200, queued=800, tokens=24, ended=150)
    flags = (f"--max-num-seqs={load.running}", "--max-queue=1000", "--http=127.0.0.1:0")
    with daemon(folders(), DEFAULT_MODEL, *flags) as socket:
        began = time.monotonic()
        check_flood(Served.at(socket), load)
        print(f"1000 requests of {load.tokens} tokens in {time.monotonic() - began:.0f} s")
