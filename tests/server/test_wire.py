"""The bytes of a message, as a client's websocket library reads them."""

from __future__ import annotations

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from pagedd.server.wire import message_head


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536])
@pytest.mark.parametrize("opcode", [Opcode.TEXT, Opcode.BINARY])
def test_a_message_of_any_length_is_read_as_it_was_meant(length: int, opcode: Opcode) -> None:
    data = b"x" * length
    client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)
    for _ in range(2):  # nothing is left over that the next one would be read with
        client.receive_data(message_head(0x80 | opcode, length) + data)
    assert client.events_received() == [Frame(opcode, data), Frame(opcode, data)]
