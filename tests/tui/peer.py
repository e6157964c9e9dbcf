"""What answers at a socket as a daemon would, or not quite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import msgspec
from websockets.asyncio.server import Request, Response, ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed

from pagedd.protocol import Event, Explanation, State
from pagedd_tui.demo_engine import Simulation
from pagedd_tui.demo_status import HELLO, status_of

CLOSE = "close"
Act = list[State | Event | dict[str, Any] | bytes | str]


class Peer:
    """Sends an act for each subscription to the state, and answers everything else.

    ``acts`` are used one after the other, whatever the connection; without one it is silent.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hello: dict[str, Any] = msgspec.to_builtins(HELLO)
        self.hellos: list[dict[str, Any]] = []  # of the next connections, before ``hello``
        self.acts: list[Act] = []
        self.history: list[Event] = []
        self.key: str | None = None
        self.asked: list[dict[str, Any]] = []
        self.open = 0  # connections
        self.played = anyio.Event()  # the acts are used up

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    def commands(self, *kinds: str) -> list[dict[str, Any]]:
        return [frame for frame in self.asked if frame["type"] in kinds]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with unix_serve(
            self._handle,
            str(self.path),
            select_subprotocol=lambda _, offered: offered[0],
            process_request=self._admit,
            compression=None,
        ):
            yield
        self.path.unlink(missing_ok=True)

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}":
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "no\n")

    async def _handle(self, connection: ServerConnection) -> None:
        self.open += 1
        try:
            await _send(connection, self.hellos.pop(0) if self.hellos else self.hello)
            async for data in connection:
                asked = msgspec.msgpack.decode(data)
                self.asked.append(asked)
                await self._answer(connection, asked)
        except ConnectionClosed:
            return
        finally:
            self.open -= 1

    async def _answer(self, connection: ServerConnection, asked: dict[str, Any]) -> None:
        match asked:
            case {"type": "status", "ref": ref}:
                status = msgspec.to_builtins(status_of(Simulation(1)))
                await _send(connection, status | {"ref": ref})
            case {"type": "explain", "id": id}:
                await _send(connection, Explanation(id, "decoding", []))
            case {"type": "cancel", "id": "#404"}:
                error = {"type": "error", "code": "request_not_found", "retryable": False}
                await _send(connection, error | {"ref": "#404", "message": "no request #404"})
            case {"type": "subscribe", "topic": "events"}:
                for event in self.history:
                    await _send(connection, event)
            case {"type": "subscribe", "topic": "state"} if self.acts:
                for frame in self.acts.pop(0):
                    if frame == CLOSE:
                        await connection.close()
                        return
                    await _send(connection, frame)
                if not self.acts:
                    self.played.set()


async def _send(connection: ServerConnection, frame: object) -> None:
    raw = frame if isinstance(frame, bytes) else msgspec.msgpack.encode(frame)
    await connection.send(raw)
