"""uvicorn on the daemon's event loop: starts with a socket, ends when the daemon says so."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio
import anyio.abc
import uvicorn

from pagedd.server.http.app import make_app
from pagedd.server.http.gateway import Gateway
from pagedd.server.http.protocol import HEAD_BYTES, KEEP_ALIVE_S, GuardedProtocol

CLOSE_TIMEOUT_S = 0.5  # at the end, for clients that read the last of their answers
_TICK_S = 1.0  # how old the Date of an answer may be
BACKLOG = 1024
# Bytes that the kernel may hold for a client that does not read: by itself it takes megabytes, in
# which a slow client would be seen late. Streams of tokens need little.
SEND_BUFFER = 128 * 1024

logging.getLogger("uvicorn").setLevel(logging.ERROR)  # a client's faults are no news


class _Server(uvicorn.Server):
    """Without uvicorn's own way with signals, which are the daemon's."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ending = anyio.Event()
        self.serves = anyio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self.serves.set()
        while not self.ending.is_set():
            await self.on_tick(0)
            with anyio.move_on_after(_TICK_S):
                await self.ending.wait()
        self.should_exit = True


class HttpEdge:
    """Owns the HTTP connections of one socket. ``keys``: those that count now."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        keys: Callable[[], Sequence[bytes]],
        origins: Sequence[str],
        hosts: Sequence[str],
        max_connections: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        limits = {"max_connections": max_connections}
        config = uvicorn.Config(
            make_app(gateway, keys=keys, origins=origins, hosts=hosts),
            http=type("Protocol", (GuardedProtocol,), limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,  # s, for what does not end with its connection
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        config.load()
        config.ssl = tls
        self._server = _Server(config)
        self._ended = anyio.Event()

    @property
    def connections(self) -> int:
        """Open ones, idle or not."""
        return len(self._server.server_state.connections)

    async def run(
        self,
        sock: socket.socket,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until :meth:`close`; started when connections are accepted."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._server.serve, [sock])
                await self._server.serves.wait()
                task_status.started()
        finally:
            self._ended.set()

    async def close(self) -> None:
        """Take no more connections; those that are open end with their answers, or soon."""
        self._server.ending.set()
        with anyio.move_on_after(CLOSE_TIMEOUT_S):
            await self._ended.wait()
        for connection in list(self._server.server_state.connections):
            assert isinstance(connection, GuardedProtocol)
            connection.transport.abort()
        await self._ended.wait()
