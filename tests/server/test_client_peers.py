"""The asynchronous client where no daemon answers, or one that it does not know."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from pagedd.client import Client
from pagedd.errors import PageddError, Unreachable, UsageError
from pagedd.protocol import Done, Generate, Ledger

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("http://127.0.0.1:1", UsageError),
        ("nonsense", UsageError),
        ("unix:/nowhere/x.sock", Unreachable),
        ("ws://127.0.0.1:1", Unreachable),
    ],
)
async def test_addresses_where_nobody_is(address: str, error: type[PageddError]) -> None:
    with pytest.raises(error) as raised:
        async with Client.connect(address):
            pytest.fail("nobody is there")
    assert "\n" not in raised.value.message


async def test_what_is_no_websocket_is_unreachable() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(b"SSH-2.0-OpenSSH\r\n")

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(Unreachable):
            async with Client.connect(f"ws://127.0.0.1:{port}"):
                pytest.fail("this is no daemon")
        tasks.cancel_scope.cancel()


HELLO = {
    "type": "hello",
    "version": 1,
    "boot_id": "b",
    "model": "m",
    "max_model_len": 1,
    "page_size": 1,
    "num_pages": 1,
    "num_host_pages": 0,
    "limits": dict.fromkeys(
        ["max_frame", "max_queue", "max_num_seqs", "max_n", "max_logprobs", "vocab_size"], 1
    ),
    "features": [],
    "a_field_of_the_future": 1,
}


@asynccontextmanager
async def server(*frames: object) -> AsyncIterator[str]:
    """A server that says these frames, then for every frame that it gets a ``done``."""

    async def handle(connection: ServerConnection) -> None:
        for frame in frames:
            raw = frame if isinstance(frame, bytes) else msgspec.msgpack.encode(frame)
            await connection.send(raw)
        async for data in connection:
            asked = msgspec.msgpack.decode(data)
            await connection.send(msgspec.msgpack.encode({"type": "weather", "id": asked["id"]}))
            done = {"type": "done", "id": asked["id"], "choices": []}
            usage = {"prompt_tokens": 1, "completion_tokens": 0, "cached_tokens": 0}
            ledger = dict.fromkeys(LEDGER, 0)
            await connection.send(msgspec.msgpack.encode(done | {"usage": usage, "ledger": ledger}))

    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with serve(handle, sock=sock, select_subprotocol=lambda _, offered: offered[0]):
            yield f"ws://127.0.0.1:{sock.getsockname()[1]}"


LEDGER = Ledger.__struct_fields__


async def test_frames_of_the_future_are_ignored() -> None:
    async with server(HELLO) as address, Client.connect(address) as client:
        frames = [frame async for frame in client.generate(Generate(id="a", prompt="abc"))]
        assert [type(frame) for frame in frames] == [Done]


@pytest.mark.parametrize(
    ("first", "says"),
    [(HELLO | {"version": 2}, "version 2"), ({"type": "done"}, "no pagedd"), (7, "no pagedd")],
)
async def test_another_protocol_is_refused(first: object, says: str) -> None:
    async with server(first) as address:
        with pytest.raises(PageddError, match=says):
            async with Client.connect(address):
                pytest.fail("this is another protocol")


async def test_a_frame_that_is_none_ends_the_conversation() -> None:
    async with server(HELLO, b"\xc1") as address, Client.connect(address) as client:
        with pytest.raises(PageddError, match="no pagedd"):
            _ = [frame async for frame in client.generate(Generate(id="a", prompt="abc"))]
