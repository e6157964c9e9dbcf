"""What one connection has yet to be sent: bounded, in order, deltas merged while the client lags.

Frames wait as bytes; the deltas of a choice wait as one growing delta until they are taken. The
size is the bytes of the frames and, for deltas, of their text and about what their tokens take.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from msgspec import UNSET, Struct, UnsetType

from pagedd.protocol import Delta, Logprob
from pagedd.server.decode import Codec

# Bytes on the wire, roughly: a token id with its comma; one logprob entry, and one alternative.
_TOKEN_BYTES = 6
_LOGPROB_BYTES = 80
_TOP_BYTES = 50


class Wire(Protocol):
    """Where an outbox empties into: a connection that takes whole messages, in order."""

    @property
    def room(self) -> int:
        """Bytes that can be written now without piling up; 0 or less when there is none."""

    def write(self, frames: Sequence[bytes]) -> None:
        """Hand over all of ``frames`` at once, without waiting."""

    async def send(self, frame: bytes) -> None:
        """Hand one over and wait until there is room again."""


@dataclass(slots=True)
class Piece:
    """What one step adds to one choice."""

    index: int
    text: str
    tokens: list[int]
    logprobs: list[Logprob] | None = None
    finish_reason: str | UnsetType = UNSET
    stop_reason: str | int | UnsetType = UNSET

    def extend(self, later: Piece) -> None:
        """Add what a later step adds to the same choice."""
        self.text += later.text
        self.tokens = self.tokens + later.tokens
        if later.logprobs is not None:
            self.logprobs = (self.logprobs or []) + later.logprobs
        self.finish_reason, self.stop_reason = later.finish_reason, later.stop_reason

    def size(self) -> int:
        """About the bytes that it adds to a frame."""
        size = len(self.text.encode()) + _TOKEN_BYTES * len(self.tokens)
        for entry in self.logprobs or ():
            size += _LOGPROB_BYTES + _TOP_BYTES * len(entry.top)
        return size


@dataclass(slots=True)
class _Pending:
    """A delta that still grows. ``seq`` is drawn when it is taken, so merging leaves no gap."""

    id: str
    handle: int
    seq: Iterator[int]
    piece: Piece
    texts: list[str] = field(default_factory=list)
    size: int = 0
    dropped: bool = False

    def add(self, piece: Piece, size: int) -> None:
        self.texts.append(piece.text)
        self.size += size
        if piece is self.piece:
            return
        self.piece.tokens += piece.tokens
        if piece.logprobs:
            self.piece.logprobs = (self.piece.logprobs or []) + piece.logprobs
        self.piece.finish_reason = piece.finish_reason
        self.piece.stop_reason = piece.stop_reason

    def delta(self) -> Delta:
        piece = self.piece
        return Delta(
            id=self.id,
            index=piece.index,
            seq=next(self.seq),
            text="".join(self.texts),
            tokens=piece.tokens,
            logprobs=UNSET if piece.logprobs is None else piece.logprobs,
            finish_reason=piece.finish_reason,
            stop_reason=piece.stop_reason,
        )


class Shared:
    """A frame for several clients, encoded once for each subprotocol."""

    def __init__(self, frame: Struct | None = None) -> None:
        self.frame = frame
        self._encoded: dict[bool, bytes] = {}

    def encoded(self, codec: Codec) -> bytes:
        """The bytes of the message."""
        assert self.frame is not None
        data = self._encoded.get(codec.json)
        if data is None:
            data = self._encoded[codec.json] = codec.encode(self.frame)
        return data


class Outbox:
    """Owned by one session. ``on_full`` is called when something comes while ``limit`` is passed.

    One frame alone may be larger than the limit: that is a long answer, not a slow client.
    ``on_empty`` is called when all has been handed to the socket, and may put what had to wait.
    """

    def __init__(
        self,
        codec: Codec,
        limit: int,
        on_full: Callable[[], None],
        on_empty: Callable[[], None] = lambda: None,
    ) -> None:
        self._codec = codec
        self._limit = limit
        self._on_full = on_full
        self._on_empty = on_empty
        self._entries: deque[bytes | _Pending] = deque()
        self._growing: dict[int, dict[int, _Pending]] = {}  # handle → choice → delta
        self._wire: Wire | None = None  # until ``run``
        self._due = False  # a write comes at the end of this turn of the event loop
        self._lagging = False  # the wire is full, and ``run`` waits for it
        self._wake = anyio.Event()
        self._flushed: anyio.Event | None = None  # somebody waits for it
        self.size = 0  # bytes

    @property
    def full(self) -> bool:
        """The client does not keep up."""
        return self.size > self._limit

    @property
    def has_room(self) -> bool:
        """Less than half full: there is room for what nobody waits for."""
        return 2 * self.size <= self._limit

    @property
    def nearly_empty(self) -> bool:
        """Less than a quarter full: what stopped for want of room may go on, and will go far."""
        return 4 * self.size <= self._limit

    def put(self, frame: Struct, handle: int | None = None) -> None:
        """Queue a frame; it stays behind the deltas of ``handle`` that are queued already."""
        if handle is not None:
            self._growing.pop(handle, None)
        data = self._codec.encode(frame)
        self._entries.append(data)
        self._grow(len(data))

    def put_shared(self, shared: Shared) -> None:
        """Queue a frame that others get too, and that belongs to no request."""
        data = shared.encoded(self._codec)
        self._entries.append(data)
        self._grow(len(data))

    def put_piece(self, id: str, handle: int, seq: Iterator[int], piece: Piece) -> None:
        """Queue a delta, or let the one that waits for this choice grow."""
        choices = self._growing.setdefault(handle, {})
        pending = choices.get(piece.index)
        if pending is None:
            pending = choices[piece.index] = _Pending(id, handle, seq, piece)
            self._entries.append(pending)
        size = piece.size()
        pending.add(piece, size)
        self._grow(size)

    def drop(self, handle: int) -> None:
        """Forget the deltas of a request that have not been sent."""
        for entry in self._entries:
            if isinstance(entry, _Pending) and entry.handle == handle and not entry.dropped:
                entry.dropped = True
                self.size -= entry.size
        self._growing.pop(handle, None)

    async def run(self, wire: Wire) -> None:
        """Empty into ``wire`` for ever. Waits while that is full; nothing else does.

        While it is not, what was put is written at the end of the event loop's turn, without this
        task: a step of the engine costs each connection one write, however many frames it brings.
        """
        self._wire, self._lagging = wire, False
        try:
            self._write()
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                await self._work_off(wire)
        finally:
            self._wire = None

    async def flush(self) -> None:
        """Wait until all that is queued has been handed to the socket."""
        while self._entries or self._lagging:
            if self._flushed is None:
                self._flushed = anyio.Event()
            await self._flushed.wait()

    def _grow(self, size: int) -> None:
        full = self.full
        self.size += size
        if self._wire is not None and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._write)
        if full:
            self._on_full()

    def _write(self) -> None:
        """Write what is queued; what does not fit is left to ``run``."""
        self._due = False
        if self._lagging or self._wire is None:
            return  # it is the task's turn, and frames stay in order
        self._write_what_fits(self._wire)
        if self._entries:
            self._lagging = True
            self._wake.set()
        else:
            self._tell_flushed()

    def _tell_flushed(self) -> None:
        if self._flushed is not None:
            self._flushed.set()
            self._flushed = None

    async def _work_off(self, wire: Wire) -> None:
        """One frame at a time while the wire is full."""
        while self._entries:
            data = self._take()
            if data is not None:
                await wire.send(data)
            if not self._entries:
                self._on_empty()
            self._write_what_fits(wire)
        self._lagging = False
        self._tell_flushed()

    def _write_what_fits(self, wire: Wire) -> None:
        while self._entries and (room := wire.room) > 0:
            frames: list[bytes] = []
            while self._entries and room > 0:
                data = self._take()
                if data is not None:
                    frames.append(data)
                    room -= len(data)
            wire.write(frames)
            if not self._entries:
                self._on_empty()

    def _take(self) -> bytes | None:
        entry = self._entries.popleft()
        if isinstance(entry, bytes):
            self.size -= len(entry)
            return entry
        if entry.dropped:
            return None
        self.size -= entry.size
        choices = self._growing.get(entry.handle)
        if choices is not None and choices.get(entry.piece.index) is entry:
            del choices[entry.piece.index]
            if not choices:
                del self._growing[entry.handle]
        return self._codec.encode(entry.delta())
