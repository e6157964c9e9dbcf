"""What one HTTP response has yet to be sent: frames as structs, bounded, pieces merged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from msgspec import Struct

from pagedd.server.outbox import Piece

FRAME_BYTES = 256  # about what a frame that is no piece takes


class Mailbox:
    """One taker. ``on_full`` is called when something comes while ``limit`` bytes are passed.

    Implements ``requests.Frames``. Pieces of one choice that nobody has taken are merged, so that a
    slow reader costs memory by the text and not by the step.
    """

    def __init__(self, limit: int, on_full: Callable[[], None]) -> None:
        self._limit = limit
        self._on_full = on_full
        self._entries: list[tuple[int, Struct | Piece]] = []
        self._growing: dict[tuple[int, int], Piece] = {}  # handle and choice
        self._size = 0  # bytes
        # Made for each piece of text: an event of anyio costs several times as much.
        self._wake: asyncio.Future[None] | None = None

    def put(self, frame: Struct, handle: int | None = None) -> None:
        """It stays behind the pieces of ``handle`` that wait already."""
        assert handle is not None, "an HTTP request is only told of itself"
        for key in [key for key in self._growing if key[0] == handle]:
            del self._growing[key]
        self._entries.append((handle, frame))
        self._grow(FRAME_BYTES)

    def put_piece(self, id: str, handle: int, seq: Iterator[int], piece: Piece) -> None:
        """What a step adds to one choice."""
        waiting = self._growing.get((handle, piece.index))
        if waiting is None:
            self._growing[handle, piece.index] = piece
            self._entries.append((handle, piece))
        else:
            waiting.extend(piece)
        self._grow(piece.size())

    def drop(self, handle: int) -> None:
        """Forget the pieces of a request that have not been taken."""
        self._entries = [
            (owner, entry)
            for owner, entry in self._entries
            if owner != handle or not isinstance(entry, Piece)
        ]
        self._growing = {key: piece for key, piece in self._growing.items() if key[0] != handle}

    async def take(self) -> list[tuple[int, Struct | Piece]]:
        """All that waits, each with the handle of its request; at least one, waited for."""
        while not self._entries:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        entries, self._entries = self._entries, []
        self._growing.clear()
        self._size = 0
        return entries

    def _grow(self, size: int) -> None:
        full = self._size > self._limit
        self._size += size
        if self._wake is not None:
            if not self._wake.done():  # as it is when its taker was cancelled
                self._wake.set_result(None)
            self._wake = None
        if full:  # one entry alone may be larger: that is a long answer, not a slow client
            self._on_full()
