"""The events feed alone: history, several readers, one that does not keep up."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from pagedd.core.events import Accepted
from pagedd.protocol import SUBPROTOCOL_JSON, Error
from pagedd.server.decode import Codec
from pagedd.server.feed import EventFeed
from pagedd.server.journal import Journal
from pagedd.server.outbox import Outbox
from tests.server.wires import ListWire, SlowWire

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Reader:
    """A client that reads when it is told to."""

    def __init__(self, feed: EventFeed, limit: int = 100_000) -> None:
        self.full: list[int] = []
        self.outbox = Outbox(
            Codec(SUBPROTOCOL_JSON),
            limit,
            lambda: self.full.append(self.outbox.size),
            lambda: feed.resume(self.outbox),
        )

    async def read(self) -> list[dict[str, Any]]:
        """All that there is."""
        wire = ListWire()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.outbox.run, wire)
            await self.outbox.flush()
            tasks.cancel_scope.cancel()
        return wire.frames

    async def handles(self) -> list[int]:
        return [frame["handle"] for frame in await self.read()]


def feed(size: int = 100) -> tuple[EventFeed, Journal]:
    journal = Journal(size)
    return EventFeed(journal, lambda: 9.5), journal


def happen(feed: EventFeed, journal: Journal, *handles: int) -> None:
    for handle in handles:
        journal.record(Accepted(handle, 0), 1.0)
    feed.publish()


async def test_history_comes_first_and_then_what_happens() -> None:
    events, journal = feed()
    happen(events, journal, 1, 2, 3)
    old, new, greedy = Reader(events), Reader(events), Reader(events)
    events.subscribe(old.outbox, 2)
    events.subscribe(new.outbox, 0)
    events.subscribe(greedy.outbox, 4096)
    happen(events, journal, 4)
    assert await old.handles() == [2, 3, 4]
    assert await new.handles() == [4]
    assert await greedy.handles() == [1, 2, 3, 4]


async def test_to_subscribe_twice_changes_nothing_and_to_leave_twice_neither() -> None:
    events, journal = feed()
    reader = Reader(events)
    happen(events, journal, 1)
    events.subscribe(reader.outbox, 1)
    events.subscribe(reader.outbox, 1)
    happen(events, journal, 2)
    assert await reader.handles() == [1, 2]
    events.unsubscribe(reader.outbox)
    events.unsubscribe(reader.outbox)
    happen(events, journal, 3)
    assert await reader.handles() == []
    events.subscribe(reader.outbox, 0)
    happen(events, journal, 4)
    assert await reader.handles() == [4]


async def test_a_reader_that_lags_gets_all_that_is_still_remembered() -> None:
    events, journal = feed(size=50)
    reader = Reader(events, limit=2_000)
    events.subscribe(reader.outbox, 0)
    for handle in range(40):
        happen(events, journal, handle)
    assert reader.outbox.size < 1_300, "half of the limit, and the event that passed it"
    assert reader.full == []
    assert await reader.handles() == list(range(40))


async def test_what_was_forgotten_before_it_was_read_is_counted() -> None:
    events, journal = feed(size=10)
    reader, other = Reader(events, limit=2_000), Reader(events)
    events.subscribe(reader.outbox, 0)
    events.subscribe(other.outbox, 0)
    for handle in range(100):
        happen(events, journal, handle)
    frames = await reader.read()
    place = next(at for at, frame in enumerate(frames) if frame["kind"] == "missed")
    lost = frames.pop(place)
    assert (lost["at"], lost["count"]) == (9.5, 100 - len(frames))
    assert "request" not in lost
    assert [frame["handle"] for frame in frames] == [*range(place), *range(90, 100)]
    assert reader.full == []
    assert await other.handles() == list(range(100)), "nobody else pays for it"
    happen(events, journal, 100)
    assert await reader.handles() == [100]


async def test_between_two_gaps_comes_a_run_of_events() -> None:
    """One frame leaves for every three events: always room for one more, and never for all."""
    events, journal = feed(size=20)
    reader, wire = Reader(events, limit=4_000), SlowWire()
    events.subscribe(reader.outbox, 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.outbox.run, wire)
        for handle in range(600):
            happen(events, journal, handle)
            if handle % 3 == 0:
                await wire.take()
        while await wire.take():
            pass
        tasks.cancel_scope.cancel()
    runs, place = [0], 0
    for frame in wire.frames:
        if frame["kind"] == "missed":
            place += frame["count"]
            runs.append(0)
        else:
            assert frame["handle"] == place, "what was missed is counted exactly"
            place += 1
            runs[-1] += 1
    assert place == 600
    assert len(runs) > 3
    largest = max(len(json.dumps(frame)) for frame in wire.frames)
    assert min(runs) >= 1_000 // largest - 1 > 3, "a quarter of the limit, less the word of the gap"


async def test_other_frames_of_the_client_go_first_when_it_lags() -> None:
    events, journal = feed()
    reader = Reader(events, limit=2_000)
    events.subscribe(reader.outbox, 0)
    reader.outbox.put(large_frame(size=1_500))
    happen(events, journal, *range(20))
    assert reader.outbox.size < 1_600, "no event was added to an outbox that is half full"
    frames = await reader.read()
    assert [frame.get("handle") for frame in frames] == [None, *range(20)]


def large_frame(size: int) -> Error:
    return Error("internal", "x" * size, False)
