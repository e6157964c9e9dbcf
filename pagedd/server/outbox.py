"""What one connection has yet to be sent: bounded, in order, deltas merged while the client lags.

Frames wait as bytes; the deltas of a choice wait as one growing delta until they are taken. The
size is the bytes of the frames and, for deltas, of their text and about what their tokens take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import anyio
from msgspec import UNSET, Struct, UnsetType

from pagedd.protocol import Delta, Logprob
from pagedd.server.decode import Codec

# Bytes on the wire, roughly: a token id with its comma; one logprob entry, and one alternative.
_TOKEN_BYTES = 6
_LOGPROB_BYTES = 80
_TOP_BYTES = 50


@dataclass(slots=True)
class Piece:
    """What one step adds to one choice."""

    index: int
    text: str
    tokens: list[int]
    logprobs: list[Logprob] | None = None
    finish_reason: str | UnsetType = UNSET
    stop_reason: str | int | UnsetType = UNSET

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
        self._wake = anyio.Event()
        self._drained = anyio.Event()
        self._drained.set()
        self.size = 0  # bytes

    @property
    def full(self) -> bool:
        """The client does not keep up."""
        return self.size > self._limit

    @property
    def has_room(self) -> bool:
        """Less than half full: there is room for what nobody waits for."""
        return 2 * self.size <= self._limit

    def put(self, frame: Struct, handle: int | None = None) -> None:
        """Queue a frame; it stays behind the deltas of ``handle`` that are queued already."""
        if handle is not None:
            self._growing.pop(handle, None)
        data = self._codec.encode(frame)
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

    async def run(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send for ever. ``send`` waits while the client's buffers are full; nothing else does."""
        while True:
            self._wake = anyio.Event()
            while self._entries:
                data = self._take()
                if data is not None:
                    await send(data)
                if not self._entries:
                    self._on_empty()
            self._drained.set()
            await self._wake.wait()

    async def flush(self) -> None:
        """Wait until all that is queued has been handed to the socket."""
        await self._drained.wait()

    def _grow(self, size: int) -> None:
        full = self.full
        self.size += size
        if self._drained.is_set():
            self._drained = anyio.Event()
        self._wake.set()
        if full:
            self._on_full()

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
