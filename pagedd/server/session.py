"""One connection: frames in, requests of its own, an outbox out.

A frame is handled to its end before the next one is read, except that tokenising goes on in a
task of its own, so that a ``cancel`` never waits for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from msgspec import Struct

from pagedd.core.request import Request
from pagedd.errors import BadRequest, DuplicateId, PageddError, RequestNotFound, SlowConsumer
from pagedd.protocol import (
    Cancel,
    ClientFrame,
    Explain,
    Generate,
    Reprioritize,
    Status,
    StatusRequest,
    Subscribe,
    Unsubscribe,
)
from pagedd.server.decode import Codec, RefusedFrame
from pagedd.server.edge import check_frame, check_prompt_length, core_params
from pagedd.server.hub import Hub, Model
from pagedd.server.outbox import Outbox
from pagedd.server.replies import error_frame
from pagedd.server.requests import OpenRequest, cancelled_before_start


@dataclass(frozen=True, slots=True)
class _Preparing:
    """A request whose prompt is being tokenised, or waits for that."""

    frame: Generate
    scope: anyio.CancelScope


GetStatus = Callable[[str | None], Status]
Send = Callable[[bytes], Awaitable[None]]


class Session:
    """Owns the requests of one connection, by their client's id."""

    def __init__(
        self,
        hub: Hub,
        codec: Codec,
        *,
        outbox_bytes: int,
        get_status: GetStatus,
        abort: Callable[[], None],
    ) -> None:
        self.outbox = Outbox(codec, outbox_bytes, self._slow)
        self._hub = hub
        self._codec = codec
        self._get_status = get_status
        self._abort = abort
        self._requests: dict[str, OpenRequest | _Preparing] = {}

    async def run(self, messages: AsyncIterable[str | bytes], send: Send) -> None:
        """Serve until the client is gone; then its requests are cancelled."""
        self.outbox.put(self._hub.hello())
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.outbox.run, send)
                async for message in messages:
                    self._receive(message, tasks)
                tasks.cancel_scope.cancel()
        finally:
            self._abandon_all()

    def ended(self, request: OpenRequest) -> None:
        """Its last frame comes next: the id is free again."""
        if self._requests.get(request.id) is request:
            del self._requests[request.id]

    def _receive(self, message: str | bytes, tasks: TaskGroup) -> None:
        try:
            frame = self._codec.decode(message)
        except RefusedFrame as refused:
            self._refuse(refused.error, id=refused.id, ref=refused.ref)
            return
        self._dispatch(frame, tasks)

    def _refuse(self, error: PageddError, *, id: str | None, ref: str | None) -> None:
        """An id that is open here must not seem to end: then the refusal only refers to it."""
        if id is not None and id in self._requests:
            id, ref = None, id
        self.outbox.put(error_frame(error, id=id, ref=ref))

    def _dispatch(self, frame: ClientFrame, tasks: TaskGroup) -> None:
        match frame:
            case Generate():
                self._generate(frame, tasks)
            case Cancel(id):
                self._cancel(id)
            case StatusRequest(ref):
                self.outbox.put(self._get_status(ref))
            case Explain(id) | Reprioritize(id):
                self._refuse(_not_available(frame), id=None, ref=id)
            case Subscribe() | Unsubscribe():
                self._refuse(_not_available(frame), id=None, ref=None)
            case _:
                assert_never(frame)

    def _generate(self, frame: Generate, tasks: TaskGroup) -> None:
        if frame.id in self._requests:
            error = DuplicateId(f"id: {frame.id!r} is in use by an open request")
            self.outbox.put(error_frame(error, ref=frame.id))
            return
        try:
            model = self._hub.admit()
            check_frame(frame, model.limits)
            if frame.prompt_tokens is not None:
                self._submit(frame, model, frame.prompt_tokens)
                return
        except PageddError as error:
            self.outbox.put(error_frame(error, id=frame.id))
            return
        self._hub.begin_preparing()
        preparing = self._requests[frame.id] = _Preparing(frame, anyio.CancelScope())
        tasks.start_soon(self._prepare, preparing, model)

    async def _prepare(self, preparing: _Preparing, model: Model) -> None:
        """Tokenise in a worker thread, then submit; unless it was cancelled meanwhile."""
        frame = preparing.frame
        try:
            with preparing.scope:
                tokens = await anyio.to_thread.run_sync(
                    partial(_tokenise, frame, model), limiter=self._hub.tokenizer_limiter
                )
            if self._requests.get(frame.id) is not preparing:
                return  # cancelled: answered already, the id may be another's by now
            del self._requests[frame.id]
            self._submit(frame, model, tokens)
        except PageddError as error:
            if self._requests.get(frame.id) is preparing:
                del self._requests[frame.id]
            self.outbox.put(error_frame(error, id=frame.id))
        finally:
            self._hub.end_preparing()

    def _submit(self, frame: Generate, model: Model, tokens: list[int]) -> None:
        check_prompt_length(len(tokens), model.limits)
        params = core_params(frame.params, len(tokens), model.limits)
        handle = self._hub.next_handle()
        salt = (frame.cache_salt or "").encode()
        request = OpenRequest(handle, frame, model.text, len(tokens), self)
        self._hub.submit(request, Request(handle, tuple(tokens), params, frame.priority, salt))
        self._requests[frame.id] = request

    def _cancel(self, id: str) -> None:
        request = self._requests.get(id)
        if request is None:
            error = RequestNotFound(f"no request {id!r} is open on this connection")
            self.outbox.put(error_frame(error, ref=id))
        elif isinstance(request, OpenRequest):
            self._hub.cancel(request)
        else:
            del self._requests[id]
            request.scope.cancel()
            self.outbox.put(cancelled_before_start(request.frame))

    def _slow(self) -> None:
        """The outbox is full. A client without requests that never reads is not worth keeping."""
        requests = self._open()
        if not requests:
            self._abort()
        for request in requests:
            self.outbox.drop(request.handle)
            self._hub.abandon(request)
            del self._requests[request.id]
        for request in requests:
            request.fail(SlowConsumer("the client does not read; the request is cancelled"))

    def _abandon_all(self) -> None:
        for request in self._open():
            self._hub.abandon(request)
        self._requests.clear()

    def _open(self) -> list[OpenRequest]:
        return [found for found in self._requests.values() if isinstance(found, OpenRequest)]


def _tokenise(frame: Generate, model: Model) -> list[int]:
    """In a worker thread. Raises PromptTooLong, or BadRequest when the template refuses."""
    longest = model.limits.max_prompt_tokens
    if frame.prompt is not None:
        return model.text.encode_bounded(frame.prompt, longest)
    messages = [
        {"role": message.role, "content": message.content} for message in frame.messages or ()
    ]
    return model.text.encode_chat(messages, longest)


def _not_available(frame: Struct) -> BadRequest:
    name = type(frame).__name__.lower()
    return BadRequest(f"{name} is not available in this version (see hello.features)")
