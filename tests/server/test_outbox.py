"""The outbox alone: order, merging, the bound."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from pagedd.protocol import SUBPROTOCOL_JSON, Accepted, Done, Ledger, Usage
from pagedd.server.decode import Codec
from pagedd.server.outbox import Outbox, Piece

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def piece(text: str, index: int = 0, **fields: Any) -> Piece:
    return Piece(index, text, [ord(character) for character in text], **fields)


async def sent(outbox: Outbox) -> list[dict[str, Any]]:
    """Let the outbox run until it is empty; what it sent."""
    frames: list[dict[str, Any]] = []

    async def send(data: bytes) -> None:
        frames.append(json.loads(data))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run, send)
        await outbox.flush()
        tasks.cancel_scope.cancel()
    return frames


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


async def test_what_comes_while_sending_waits_is_merged() -> None:
    box, _, seq = outbox()
    texts: list[str] = []
    go = anyio.Event()

    async def send(data: bytes) -> None:
        texts.append(json.loads(data)["text"])
        await go.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.run, send)
        box.put_piece("a", 1, seq, piece("a"))
        await anyio.wait_all_tasks_blocked()
        for text in "bcd":
            box.put_piece("a", 1, seq, piece(text))
            await anyio.wait_all_tasks_blocked()
        assert texts == ["a"]
        go.set()
        await box.flush()
        tasks.cancel_scope.cancel()
    assert texts == ["a", "bcd"]
