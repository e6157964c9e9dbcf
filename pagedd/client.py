"""An asynchronous client: many requests over one connection, for the bench and the dashboard.

It never tries again by itself: whoever uses it knows whether text was shown already.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Self

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.typing import Subprotocol

from pagedd.codes import class_of
from pagedd.errors import DuplicateId, PageddError, Unauthorized, Unreachable, UsageError
from pagedd.protocol import (
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    SUBPROTOCOL_MSGPACK,
    VERSION,
    Cancel,
    ClientFrame,
    Done,
    Error,
    Generate,
    Hello,
    ServerFrame,
    Status,
    StatusRequest,
)

HANDSHAKE_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
MAX_INCOMING_BYTES = 64 * 1024 * 1024  # a whole answer that did not stream is one frame


class Client:
    """One connection, open inside ``async with Client.connect(…) as client``."""

    def __init__(self, socket: ClientConnection, url: str, hello: Hello) -> None:
        self.url = url
        self.hello = hello
        self._socket = socket
        self._encode = msgspec.msgpack.Encoder().encode
        self._decoder = msgspec.msgpack.Decoder[ServerFrame](ServerFrame)
        # Frames wait here without a bound, so that one slow reader does not hold up the others.
        self._inboxes: dict[str, MemoryObjectSendStream[ServerFrame]] = {}
        self._statuses: dict[str, MemoryObjectSendStream[ServerFrame]] = {}
        self._refs = itertools.count(1)
        self._lost: PageddError | None = None

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, key: str | None = None) -> AsyncIterator[Self]:
        """Connect to ``unix:PATH`` or ``ws://HOST:PORT``.

        Raises Unreachable when no daemon answers, Unauthorized when it wants a key, PageddError
        for any other refusal, UsageError when ``url`` is no address.
        """
        with _clean_errors(url):
            socket = await _open(url, key)
        try:
            client = cls(socket, url, await _hello(socket, url))
            failure: Exception | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client._read)
                try:
                    yield client
                except Exception as error:
                    failure = error  # raised below: the group would wrap it
                finally:
                    tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure
        finally:
            with anyio.CancelScope(shield=True):
                await socket.close()

    async def generate(self, frame: Generate) -> AsyncIterator[ServerFrame]:
        """Send the request and yield its frames; the last is ``done``.

        An ``error`` frame is raised as the PageddError of its code, a lost connection as
        Unreachable. Leaving the iteration early cancels the request and waits a moment for its end.
        """
        if frame.id in self._inboxes:
            raise DuplicateId(f"id: {frame.id!r} is in use by an open request")
        inbox, frames = anyio.create_memory_object_stream[ServerFrame](math.inf)
        self._inboxes[frame.id] = inbox
        ended = False
        try:
            await self._send(frame)
            async for received in frames:
                ended = isinstance(received, Done | Error)
                if isinstance(received, Error):
                    raise error_of(received)
                yield received
                if ended:
                    return
            ended = True
            raise self._lost or Unreachable(f"the connection to {self.url} was closed")
        finally:
            if not ended:
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT_S):
                    ended = await self._leave(frame.id, frames)
            frames.close()
            if ended:
                self._inboxes.pop(frame.id).close()

    async def cancel(self, id: str) -> None:
        """End a request; its ``generate`` yields ``done``. Harmless when it has ended."""
        await self._send(Cancel(id))

    async def status(self) -> Status:
        """The daemon's status. Raises Unreachable when the connection is lost."""
        ref = f"status-{next(self._refs)}"
        inbox, frames = anyio.create_memory_object_stream[ServerFrame](1)
        self._statuses[ref] = inbox
        with inbox, frames:
            try:
                await self._send(StatusRequest(ref))
                received = await frames.receive()
            except anyio.EndOfStream:
                raise self._lost or Unreachable(
                    f"the connection to {self.url} was closed"
                ) from None
            finally:
                self._statuses.pop(ref, None)
        assert isinstance(received, Status)
        return received

    async def _send(self, frame: ClientFrame) -> None:
        try:
            await self._socket.send(self._encode(frame))
        except ConnectionClosed as closed:
            raise _lost(self.url, closed) from None

    async def _leave(self, id: str, frames: MemoryObjectReceiveStream[ServerFrame]) -> bool:
        """Cancel, and read to the end, so that no late frame is taken for a new request's."""
        try:
            await self.cancel(id)
        except Unreachable:
            return True  # the daemon cancels what a lost connection leaves
        async for received in frames:
            if isinstance(received, Done | Error):
                break
        return True

    async def _read(self) -> None:
        """Carry frames to who waits for them, until the connection ends."""
        try:
            async for data in self._socket:
                self._receive(data)
        except ConnectionClosed as closed:
            self._lost = _lost(self.url, closed)
        except msgspec.DecodeError:
            self._lost = PageddError(f"what answers at {self.url} is no pagedd")
        finally:
            for inbox in [*self._inboxes.values(), *self._statuses.values()]:
                inbox.close()

    def _receive(self, data: str | bytes) -> None:
        try:
            frame = self._decoder.decode(data if isinstance(data, bytes) else data.encode())
        except msgspec.ValidationError:
            return  # of a type that came after this client
        if isinstance(frame, Status):
            inbox = self._statuses.get(frame.ref) if isinstance(frame.ref, str) else None
        else:
            id = getattr(frame, "id", None)
            inbox = self._inboxes.get(id) if isinstance(id, str) else None
        if inbox is None:
            return
        try:
            inbox.send_nowait(frame)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # Who waited has left; the id is free when the daemon has ended the request.
            if isinstance(frame, Done | Error) and isinstance(frame.id, str):
                self._inboxes.pop(frame.id, None)


def error_of(frame: Error) -> PageddError:
    """An ``error`` frame as the exception of its code, with the exit code that belongs to it."""
    return class_of(frame.code)(
        frame.message,
        detail=frame.detail if isinstance(frame.detail, dict) else None,
        retry_after_ms=frame.retry_after_ms if isinstance(frame.retry_after_ms, int) else None,
    )


async def _open(url: str, key: str | None) -> ClientConnection:
    headers = {"Authorization": f"Bearer {key}"} if key else None
    if url.startswith("unix:"):
        opening = unix_connect(
            url.removeprefix("unix:"),
            uri="ws://localhost/",
            subprotocols=[Subprotocol(SUBPROTOCOL_MSGPACK)],
            additional_headers=headers,
            compression=None,
            open_timeout=HANDSHAKE_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            max_size=MAX_INCOMING_BYTES,
        )
    else:
        opening = connect(
            url,
            subprotocols=[Subprotocol(SUBPROTOCOL_MSGPACK)],
            additional_headers=headers,
            compression=None,
            open_timeout=HANDSHAKE_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            max_size=MAX_INCOMING_BYTES,
            proxy=None,  # a proxy of the environment is for the web, not for one's own daemon
        )
    return await opening


async def _hello(socket: ClientConnection, url: str) -> Hello:
    try:
        with anyio.fail_after(HANDSHAKE_TIMEOUT_S):
            data = await socket.recv(decode=False)
        hello = msgspec.msgpack.decode(data, type=Hello)
    except TimeoutError:
        raise Unreachable(f"the daemon at {url} does not answer") from None
    except ConnectionClosed as closed:
        raise _lost(url, closed) from None
    except msgspec.DecodeError:
        raise PageddError(f"what answers at {url} is no pagedd") from None
    if hello.version != VERSION:
        raise PageddError(
            f"the daemon at {url} speaks version {hello.version} of the protocol, this client "
            f"version {VERSION}"
        )
    return hello


def _lost(url: str, closed: ConnectionClosed) -> Unreachable:
    close = closed.rcvd or closed.sent
    if close is not None and close.code == 1009:
        return Unreachable(f"{url}: a frame was larger than allowed, the connection was closed")
    if close is not None and close.code == 1001:
        return Unreachable(f"the daemon at {url} is shutting down, the connection was closed")
    reason = f": {close.reason}" if close is not None and close.reason else ""
    return Unreachable(f"the connection to the daemon at {url} was lost{reason}")


@contextmanager
def _clean_errors(url: str) -> Iterator[None]:
    """What can go wrong while connecting, as one sentence with the right exit code."""
    try:
        yield
    except InvalidURI:
        raise UsageError(f"{url!r} is no address: unix:PATH or ws://HOST:PORT") from None
    except InvalidStatus as error:
        status = error.response.status_code
        if status == 401:
            raise Unauthorized(f"the daemon at {url} wants a key, or another one") from None
        if status == 503:
            raise Unreachable(f"the daemon at {url} takes no connections (HTTP 503)") from None
        raise PageddError(f"the daemon at {url} refuses the connection (HTTP {status})") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise Unreachable(f"no daemon at {url}: start one with pagedd start") from None
    except TimeoutError:
        raise Unreachable(f"the daemon at {url} does not answer") from None
    except (OSError, EOFError, InvalidMessage) as error:
        raise Unreachable(f"no daemon at {url}: {error}") from None
    except InvalidHandshake as error:
        raise PageddError(f"what answers at {url} is no pagedd: {error}") from None
