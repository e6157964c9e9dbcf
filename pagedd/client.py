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
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from pagedd.codes import class_of
from pagedd.dial import dial
from pagedd.errors import BadRequest, DuplicateId, PageddError, Unreachable
from pagedd.protocol import (
    MAX_HISTORY,
    Cancel,
    ClientFrame,
    Done,
    Error,
    Event,
    Explain,
    Explanation,
    Generate,
    Hello,
    Reprioritize,
    ServerFrame,
    Status,
    StatusRequest,
    Subscribe,
    Unsubscribe,
)
from pagedd.reach import CLOSE_TIMEOUT_S, why_lost

Inbox = MemoryObjectSendStream[ServerFrame]
Frames = MemoryObjectReceiveStream[ServerFrame]


class Client:
    """One connection, open inside ``async with Client.connect(…) as client``."""

    def __init__(self, socket: ClientConnection, url: str, hello: Hello) -> None:
        self.url = url
        self.hello = hello
        self._socket = socket
        self._encode = msgspec.msgpack.Encoder().encode
        self._decoder = msgspec.msgpack.Decoder[ServerFrame](ServerFrame)
        # Frames wait here without a bound, so that one slow reader does not hold up the others.
        self._inboxes: dict[str, Inbox] = {}
        self._statuses: dict[str, list[Inbox]] = {}  # ref → who waits for its answer
        self._questions: dict[str, list[Inbox]] = {}  # id → who asked about it
        self._events: Inbox | None = None
        self._refs = itertools.count(1)
        self._lost: PageddError | None = None

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, key: str | None = None) -> AsyncIterator[Self]:
        """Connect to ``unix:PATH`` or ``ws://HOST:PORT``.

        Raises Unreachable when no daemon answers, Unauthorized when it wants a key, PageddError
        for any other refusal, UsageError when ``url`` is no address.
        """
        socket, hello = await dial(url, key)
        try:
            client = cls(socket, url, hello)
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
            raise self._gone()
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
        with _waiting(self._statuses, ref) as frames:
            await self._send(StatusRequest(ref))
            status = await self._next(frames)
        assert isinstance(status, Status)
        return status

    async def explain(self, id: str) -> Explanation:
        """Where a request is and why, or how it ended. ``#17`` names any request by its handle.

        A request of this connection comes first. Raises RequestNotFound, BadRequest when several
        connections have one of this name, EngineFailed, Unreachable.
        """
        with _waiting(self._questions, id) as frames:
            await self._send(Explain(id))
            received = await self._next(frames)
        if isinstance(received, Error):
            raise error_of(received)
        assert isinstance(received, Explanation)
        return received

    async def reprioritize(self, id: str, priority: int) -> None:
        """Another priority for a request of this connection, or for any by its handle, ``#17``.

        Raises RequestNotFound when it has ended, BadRequest, Unreachable.
        """
        with _waiting(self._questions, id) as frames:
            await self._send(Reprioritize(id, priority))
            await self.status()  # only a refusal is answered, and before this
            try:
                refusal = frames.receive_nowait()
            except anyio.WouldBlock:
                return
        assert isinstance(refusal, Error)
        raise error_of(refusal)

    async def events(self, history: int = 0) -> AsyncIterator[Event]:
        """What the daemon decides, as it happens; first the last ``history`` events.

        It ends when the iteration is left; one at a time. Raises BadRequest for a second one, and
        for more history than a daemon has, Unreachable when the connection is lost.
        """
        if not 0 <= history <= MAX_HISTORY:
            raise BadRequest(f"history: {history} does not lie in 0 to {MAX_HISTORY}")
        if self._events is not None:
            raise BadRequest("the events of this connection are being read already")
        inbox, frames = anyio.create_memory_object_stream[ServerFrame](math.inf)
        self._events = inbox
        try:
            await self._send(Subscribe("events", history=history))
            async for event in frames:
                assert isinstance(event, Event)
                yield event
            raise self._gone()
        finally:
            self._events = None
            inbox.close()
            frames.close()
            if self._lost is None:
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT_S):
                    await self._leave_events()

    async def _send(self, frame: ClientFrame) -> None:
        try:
            await self._socket.send(self._encode(frame))
        except ConnectionClosed as closed:
            raise Unreachable(why_lost(closed)) from None

    async def _next(self, frames: Frames) -> ServerFrame:
        try:
            return await frames.receive()
        except anyio.EndOfStream:
            raise self._gone() from None

    def _gone(self) -> PageddError:
        return self._lost or Unreachable(f"the connection to {self.url} was closed")

    async def _leave_events(self) -> None:
        try:
            await self._send(Unsubscribe("events"))
        except Unreachable:
            return  # the daemon forgets what a lost connection subscribed to

    async def _leave(self, id: str, frames: Frames) -> bool:
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
            self._lost = Unreachable(why_lost(closed))
        except msgspec.DecodeError:
            self._lost = PageddError(f"what answers at {self.url} is no pagedd")
        finally:
            for inbox in self._everyone():
                inbox.close()

    def _everyone(self) -> list[Inbox]:
        """Who waits for something."""
        askers = [*self._statuses.values(), *self._questions.values()]
        events = [] if self._events is None else [self._events]
        return [*self._inboxes.values(), *itertools.chain(*askers), *events]

    def _receive(self, data: str | bytes) -> None:
        try:
            frame = self._decoder.decode(data if isinstance(data, bytes) else data.encode())
        except msgspec.ValidationError:
            return  # of a type that came after this client
        inbox = self._addressee(frame)
        if inbox is None:
            return
        try:
            inbox.send_nowait(frame)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # Who waited has left; the id is free when the daemon has ended the request.
            if isinstance(frame, Done | Error) and isinstance(frame.id, str):
                self._inboxes.pop(frame.id, None)

    def _addressee(self, frame: ServerFrame) -> Inbox | None:
        """Who waits for this frame. Who asked a question waits no more when it is answered."""
        match frame:
            case Status(ref=str(ref)):
                line, place = self._statuses.get(ref), 0
            case Explanation(id=id):
                line, place = self._questions.get(id), 0
            case Error(id=msgspec.UNSET, ref=str(ref)):
                line, place = self._questions.get(ref), -1  # refusals are quick: it asked last
            case Event():
                return self._events
            case _:
                own = getattr(frame, "id", None)
                return self._inboxes.get(own) if isinstance(own, str) else None
        return line.pop(place) if line else None


@contextmanager
def _waiting(lines: dict[str, list[Inbox]], key: str) -> Iterator[Frames]:
    """Stand in line for an answer."""
    inbox, frames = anyio.create_memory_object_stream[ServerFrame](1)
    line = lines.setdefault(key, [])
    line.append(inbox)
    with inbox, frames:
        try:
            yield frames
        finally:
            if inbox in line:
                line.remove(inbox)
            if not line and lines.get(key) is line:
                del lines[key]


def error_of(frame: Error) -> PageddError:
    """An ``error`` frame as the exception of its code, with the exit code that belongs to it."""
    return class_of(frame.code)(
        frame.message,
        detail=frame.detail if isinstance(frame.detail, dict) else None,
        retry_after_ms=frame.retry_after_ms if isinstance(frame.retry_after_ms, int) else None,
    )
