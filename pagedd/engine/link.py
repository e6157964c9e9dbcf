"""The link between daemon and engine: MessagePack frames over one socket pair.

A frame is a 4-byte big-endian length and that many bytes. Daemon → engine: first the
:class:`EngineConfig`, then lists of commands. Engine → daemon: reports.

Neither side can wait for the other while the other waits for it: the engine's sends block, and
the daemon reads always, because it writes from a task of its own.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable

import anyio
import msgspec
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from pagedd.engine.messages import Command, EngineConfig, Report

_HEADER = struct.Struct(">I")
_READ_BYTES = 256 * 1024


class LinkClosed(Exception):
    """The other side is gone."""


class EngineLink:
    """The engine's end: synchronous."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._buffer = bytearray()
        self._encoder = msgspec.msgpack.Encoder()
        self._commands = msgspec.msgpack.Decoder(list[Command])
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self.closed = False

    def config(self) -> EngineConfig:
        """The first message; waits for it. Raises LinkClosed at end of file."""
        while (frame := self._frame()) is None:
            self._fill()
            if self.closed:
                raise LinkClosed
        return msgspec.msgpack.decode(frame, type=EngineConfig)

    def drain(self, *, block: bool) -> list[Command]:
        """All commands that have come; with ``block`` waits for the first, or for ``wake``.

        Nothing, and ``closed``, once the daemon is gone.
        """
        commands: list[Command] = []
        while not self.closed:
            while (frame := self._frame()) is not None:
                commands += self._commands.decode(frame)
            wait = None if block and not commands else 0.0
            ready = select.select([self._sock, self._woken], [], [], wait)[0]
            if self._woken in ready:
                self._woken.recv(_READ_BYTES)
                block = False
            if self._sock in ready:
                self._fill()
            else:
                break
        return commands

    def quiet(self) -> bool:
        """Nothing has come that ``drain`` has not read, and nobody has called ``wake``."""
        return not select.select([self._sock, self._woken], [], [], 0.0)[0]

    def wake(self) -> None:
        """Let ``drain`` return, now or the next time that it waits. From any thread."""
        try:
            self._waker.send(b"\0")
        except BlockingIOError:
            pass  # it will, for those that were sent before
        except OSError:
            pass  # the link was closed

    def send(self, report: Report) -> None:
        """Hand a report over; waits while the daemon's buffer is full. No error when it is gone."""
        body = self._encoder.encode(report)
        try:
            self._sock.sendall(_HEADER.pack(len(body)) + body)
        except OSError:
            self.closed = True

    def close(self) -> None:
        """End the conversation: the daemon reads end of file."""
        self.closed = True
        for sock in (self._sock, self._woken, self._waker):
            sock.close()

    def _fill(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except OSError:
            data = b""
        if data:
            self._buffer += data
        else:
            self.closed = True

    def _frame(self) -> bytes | None:
        if len(self._buffer) < _HEADER.size:
            return None
        end = _HEADER.size + _HEADER.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return frame


class DaemonLink:
    """The daemon's end: ``read`` and ``write`` run in two tasks for as long as the engine lives.

    ``send`` only queues. What is queued is bounded by the open requests: each brings one submit
    and a few short commands.
    """

    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream
        self._encoder = msgspec.msgpack.Encoder()
        self._reports = msgspec.msgpack.Decoder[Report](Report)
        self._pending: list[Command] = []
        self._wake = anyio.Event()

    @classmethod
    async def open(cls, sock: socket.socket) -> DaemonLink:
        """Take over a connected socket."""
        return cls(await UNIXSocketStream.from_socket(sock))

    async def send_config(self, config: EngineConfig) -> None:
        """The first message of every engine."""
        await self._send(self._encoder.encode(config))

    def send(self, command: Command) -> None:
        """Queue a command; all that is queued leaves as one frame."""
        self._pending.append(command)
        self._wake.set()

    async def write(self) -> None:
        """Send what is queued, for ever. Returns when the engine is gone."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            batch, self._pending = self._pending, []
            try:
                await self._send(self._encoder.encode(batch))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def read(self, handle: Callable[[Report], None]) -> None:
        """Call ``handle`` with every report, in order. Returns at end of file."""
        buffered = BufferedByteReceiveStream(self._stream)
        try:
            while True:
                header = await buffered.receive_exactly(_HEADER.size)
                length = _HEADER.unpack(header)[0]
                handle(self._reports.decode(await buffered.receive_exactly(length)))
        except (anyio.EndOfStream, anyio.IncompleteRead):
            return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def aclose(self) -> None:
        """The engine reads end of file and exits."""
        await anyio.aclose_forcefully(self._stream)

    async def _send(self, body: bytes) -> None:
        await self._stream.send(_HEADER.pack(len(body)) + body)
