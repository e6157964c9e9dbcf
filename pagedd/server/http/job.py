"""One HTTP request under way: what was asked, and how its entries become an answer or a stream."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

import anyio
import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagedd.errors import Cancelled, PageddError
from pagedd.protocol import Accepted, Done, Error, Generate, Started
from pagedd.server.http.answers import Usage
from pagedd.server.http.caller import Caller
from pagedd.server.http.refuse import error_answer, error_of, json_response
from pagedd.server.model import Model
from pagedd.server.outbox import Piece

SLOW_GRACE_S = 5.0
ABORT = "pagedd.abort"  # the extension of a scope that cuts its connection
END_OF_STREAM = b"data: [DONE]\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy must not wait for more
]
_encode = msgspec.json.Encoder().encode
T = TypeVar("T")


class ClientGone(Exception):
    """Nobody is there to answer."""


def event(body: Struct) -> bytes:
    """One server-sent event."""
    return b"data: " + _encode(body) + b"\n\n"


class Writer(Protocol):
    """Makes events of what happens. ``prompt`` counts the prompts of the request."""

    def piece(self, prompt: int, piece: Piece) -> Iterable[Struct]:
        """New text of a choice."""

    def end(self, usage: Usage) -> Iterable[Struct]:
        """All choices have ended."""

    def whole(self, results: list[Done]) -> Struct:
        """The answer that is not streamed; one of ``results`` for each prompt."""


class Job:
    """Created when the engine has accepted all prompts; see :meth:`begin`.

    ``retell``: how errors of a request are told, where its frame is not what the client wrote.
    """

    def __init__(
        self,
        caller: Caller,
        model: Model,
        frames: list[Generate],
        id: str,
        retell: Callable[[PageddError], PageddError] = lambda error: error,
    ) -> None:
        self.id = id
        self.created = int(time.time())
        self.model = model
        self.frames = frames
        self._caller = caller
        self._retell = retell
        self._order: dict[int, int] = {}  # handle → prompt
        self._first: list[tuple[int, Struct | Piece]] = []
        self.prompt_tokens = [0] * len(frames)
        self.cached_tokens = [0] * len(frames)
        self.completion_tokens = [0] * len(frames)

    async def begin(self) -> None:
        """Hand all to the engine, and wait until it has them. Raises PageddError."""
        handles = await self._caller.ask(self.model, self.frames)
        self._order = {handle: at for at, handle in enumerate(handles)}
        waiting = set(handles)
        while waiting:
            entries = await self._caller.outbox.take()
            self._first += entries
            for handle, entry in entries:
                if isinstance(entry, Error):
                    raise self._retell(error_of(entry))
                if isinstance(entry, Accepted | Done):
                    waiting.discard(handle)

    @property
    def usage(self) -> Usage:
        """So far; each prompt once."""
        prompt, completion = sum(self.prompt_tokens), sum(self.completion_tokens)
        return Usage.of(prompt, completion, sum(self.cached_tokens))

    async def results(self) -> list[Done]:
        """Of each prompt, when all have ended. Raises PageddError."""
        found: dict[int, Done] = {}
        entries, self._first = self._first, []
        while True:
            for handle, entry in entries:
                self._note(handle, entry)
                if isinstance(entry, Error):
                    raise self._retell(error_of(entry))
                if isinstance(entry, Done):
                    found[handle] = _unless_cancelled(entry)
            if len(found) == len(self._order):
                return [found[handle] for handle in self._order]
            entries = await self._caller.outbox.take()

    async def events(self, writer: Writer, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send everything as events, to the end of the stream."""
        left = len(self._order)
        entries, self._first = self._first, []
        try:
            while left:
                parts: list[bytes] = []
                for handle, entry in entries:
                    self._note(handle, entry)
                    if isinstance(entry, Piece):
                        if entry.finish_reason != "cancelled":
                            prompt = self._order[handle]
                            parts += map(event, writer.piece(prompt, entry))
                    elif isinstance(entry, Done):
                        _unless_cancelled(entry)
                        left -= 1
                    elif isinstance(entry, Error):
                        raise self._retell(error_of(entry))
                if not left:
                    parts += map(event, writer.end(self.usage))
                    parts.append(END_OF_STREAM)
                if parts:
                    await send(b"".join(parts))
                if left:
                    entries = await self._caller.outbox.take()
        except PageddError as error:
            await send(event(error_answer(error)) + END_OF_STREAM)

    async def gave_up(self) -> None:
        """Wait until the client has left so much unread that its requests are cancelled."""
        await self._caller.gave_up.wait()

    def abandon(self) -> None:
        """Whatever still runs is of no use to anybody."""
        self._caller.abandon()

    def _note(self, handle: int, entry: Struct | Piece) -> None:
        at = self._order[handle]
        match entry:
            case Piece():
                self.completion_tokens[at] += len(entry.tokens)
            case Accepted():
                self.prompt_tokens[at] = entry.prompt_tokens
            case Started():
                self.cached_tokens[at] = entry.cached_tokens
            case Done():
                usage = entry.usage
                self.prompt_tokens[at] = usage.prompt_tokens
                self.completion_tokens[at] = usage.completion_tokens
                self.cached_tokens[at] = usage.cached_tokens


class EventStream:
    """An ASGI answer: the events of a job, until its end or its client's."""

    def __init__(self, job: Job, writer: Writer) -> None:
        self._job = job
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A client that leaves ends the job."""

        async def body(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        async def stream() -> None:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._job.events(self._writer, body)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        abort: Callable[[], None] = scope["extensions"][ABORT]
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._cut_off, abort)
                with suppress(ClientGone):
                    await unless_gone(receive, stream)
                tasks.cancel_scope.cancel()
        finally:
            self._job.abandon()

    async def _cut_off(self, abort: Callable[[], None]) -> None:
        """A client that does not read is told so, and has a while to read that."""
        await self._job.gave_up()
        await anyio.sleep(SLOW_GRACE_S)
        abort()


async def carry_out(
    job: Job, writer: Writer, receive: Receive, *, stream: bool
) -> Response | EventStream:
    """The answer of a job, when the engine has all of it; or its stream, when that can begin.

    Raises PageddError, ClientGone; the job has been given up then.
    """
    try:
        if stream:
            await unless_gone(receive, job.begin)
            return EventStream(job, writer)

        async def work() -> list[Done]:
            await job.begin()
            return await job.results()

        return json_response(writer.whole(await unless_gone(receive, work)))
    except BaseException:
        job.abandon()
        raise


async def unless_gone(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """What ``work`` gives, or the PageddError that it raises.

    Raises ClientGone when the client leaves first; then ``work`` is cancelled.

    The request's body has been read.
    """
    results: list[T] = []
    failures: list[PageddError] = []

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            results.append(await work())
        except PageddError as error:  # as it is, and not in a group of the tasks' errors
            failures.append(error)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not results:
        raise ClientGone
    return results[0]


def _unless_cancelled(done: Done) -> Done:
    if any(choice.finish_reason == "cancelled" for choice in done.choices):
        raise Cancelled("the request was cancelled")
    return done
