"""Many clients at once, of both edges, as light as they can be: one task and one socket each."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psutil
from websockets.asyncio.client import ClientConnection, unix_connect

from tests.http.edges import Served

PATIENCE_S = 120.0
BODY_LIMIT = 1 << 22  # bytes of one line of an answer


@dataclass
class Reply:
    """What a client got."""

    text: str = ""
    reason: str | None = None
    code: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)


class WireClient:
    """A websocket connection, one request after the other."""

    def __init__(self, served: Served) -> None:
        self._path = served.socket.removeprefix("unix:")
        self._socket: ClientConnection | None = None

    async def open(self) -> None:
        """Up to the first frame."""
        self._socket = await unix_connect(
            self._path,
            uri="ws://localhost/",
            compression=None,
            max_size=None,
            open_timeout=PATIENCE_S,
        )
        assert (await self._receive())["type"] == "hello"

    async def send(self, prompt: str, **params: Any) -> None:
        """Ask for a stream."""
        await self.send_frame(type="generate", id="r", prompt=prompt, params=params)

    async def send_frame(self, **frame: Any) -> None:
        """Any frame."""
        assert self._socket is not None
        await self._socket.send(json.dumps(frame))

    async def reply(self, *, pieces: int | None = None) -> Reply:
        """The answer, or its first ``pieces``."""
        reply, seen = Reply(), 0
        while pieces is None or seen < pieces:
            frame = await self._receive()
            if frame["type"] == "delta":
                reply.text += frame["text"]
                seen += 1
            elif frame["type"] == "done":
                (choice, *_) = frame["choices"]
                reply.text += choice.get("text") or ""
                reply.reason, reply.usage = choice["finish_reason"], frame["usage"]
                break
            elif frame["type"] == "error":
                reply.code = frame["code"]
                break
        return reply

    async def _receive(self) -> dict[str, Any]:
        assert self._socket is not None
        return dict(json.loads(await asyncio.wait_for(self._socket.recv(), PATIENCE_S)))

    async def close(self) -> None:
        """With a goodbye."""
        assert self._socket is not None
        await self._socket.close()

    def drop(self) -> None:
        """As a killed process leaves it."""
        assert self._socket is not None
        self._socket.transport.abort()


class HttpClient:
    """An HTTP connection that is kept, one request after the other."""

    def __init__(self, served: Served) -> None:
        url = urlsplit(served.http)
        assert url.hostname is not None
        self._host, self._port = url.hostname, url.port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Up to the answer to a small question."""
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port, limit=BODY_LIMIT
        )
        assert (await self.ask("GET", "/version"))[0] == 200

    async def send(self, prompt: str, *, stream: bool = True, **fields: Any) -> None:
        """Ask for a completion."""
        await self.request(
            "POST", "/v1/completions", {"prompt": prompt, "stream": stream, **fields}
        )

    async def request(self, method: str, path: str, body: Any = None) -> None:
        """Any request; ``body`` is made JSON, unless it is bytes."""
        assert self._writer is not None
        if not isinstance(body, bytes):
            body = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of a request that is not streamed."""
        await self.request(method, path, body)
        status, headers = await self._head()
        assert self._reader is not None
        return status, await self._reader.readexactly(int(headers["content-length"]))

    async def reply(self, *, pieces: int | None = None) -> Reply:
        """The answer to ``send``, or its first ``pieces``."""
        status, headers = await self._head()
        reply = Reply()
        assert self._reader is not None
        if "content-length" in headers:
            body = json.loads(await self._reader.readexactly(int(headers["content-length"])))
            self._take(reply, body)
            assert (status == 200) == (reply.code is None)
            return reply
        rest, seen = b"", 0
        while (chunk := await self._chunk()) is not None:
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                if event != b"data: [DONE]":
                    self._take(reply, json.loads(event.removeprefix(b"data: ")))
                    seen += 1
            if pieces is not None and seen >= pieces:
                break
        return reply

    def _take(self, reply: Reply, body: dict[str, Any]) -> None:
        if "error" in body:
            reply.code = body["error"]["code"]
        for choice in body.get("choices", ())[:1]:
            reply.text += choice["text"]
            reply.reason = choice["finish_reason"] or reply.reason
        reply.usage = body.get("usage") or reply.usage

    async def _head(self) -> tuple[int, dict[str, str]]:
        assert self._reader is not None
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), PATIENCE_S)).decode()
        status = int(head.split(" ", 2)[1])
        return status, {k.lower(): v for k, v in re.findall(r"^([\w-]+): (.*)\r$", head, re.M)}

    async def _chunk(self) -> bytes | None:
        """One of a chunked body; None at its end."""
        assert self._reader is not None
        size = int(await asyncio.wait_for(self._reader.readline(), PATIENCE_S), 16)
        data = await self._reader.readexactly(size + 2)
        return data[:-2] if size else None

    async def close(self) -> None:
        """As a client does that needs it no more."""
        assert self._writer is not None
        self._writer.close()
        await self._writer.wait_closed()

    def drop(self) -> None:
        """As a killed process leaves it."""
        assert self._writer is not None
        self._writer.transport.abort()


AnyClient = WireClient | HttpClient


async def open_all(clients: list[AnyClient], at_once: int = 50) -> None:
    """Open all, so many at a time."""
    for start in range(0, len(clients), at_once):
        await asyncio.gather(*(each.open() for each in clients[start : start + at_once]))


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(psutil.Process(pid).memory_info().rss)


def descriptors(pid: int) -> int:
    """Open files of a process."""
    return int(psutil.Process(pid).num_fds())
