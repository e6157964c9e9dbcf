"""What one HTTP connection may take its time for, with limits of a moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from pagedd.server.http.protocol import GuardedProtocol
from tests.http.raw import head
from tests.server.harness import PATIENCE_S

pytestmark = pytest.mark.anyio
MIB = 1 << 20
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Impatient(GuardedProtocol):
    max_connections = 2
    head_timeout_s = 0.1
    unread_timeout_s = 0.1
    refused_timeout_s = 0.1


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says much, or refuses a body without reading it."""
    length = 4 * MIB if scope["path"] == "/much" else 2
    headers = [(b"content-length", str(length).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * length})


@asynccontextmanager
async def serving(
    state: ServerState | None = None,
) -> AsyncIterator[Callable[[], Awaitable[Streams]]]:
    """A server; gives what connects to it."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none")
    config.load()
    state = state or ServerState()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    server = await asyncio.get_running_loop().create_server(
        lambda: Impatient(config=config, server_state=state, app_state={}), sock=listening
    )

    async def connect() -> Streams:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, listening.getsockname())
        return await asyncio.open_connection(sock=sock, limit=1024)

    async with server:
        yield connect


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Everything to the end of the connection, however it ends."""
    received = b""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while part := await reader.read(65536):
                received += part
        except ConnectionError:
            pass
    return received


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\nX: y"])
async def test_a_head_that_does_not_come(said: bytes) -> None:
    async with serving() as connect:
        reader, writer = await connect()
        writer.write(said)
        got = await rest(reader)
        assert got.startswith(b"HTTP/1.1 408 ") if said else not got
        writer.close()


async def test_a_second_head_that_does_not_come() -> None:
    async with serving() as connect:
        reader, writer = await connect()
        writer.write(head("GET", "/") + b"GET / ")
        got = await rest(reader)
        assert got.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in got
        writer.close()


async def test_an_answer_that_nobody_reads() -> None:
    """The connection is cut; so its reader gets what was on its way, and no more."""
    state = ServerState()
    async with serving(state) as connect:
        reader, writer = await connect()
        writer.write(head("GET", "/much"))
        await reader.readline()  # one line, and no more than a buffer's worth
        async with asyncio.timeout(PATIENCE_S):
            while state.connections:
                await asyncio.sleep(0.01)
        assert len(await rest(reader)) < 4 * MIB
        writer.close()


async def test_a_refused_body_that_does_not_end() -> None:
    async with serving() as connect:
        reader, writer = await connect()
        writer.write(head("POST", "/", "Content-Length: 1000000000") + b"x" * 1000)
        got = await rest(reader)
        assert got.startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_more_connections_than_may_be() -> None:
    async with serving() as connect:
        kept = [await connect() for _ in range(2)]
        reader, writer = await connect()
        got = await rest(reader)
        assert got.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"too_many_connections"' in got
        for _, each in [*kept, (reader, writer)]:
            each.close()
