"""Whole websocket messages on their way out, many in one write.

``connection.send`` takes one message, one task switch and one system call each. A step of the
engine brings a message for every stream, so here those of one connection go out together.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import anyio
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

# Bytes that the transport holds before the outbox has to; small, so that the outbox's bound counts.
WRITE_LIMIT = 64 * 1024

# RFC 6455, section 5.2: the first byte of a message in one frame.
_TEXT, _BINARY = 0x81, 0x82
_SHORT, _MEDIUM, _LONG = struct.Struct("!BB"), struct.Struct("!BBH"), struct.Struct("!BBQ")


class MessageWire:
    """One connection, which uses no extension; ``text``: its messages are text and not binary.

    Implements ``outbox.Wire``. What is written to a connection that closes is lost, as everything
    is that a client who leaves has not read.
    """

    def __init__(self, connection: ServerConnection, *, text: bool) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._text = text
        self._opcode = _TEXT if text else _BINARY

    @property
    def room(self) -> int:
        """Bytes until the transport holds as much as it should."""
        return WRITE_LIMIT - self._transport.get_write_buffer_size()

    def write(self, frames: Sequence[bytes]) -> None:
        """Hand all of ``frames`` to the transport, each as a message."""
        if self._connection.state is not State.OPEN:
            return
        parts: list[bytes] = []
        for data in frames:
            parts += (message_head(self._opcode, len(data)), data)
        self._transport.write(b"".join(parts))

    async def send(self, frame: bytes) -> None:
        """Hand one over; waits until the transport has sent most of what it holds."""
        try:
            await self._connection.send(frame, text=self._text)
        except ConnectionClosed:
            await anyio.sleep_forever()  # the reader ends the session


def message_head(opcode: int, length: int) -> bytes:
    """The bytes before ``length`` bytes of payload that a server sends, so without a mask."""
    if length < 126:
        return _SHORT.pack(opcode, length)
    if length < 1 << 16:
        return _MEDIUM.pack(opcode, 126, length)
    return _LONG.pack(opcode, 127, length)
