"""What waits for one HTTP response: in order, merged while nobody takes it, bounded."""

from __future__ import annotations

import itertools

import anyio
import pytest
from msgspec import UNSET, Struct

from pagedd.protocol import Logprob, Started
from pagedd.server.http.mailbox import Mailbox
from pagedd.server.outbox import Piece

pytestmark = pytest.mark.anyio


def piece(text: str, index: int = 0, **more: object) -> Piece:
    return Piece(index, text, [len(text)], **more)  # type: ignore[arg-type]


def put(mailbox: Mailbox, handle: int, *pieces: Piece) -> None:
    for each in pieces:
        mailbox.put_piece("id", handle, itertools.count(1), each)


async def test_pieces_of_a_choice_are_merged_until_they_are_taken() -> None:
    mailbox = Mailbox(10_000, lambda: None)
    put(mailbox, 1, piece("a"), piece("x", 1), piece("bc"), piece("d", finish_reason="stop"))
    first, second = await mailbox.take()
    assert first == (1, Piece(0, "abcd", [1, 2, 1], None, "stop"))
    assert second == (1, piece("x", 1))
    put(mailbox, 1, piece("e"))
    assert await mailbox.take() == [(1, piece("e"))]


async def test_a_frame_is_a_border_for_its_request_alone() -> None:
    mailbox = Mailbox(10_000, lambda: None)
    started = Started("id", 0, 0.0)
    put(mailbox, 1, piece("a"))
    put(mailbox, 2, piece("x"))
    mailbox.put(started, 1)
    put(mailbox, 1, piece("b"))
    put(mailbox, 2, piece("y"))
    entries: list[tuple[int, Struct | Piece]] = await mailbox.take()
    assert entries[0] == (1, piece("a"))
    assert entries[1] == (2, Piece(0, "xy", [1, 1]))
    assert entries[2:] == [(1, started), (1, piece("b"))]


async def test_logprobs_are_merged_too() -> None:
    entry = Logprob(1, "a", b"a", -1.0, [])
    mailbox = Mailbox(10_000, lambda: None)
    put(mailbox, 1, piece("a", logprobs=[entry]), piece("b", logprobs=[entry]))
    ((_, merged),) = await mailbox.take()
    assert isinstance(merged, Piece)
    assert merged.logprobs == [entry, entry]
    assert merged.finish_reason is UNSET


async def test_who_takes_nothing_is_told_of_once_it_is_too_much() -> None:
    full: list[int] = []
    mailbox = Mailbox(1000, lambda: full.append(1))
    put(mailbox, 1, piece("a" * 5000))  # one answer may be longer
    assert not full
    put(mailbox, 1, piece("b"))
    assert full == [1]
    mailbox.drop(1)
    mailbox.put(Started("id", 0, 0.0), 1)
    assert await mailbox.take() == [(1, Started("id", 0, 0.0))]


async def test_who_waits_is_woken() -> None:
    mailbox = Mailbox(1000, lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: _put_later(mailbox))
        with anyio.fail_after(20):
            assert await mailbox.take() == [(7, piece("late"))]


async def _put_later(mailbox: Mailbox) -> None:
    put(mailbox, 7, piece("late"))
