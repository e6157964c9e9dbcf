"""The outbox alone: order, merging, the bound."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from pagedd.protocol import SUBPROTOCOL_JSON, Accepted, Done, Ledger, Usage
from pagedd.server.decode import Codec
from pagedd.server.outbox import Outbox, Piece
from tests.server.wires import FullWire, ListWire

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def piece(text: str, index: int = 0, **fields: Any) -> Piece:
    return Piece(index, text, [ord(character) for character in text], **fields)


async def sent(outbox: Outbox) -> list[dict[str, Any]]:
    """Let the outbox run until it is empty; what it sent."""
    wire = ListWire()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run, wire)
        await outbox.flush()
        tasks.cancel_scope.cancel()
    return wire.frames


def outbox(limit: int = 10_000) -> tuple[Outbox, list[int], Iterator[int]]:
    full: list[int] = []
    box = Outbox(Codec(SUBPROTOCOL_JSON), limit, lambda: full.append(box.size))
    return box, full, itertools.count(1)


async def test_pieces_of_a_choice_that_wait_become_one_delta() -> None:
    box, _, seq = outbox()
    for at in range(3):
        box.put_piece("a", 1, seq, piece(f"x{at}"))
        box.put_piece("a", 1, seq, piece(f"y{at}", 1))
    box.put_piece("a", 1, seq, piece("!", finish_reason="stop", stop_reason="!"))
    first, second = await sent(box)
    assert (first["index"], first["seq"], first["text"]) == (0, 1, "x0x1x2!")
    assert first["tokens"] == [ord(character) for character in "x0x1x2!"]
    assert (first["finish_reason"], first["stop_reason"]) == ("stop", "!")
    assert (second["index"], second["seq"], second["text"]) == (1, 2, "y0y1y2")
    assert "finish_reason" not in second
    box.put_piece("a", 1, seq, piece("z"))
    assert [frame["seq"] for frame in await sent(box)] == [3]
    assert box.size == 0


async def test_nothing_is_merged_past_another_frame_of_the_request() -> None:
    box, _, seq = outbox()
    box.put(Accepted("a", 0, 1), 1)
    box.put_piece("a", 1, seq, piece("x"))
    box.put(Accepted("other", 0, 1), 2)
    box.put_piece("a", 1, seq, piece("y"))
    ledger = Ledger(0, 0, 0, 0, 0, 0, 0, 0, 0)
    box.put(Done("a", [], Usage(0, 0, 0), ledger), 1)
    box.put_piece("a", 3, itertools.count(1), piece("new"))
    kinds = [(frame["type"], frame["id"], frame.get("text")) for frame in await sent(box)]
    assert kinds == [
        ("accepted", "a", None),
        ("delta", "a", "xy"),
        ("accepted", "other", None),
        ("done", "a", None),
        ("delta", "a", "new"),
    ]


async def test_dropped_deltas_leave_no_trace() -> None:
    box, _, seq = outbox()
    box.put_piece("a", 1, seq, piece("x" * 100))
    box.put_piece("b", 2, itertools.count(1), piece("y"))
    box.drop(1)
    box.put_piece("a", 3, itertools.count(1), piece("z"))
    assert [(frame["id"], frame["text"]) for frame in await sent(box)] == [("b", "y"), ("a", "z")]
    assert box.size == 0


async def test_full_is_told_when_something_comes_past_the_limit() -> None:
    box, full, seq = outbox(limit=100)
    box.put_piece("a", 1, seq, piece("x" * 500))
    assert (box.full, full) == (True, []), "one long frame alone is no slow client"
    box.put_piece("a", 1, seq, piece("y"))
    assert len(full) == 1
    await sent(box)
    box.put_piece("a", 1, seq, piece("z"))
    assert (box.full, len(full)) == (False, 1)


async def test_what_comes_while_the_wire_is_full_is_merged() -> None:
    box, _, seq = outbox()
    wire = FullWire()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.run, wire)
        box.put_piece("a", 1, seq, piece("a"))
        await anyio.wait_all_tasks_blocked()
        for text in "bcd":
            box.put_piece("a", 1, seq, piece(text))
            await anyio.wait_all_tasks_blocked()
        assert [frame["text"] for frame in wire.frames] == ["a"]
        wire.open.set()
        await box.flush()
        tasks.cancel_scope.cancel()
    assert [frame["text"] for frame in wire.frames] == ["a", "bcd"]


async def test_what_one_turn_of_the_loop_brings_is_one_write() -> None:
    box, _, seq = outbox()
    wire = ListWire()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.run, wire)
        await anyio.wait_all_tasks_blocked()
        for step in range(2):
            for handle in range(3):
                box.put_piece(str(handle), handle, seq, piece(f"{step}"))
            await box.flush()
        tasks.cancel_scope.cancel()
    assert [[frame["id"] for frame in write] for write in wire.writes] == [["0", "1", "2"]] * 2


async def test_a_write_is_not_larger_than_the_room_but_for_its_last_frame() -> None:
    box, _, seq = outbox()
    wire = ListWire()
    wire.room = 150
    for handle in range(5):
        box.put_piece(str(handle), handle, seq, piece("x"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.run, wire)
        await box.flush()
        tasks.cancel_scope.cancel()
    assert [len(write) for write in wire.writes] == [3, 2], "frames of 60 bytes"


@pytest.mark.parametrize("wire", [ListWire(), FullWire()])
async def test_what_waits_for_an_empty_outbox_comes_when_it_is_empty(wire: ListWire) -> None:
    later = ["first", "second"]

    def put_more() -> None:
        if later:
            box.put(Accepted(later.pop(0), 0, 1))

    box = Outbox(Codec(SUBPROTOCOL_JSON), 10_000, lambda: None, put_more)
    box.put(Accepted("a", 0, 1))
    if isinstance(wire, FullWire):
        wire.open.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.run, wire)
        await box.flush()
        tasks.cancel_scope.cancel()
    assert [frame["id"] for frame in wire.frames] == ["a", "first", "second"]
