"""The websocket edge: who may connect, in which form, and the life of the connections."""

from __future__ import annotations

import http
import logging
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve, unix_serve
from websockets.exceptions import ConnectionClosed, NegotiationError
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from pagedd.protocol import (
    MAX_FRAME_BYTES,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    STATUS_PATH,
    SUBPROTOCOL_JSON,
)
from pagedd.server.decode import SUBPROTOCOLS, Codec
from pagedd.server.hub import Hub
from pagedd.server.keys import ApiKeys, refusal
from pagedd.server.session import GetStatus, Session
from pagedd.server.wire import WRITE_LIMIT, MessageWire

logger = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
_UCRED = struct.Struct("3i")  # pid, uid, gid: unix(7)
# Received messages that wait for the session; each may have MAX_FRAME_BYTES.
_RECEIVE_QUEUE = 2


class Listener:
    """Serves sockets that are bound already. Owns the sessions."""

    def __init__(
        self,
        hub: Hub,
        *,
        keys: ApiKeys,
        tls: ssl.SSLContext | None = None,
        allow_origin: Sequence[str],
        outbox_bytes: int,
        get_status: GetStatus,
    ) -> None:
        self._hub = hub
        self._keys = keys
        self._tls = tls
        self._allow_origin = frozenset(allow_origin)
        self._outbox_bytes = outbox_bytes
        self._get_status = get_status
        self._servers: list[Server] = []
        self._sessions: dict[Session, ServerConnection] = {}

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._sessions)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections from now on."""
        for sock in sockets:
            unix = sock.family == socket.AF_UNIX
            secure: dict[str, Any] = {}
            if self._tls is not None and not unix:
                secure = {"ssl": self._tls, "ssl_handshake_timeout": OPEN_TIMEOUT_S}
            server = await (unix_serve if unix else serve)(
                self._serve,
                sock=sock,
                process_request=self._check_unix if unix else self._check_tcp,
                select_subprotocol=_select_subprotocol,
                compression=None,
                max_size=MAX_FRAME_BYTES,
                max_queue=_RECEIVE_QUEUE,
                write_limit=WRITE_LIMIT,
                ping_interval=PING_INTERVAL_S,
                ping_timeout=PING_TIMEOUT_S,
                open_timeout=OPEN_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
                server_header=None,
                **secure,
            )
            self._servers.append(server)

    async def flush(self) -> None:
        """Wait until every outbox is empty; the caller sets the limit."""
        async with anyio.create_task_group() as tasks:
            for session in list(self._sessions):
                tasks.start_soon(session.outbox.flush)

    async def close(self) -> None:
        """Stop accepting, close every connection with 1001; those that do not answer are cut."""
        for server in self._servers:
            server.close()  # 1001, going away
        with anyio.move_on_after(CLOSE_TIMEOUT_S / 2):
            for server in self._servers:
                await server.wait_closed()
        for connection in list(self._sessions.values()):
            connection.transport.abort()
        # Those who have not said hello are nobody's session: the event loop's end cuts them.
        with anyio.move_on_after(CLOSE_TIMEOUT_S / 2):
            for server in self._servers:
                await server.wait_closed()

    async def _serve(self, connection: ServerConnection) -> None:
        codec = Codec(connection.subprotocol or SUBPROTOCOL_JSON)
        session = Session(
            self._hub,
            codec,
            outbox_bytes=self._outbox_bytes,
            get_status=self._get_status,
            abort=connection.transport.abort,
        )
        self._sessions[session] = connection
        try:
            await session.run(_messages(connection), MessageWire(connection, text=codec.json))
        finally:
            del self._sessions[session]

    def _check_tcp(self, connection: ServerConnection, request: Request) -> Response | None:
        """Web pages may reach a loopback port, so an Origin is refused unless it is allowed."""
        origins = set(request.headers.get_all("Origin"))
        if not origins <= self._allow_origin:
            return connection.respond(
                http.HTTPStatus.FORBIDDEN, "this origin is not allowed (--allow-origin)\n"
            )
        wrong = refusal(request.headers.get_all("Authorization"), self._keys.current)
        if wrong is not None:
            response = connection.respond(http.HTTPStatus.UNAUTHORIZED, f"{wrong}\n")
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        return _check_path(connection, request)

    def _check_unix(self, connection: ServerConnection, request: Request) -> Response | None:
        if not _same_user(connection.transport.get_extra_info("socket")):
            return connection.respond(
                http.HTTPStatus.FORBIDDEN, "this socket is for another user\n"
            )
        if request.path == STATUS_PATH and "Upgrade" not in request.headers:
            return self._status(connection)
        return _check_path(connection, request)

    def _status(self, connection: ServerConnection) -> Response:
        """The status as the answer to a plain GET, for who asks once and wants no websocket.

        On the Unix socket alone: a web page may reach a TCP port without an Origin to refuse.
        """
        status = msgspec.json.encode(self._get_status(None)).decode()
        response = connection.respond(http.HTTPStatus.OK, f"{status}\n")
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response


def _check_path(connection: ServerConnection, request: Request) -> Response | None:
    if request.path.partition("?")[0] == "/":
        return None
    return connection.respond(http.HTTPStatus.NOT_FOUND, "the path is /\n")


def _select_subprotocol(
    connection: ServerConnection, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    """The first that is known, in the client's order. None offered: JSON without a name."""
    if not offered:
        return None
    for subprotocol in offered:
        if subprotocol in SUBPROTOCOLS:
            return subprotocol
    raise NegotiationError(f"no subprotocol that is known here: {', '.join(SUBPROTOCOLS)}")


async def _messages(connection: ServerConnection) -> AsyncIterator[str | bytes]:
    """Until the connection ends, in whatever way."""
    try:
        async for message in connection:
            yield message
    except ConnectionClosed as closed:
        logger.debug("a connection ended: %s", closed)


def _same_user(sock: socket.socket) -> bool:
    """Is the peer a process of this user? Where the system cannot tell, the folder's mode does."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return bool(_UCRED.unpack(credentials)[1] == os.getuid())
