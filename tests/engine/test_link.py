"""The link: framing, end of file, and both sides writing at once."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import anyio
import msgspec
import pytest

from pagedd.core.events import StepEvents, Token
from pagedd.core.request import Request, SamplingParams
from pagedd.engine.link import DaemonLink, EngineLink, LinkClosed
from pagedd.engine.messages import (
    CancelRequest,
    EndChoice,
    EngineConfig,
    Loading,
    Report,
    Step,
    Submit,
)
from tests.engine.parts import NO_STATS

Pair = tuple[socket.socket, EngineLink]


@pytest.fixture
def pair() -> Iterator[Pair]:
    daemon, engine = socket.socketpair()
    with daemon, engine:
        yield daemon, EngineLink(engine)


def frame(message: object) -> bytes:
    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


def test_the_configuration_comes_first(pair: Pair) -> None:
    daemon, link = pair
    config = EngineConfig(model="m", max_num_seqs=3)
    daemon.sendall(frame(config) + frame([CancelRequest(1)]))
    assert link.config() == config
    assert link.drain(block=False) == [CancelRequest(1)]


def test_no_configuration_is_a_closed_link(pair: Pair) -> None:
    daemon, link = pair
    daemon.sendall(frame(EngineConfig(model="m"))[:-1])
    daemon.close()
    with pytest.raises(LinkClosed):
        link.config()


def test_drain_takes_all_whole_frames_and_keeps_the_rest(pair: Pair) -> None:
    daemon, link = pair
    assert link.drain(block=False) == []
    request = Request(7, (1, 2), SamplingParams(max_tokens=3, logit_bias={5: -1.5}), 1, b"salt")
    data = frame([Submit(request), EndChoice(7, 1)]) + frame([CancelRequest(7)])
    for at in range(0, 30, 3):
        daemon.sendall(data[at : at + 3])
        assert link.drain(block=False) == []
    daemon.sendall(data[30:-1])
    assert link.drain(block=True) == [Submit(request), EndChoice(7, 1)]
    assert link.drain(block=False) == []
    daemon.sendall(data[-1:])
    assert link.drain(block=True) == [CancelRequest(7)]


def test_end_of_file_ends_a_blocking_drain(pair: Pair) -> None:
    daemon, link = pair
    daemon.sendall(frame([CancelRequest(1)]))
    daemon.close()
    assert link.drain(block=True) == [CancelRequest(1)]
    assert link.drain(block=True) == []
    assert link.closed


def test_sending_to_nobody_closes_the_link_quietly(pair: Pair) -> None:
    daemon, link = pair
    daemon.close()
    link.send(Loading("weights", 0.5))
    assert link.closed


def big_step() -> Step:
    events = StepEvents(tokens=[Token(at, 0, at) for at in range(5000)])
    return Step(events, NO_STATS, {"plan": 0.1})


def test_both_sides_write_more_than_the_buffers_hold() -> None:
    """Each side sends megabytes before the other has read: neither may wait for ever."""
    count = 60
    ours, theirs = socket.socketpair()
    with ours, theirs:
        engine = EngineLink(theirs)
        received: list[Report] = []
        taken = 0

        def run_engine() -> None:
            nonlocal taken
            for _ in range(count):
                engine.send(big_step())
            while taken < count * 1000:
                taken += len(engine.drain(block=True))
            engine.close()

        async def run_daemon() -> None:
            link = await DaemonLink.open(ours.dup())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(link.write)
                for at in range(count * 1000):
                    link.send(CancelRequest(at))
                with anyio.fail_after(60):
                    await link.read(received.append)
                tasks.cancel_scope.cancel()
            await link.aclose()

        thread = threading.Thread(target=run_engine)
        thread.start()
        anyio.run(run_daemon)
        thread.join()
    assert received == [big_step()] * count
    assert taken == count * 1000


def test_the_daemon_reads_to_the_end_of_a_broken_engine() -> None:
    async def main() -> list[Report]:
        ours, theirs = socket.socketpair()
        received: list[Report] = []
        with ours:
            theirs.sendall(frame(Loading("a", 0.0)) + frame(Loading("b", 1.0))[:-1])
            theirs.close()
            link = await DaemonLink.open(ours.dup())
            await link.read(received.append)
            link.send(CancelRequest(1))
            await link.write()
            await link.aclose()
        return received

    run: Callable[..., list[Report]] = anyio.run
    assert run(main) == [Loading("a", 0.0)]
