"""A feed in a file: ``--record`` writes it, ``--replay`` plays it without a daemon.

The file::

    "pagedd recording\\n"  version (1 byte)  then one raw DEFLATE stream of records:
    record = length of the body (4 bytes, big-endian) + body, a MessagePack array:
             seconds since the start, item       an item is a frame of the protocol, or ``lost``
    the last record has the item ``end``

The stream is flushed after each record, so that what was written can be read whatever happens next.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from pagedd.errors import BadRequest, UsageError
from pagedd.protocol import Event, Explanation, Hello, State, Status
from pagedd_tui.pace import REAL, Pace
from pagedd_tui.source import Ended, Item, Lost

MAGIC = b"pagedd recording\n"
VERSION = 1
_LENGTH = 4
_MAX_RECORD = 64 * 1024 * 1024
_LONGEST_S = 30 * 86400.0  # from one record to the next
_READ = 64 * 1024


class _Lost(msgspec.Struct, tag="lost", frozen=True):
    reason: str
    retry_s: float


class _End(msgspec.Struct, tag="end", frozen=True):
    """Nothing was cut off."""


_Body = Hello | State | Event | Status | _Lost | _End


class Damaged(ValueError):
    """The rest of a recording cannot be read; the sentence says why."""


class Recorder:
    """Writes what comes to a new file, inside ``with``.

    Raises UsageError if it cannot be made. A disk that is full later ends the recording, and not
    the dashboard: then ``problem`` says so.
    """

    def __init__(self, path: Path, pace: Pace = REAL) -> None:
        self.path = path
        self.problem = ""
        self._now = pace.now
        self._began: float | None = None
        self._encode = msgspec.msgpack.Encoder().encode
        self._deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        try:
            # only for this user, as the socket is: ids and reasons are private
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise UsageError(f"{path} exists already; name a new file to record to") from error
        except OSError as error:
            raise UsageError(f"cannot record to {path}: {error.strerror}") from error
        self._file: BinaryIO = os.fdopen(descriptor, "wb", buffering=0)
        self._put(MAGIC + bytes([VERSION]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, item: Item) -> None:
        """Keep ``item``, with the time. Nothing after a problem."""
        match item:
            case Ended():
                return
            case Lost(reason, retry_s):
                self._record(_Lost(reason, retry_s))
            case _:
                self._record(item)

    def close(self) -> None:
        """Say that this is all. Harmless a second time."""
        if not self._file.closed:
            self._record(_End())
            self._file.close()

    def _record(self, body: _Body) -> None:
        now = self._now()
        if self._began is None:
            self._began = now
        data = self._encode((now - self._began, body))
        packed = self._deflate.compress(len(data).to_bytes(_LENGTH, "big") + data)
        self._put(packed + self._deflate.flush(zlib.Z_SYNC_FLUSH))

    def _put(self, data: bytes) -> None:
        try:
            while data and not self.problem and not self._file.closed:
                data = data[self._file.write(data) :]
        except OSError as error:
            self.problem = f"the recording stopped: {error.strerror}"


class RecordingSource:
    """Plays a recording in the time that it took. Ends with ``Ended``, whose note says if it was
    cut short.

    Raises UsageError for a file that cannot be read, is no recording, or one of another version.
    """

    can_command = False

    def __init__(self, path: Path, pace: Pace = REAL) -> None:
        self.path = path
        self.title = f"replay {path.name}"
        self._pace = pace
        if path.exists() and not path.is_file():
            raise UsageError(f"cannot read {path}: it is no regular file")
        try:
            with path.open("rb") as file:
                _read_header(file, path)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error

    async def items(self) -> AsyncIterator[Item]:
        """What was recorded."""
        pace, note = self._pace, ""
        began = pace.now()
        try:
            with self.path.open("rb") as file:
                _read_header(file, self.path)
                for at, item in _records(file):
                    await pace.sleep(max(began + at - pace.now(), 0.0))
                    yield item
        except Damaged as damage:
            note = str(damage)
        except OSError as error:
            note = f"the file cannot be read any more: {error.strerror}"
        yield Ended(note)

    async def explain(self, handle: int) -> Explanation:
        """Nobody is there to answer."""
        raise BadRequest("a recording answers no questions")

    async def cancel(self, handle: int) -> None:
        """Nobody is there to do it."""
        raise BadRequest("what is replayed cannot be changed")

    async def reprioritize(self, handle: int, priority: int) -> None:
        """Nobody is there to do it."""
        raise BadRequest("what is replayed cannot be changed")


def _read_header(file: BinaryIO, path: Path) -> None:
    """Go on to the records, or to the end of a file that is cut before them."""
    header = file.read(len(MAGIC) + 1)
    if not MAGIC.startswith(header[: len(MAGIC)]):
        raise UsageError(f"{path} is no recording of pagedd top")
    if len(header) > len(MAGIC) and header[-1] != VERSION:
        raise UsageError(
            f"{path} is a recording of version {header[-1]}; this pagedd plays version {VERSION}"
        )


def _records(file: BinaryIO) -> Iterator[tuple[float, Item]]:
    """Times and items up to the end of the file. Raises Damaged if there should be more."""
    decode = msgspec.msgpack.Decoder(tuple[float, _Body]).decode
    before = 0.0
    for data in _bodies(file):
        try:
            at, body = decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Damaged(f"the recording is damaged: {error}") from None
        if not before <= at <= before + _LONGEST_S:
            raise Damaged("the recording is damaged: times go back, or far ahead")
        before = at
        match body:
            case _End():
                return
            case _Lost(reason, retry_s):
                yield at, Lost(reason, retry_s)
            case _:
                yield at, body
    raise Damaged("the recording was cut short")


def _bodies(file: BinaryIO) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    buffer = bytearray()
    while data := file.read(_READ):
        while data:
            try:
                buffer += inflate.decompress(data, _READ)
            except zlib.error:
                raise Damaged("the recording is damaged from here on") from None
            data = inflate.unconsumed_tail
            yield from _whole(buffer)


def _whole(buffer: bytearray) -> Iterator[bytes]:
    """Take the bodies that are complete off ``buffer``."""
    while len(buffer) >= _LENGTH:
        end = _LENGTH + int.from_bytes(buffer[:_LENGTH], "big")
        if end > _MAX_RECORD:
            raise Damaged("the recording is damaged from here on")
        if len(buffer) < end:
            return
        body = bytes(buffer[_LENGTH:end])
        del buffer[:end]
        yield body
