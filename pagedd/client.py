"""An asynchronous client: many requests over one connection, for the bench and the dashboard.

It never tries again by itself: whoever uses it knows whether text was shown already.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Self

import anyio
import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from pagedd.codes import class_of
from pagedd.dial import dial
from pagedd.errors import BadRequest, DuplicateId, PageddError, Unreachable
from pagedd.inboxes import Frames, Inboxes, waiting
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
    State,
    Status,
    StatusRequest,
    Subscribe,
    Unsubscribe,
)
from pagedd.reach import CLOSE_TIMEOUT_S, why_lost

LATE_STATES = 64  # frames of the state feed that may wait for a slow reader


class Client:
    """One connection, open inside ``async with Client.connect(…) as client``."""

    def __init__(self, socket: ClientConnection, url: str, hello: Hello) -> None:
        self.url = url
        self.hello = hello
        self._socket = socket
        self._encode = msgspec.msgpack.Encoder().encode
        self._decoder = msgspec.msgpack.Decoder[ServerFrame](ServerFrame)
        # Frames wait without a bound, but those of states, so that one slow reader does not hold up
        # the others.
        self._inboxes = Inboxes()
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
                socket.transport.resume_reading()  # the other side's farewell
                await socket.close()

    def rest(self) -> None:
        """Take nothing in before something is sent again: one waking up then, not one a frame.

        Meanwhile frames wait with the system, and with the daemon when that has no room left.
        """
        self._socket.transport.pause_reading()

    async def generate(self, frame: Generate) -> AsyncIterator[ServerFrame]:
        """Send the request and yield its frames; the last is ``done``.

        An ``error`` frame is raised as the PageddError of its code, a lost connection as
        Unreachable. Leaving the iteration early cancels the request and waits a moment for its end.
        """
        if frame.id in self._inboxes.requests:
            raise DuplicateId(f"id: {frame.id!r} is in use by an open request")
        inbox, frames = anyio.create_memory_object_stream[ServerFrame](math.inf)
        self._inboxes.requests[frame.id] = inbox
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
                self._inboxes.requests.pop(frame.id).close()

    async def cancel(self, id: str) -> None:
        """End a request; its ``generate`` yields ``done``. Harmless when it has ended."""
        await self._send(Cancel(id))

    async def status(self) -> Status:
        """The daemon's status. Raises Unreachable when the connection is lost."""
        ref = f"status-{next(self._refs)}"
        with waiting(self._inboxes.statuses, ref) as frames:
            await self._send(StatusRequest(ref))
            status = await self._next(frames)
        assert isinstance(status, Status)
        return status

    async def explain(self, id: str) -> Explanation:
        """Where a request is and why, or how it ended. ``#17`` names any request by its handle.

        A request of this connection comes first. Raises RequestNotFound, BadRequest when several
        connections have one of this name, EngineFailed, Unreachable.
        """
        with waiting(self._inboxes.questions, id) as frames:
            await self._send(Explain(id))
            received = await self._next(frames)
        if isinstance(received, Error):
            raise error_of(received)
        assert isinstance(received, Explanation)
        return received

    async def stop(self, id: str) -> None:
        """End a request of this connection, or any by its handle, ``#17``.

        As :meth:`cancel`, but raises RequestNotFound when it has ended.
        """
        await self._command(Cancel(id))

    async def reprioritize(self, id: str, priority: int) -> None:
        """Another priority for a request of this connection, or for any by its handle, ``#17``.

        Raises RequestNotFound when it has ended, BadRequest, Unreachable.
        """
        await self._command(Reprioritize(id, priority))

    async def events(self, history: int = 0) -> AsyncGenerator[Event, None]:
        """What the daemon decides, as it happens; first the last ``history`` events.

        It ends when the iteration is left; one at a time. Raises BadRequest for a second one, and
        for more history than a daemon has, Unreachable when the connection is lost.
        """
        if not 0 <= history <= MAX_HISTORY:
            raise BadRequest(f"history: {history} does not lie in 0 to {MAX_HISTORY}")
        async with aclosing(self._feed(Subscribe("events", history=history), math.inf)) as frames:
            async for frame in frames:
                assert isinstance(frame, Event)
                yield frame

    async def state(self, hz: float = 10.0) -> AsyncGenerator[State, None]:
        """Every page and every sequence, up to ``hz`` times a second: a keyframe, then the changes.

        One at a time. It ends when the iteration is left, and by itself when its reader was too
        slow. Then, and when frames are missing because their numbers do not follow, begin again: at
        first may come late frames of the feed before, up to the keyframe. Raises BadRequest for a
        second one, and for another rate than 0.1 to 30, Unreachable when the connection is lost.
        """
        if not 0.1 <= hz <= 30:
            raise BadRequest(f"hz: {hz} does not lie in 0.1 to 30")
        async with aclosing(self._feed(Subscribe("state", hz=hz), LATE_STATES)) as frames:
            async for frame in frames:
                assert isinstance(frame, State)
                yield frame

    async def _feed(self, subscribe: Subscribe, room: float) -> AsyncGenerator[ServerFrame, None]:
        topic, feeds, overrun = subscribe.topic, self._inboxes.feeds, self._inboxes.overrun
        if topic in feeds:
            raise BadRequest(f"the feed {topic!r} of this connection is being read already")
        inbox, frames = anyio.create_memory_object_stream[ServerFrame](room)
        feeds[topic] = inbox
        overrun.discard(topic)
        try:
            await self._send(subscribe)
            async for frame in frames:
                yield frame
            if topic not in overrun:
                raise self._gone()
        finally:
            if feeds.get(topic) is inbox:
                del feeds[topic]
            inbox.close()
            frames.close()
            if self._lost is None:
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT_S):
                    await self._unsubscribe(Unsubscribe(topic))

    async def _command(self, frame: Cancel | Reprioritize) -> None:
        with waiting(self._inboxes.questions, frame.id) as frames:
            await self._send(frame)
            await self.status()  # only a refusal is answered, and before this
            try:
                refusal = frames.receive_nowait()
            except anyio.WouldBlock:
                return
        assert isinstance(refusal, Error)
        raise error_of(refusal)

    async def _send(self, frame: ClientFrame) -> None:
        self._socket.transport.resume_reading()
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

    async def _unsubscribe(self, frame: Unsubscribe) -> None:
        try:
            await self._send(frame)
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
            self._inboxes.close()

    def _receive(self, data: str | bytes) -> None:
        try:
            frame = self._decoder.decode(data if isinstance(data, bytes) else data.encode())
        except msgspec.ValidationError:
            return  # of a type that came after this client
        self._inboxes.deliver(frame)


def error_of(frame: Error) -> PageddError:
    """An ``error`` frame as the exception of its code, with the exit code that belongs to it."""
    return class_of(frame.code)(
        frame.message,
        detail=frame.detail if isinstance(frame.detail, dict) else None,
        retry_after_ms=frame.retry_after_ms if isinstance(frame.retry_after_ms, int) else None,
    )
