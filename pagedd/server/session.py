"""One connection: frames in, requests of its own, an outbox out.

A frame is handled to its end before the next one is read, except that tokenising goes on in a
task of its own, so that a ``cancel`` never waits for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from functools import partial
from typing import assert_never

import anyio
import msgspec
from anyio.abc import TaskGroup

from pagedd.errors import DuplicateId, PageddError, RequestNotFound, SlowConsumer
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
from pagedd.server.choices import cancelled_before_start
from pagedd.server.decode import Codec, RefusedFrame
from pagedd.server.directory import handle_in
from pagedd.server.edge import check_frame
from pagedd.server.hub import Hub
from pagedd.server.intake import Prompt, aside, prepare_aside, ready, submit
from pagedd.server.model import Model
from pagedd.server.outbox import Outbox, Wire
from pagedd.server.refusal import takes_long
from pagedd.server.replies import error_frame
from pagedd.server.requests import OpenRequest, Preparing

GetStatus = Callable[[str | None], Status]


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
        self.connection = hub.next_connection()
        self.outbox = Outbox(codec, outbox_bytes, self._slow, self._caught_up)
        self._hub = hub
        self._codec = codec
        self._get_status = get_status
        self._abort = abort
        self._requests: dict[str, OpenRequest | Preparing] = {}

    async def run(self, messages: AsyncIterable[str | bytes], wire: Wire) -> None:
        """Serve until the client is gone; then its requests are cancelled."""
        self.outbox.put(self._hub.hello())
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.outbox.run, wire)
                async for message in messages:
                    await self._receive(message, tasks)
                self._abandon_all()  # now: what tokenises cannot be interrupted
                tasks.cancel_scope.cancel()
        finally:
            self._abandon_all()

    def ended(self, request: OpenRequest) -> None:
        """Its last frame comes next: the id is free again."""
        if self._requests.get(request.id) is request:
            del self._requests[request.id]

    def withdraw(self, preparing: Preparing, error: PageddError | None = None) -> None:
        """End what the engine does not know yet: it was cancelled, or has failed with ``error``."""
        del self._requests[preparing.id]
        preparing.scope.cancel()
        if error is None:
            self.outbox.put(cancelled_before_start(preparing.frame))
        else:
            self.outbox.put(error_frame(error, id=preparing.id))

    async def _receive(self, message: str | bytes, tasks: TaskGroup) -> None:
        try:
            if not takes_long(message, json=self._codec.json):
                frame = self._codec.decode(message)
            else:
                frame = await aside(self._hub, partial(self._codec.decode, message), "frame")
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
                self._hub.state_feed.flush(self.outbox)  # so that both are of the same moment
                self.outbox.put(self._get_status(ref))
            case Explain(id):
                self._explain(id)
            case Reprioritize(id, priority):
                self._reprioritize(id, priority)
            case Subscribe():
                self._subscribe(frame)
            case Unsubscribe(topic):
                feed = self._hub.state_feed if topic == "state" else self._hub.feed
                feed.unsubscribe(self.outbox)
            case _:
                assert_never(frame)

    def _subscribe(self, frame: Subscribe) -> None:
        if frame.topic == "state":
            self._hub.state_feed.subscribe(self.outbox, frame.hz)
        else:
            self._hub.feed.subscribe(self.outbox, frame.history)

    def _generate(self, frame: Generate, tasks: TaskGroup) -> None:
        if frame.id in self._requests:
            error = DuplicateId(f"id: {frame.id!r} is in use by an open request")
            self.outbox.put(error_frame(error, ref=frame.id))
            return
        try:
            model = self._hub.admit()
            check_frame(frame, model.limits)
            prompt = ready(frame)
            if prompt is not None:
                self._submit(self._hub.next_handle(), frame, model, prompt)
                return
        except PageddError as error:
            self.outbox.put(error_frame(error, id=frame.id))
            return
        preparing = self._requests[frame.id] = Preparing(self._hub.next_handle(), frame, self)
        self._hub.begin_preparing(preparing)
        tasks.start_soon(self._prepare, preparing, model)

    async def _prepare(self, preparing: Preparing, model: Model) -> None:
        """Tokenise in a worker thread, then submit; unless it was cancelled meanwhile."""
        frame = preparing.frame
        try:
            with preparing.scope:
                prompt = await prepare_aside(self._hub, frame, model)
            if self._requests.get(frame.id) is not preparing:
                return  # cancelled: answered already, the id may be another's by now
            del self._requests[frame.id]
            # with the priority that it may have got meanwhile
            self._submit(preparing.handle, preparing.frame, model, prompt, preparing.arrived)
        except PageddError as error:
            if preparing.withdrawn:
                return  # what came of it later is no second answer
            if self._requests.get(frame.id) is preparing:
                del self._requests[frame.id]
            self.outbox.put(error_frame(error, id=frame.id))
        finally:
            self._hub.end_preparing(preparing)

    def _submit(
        self,
        handle: int,
        frame: Generate,
        model: Model,
        prompt: Prompt,
        arrived: float | None = None,
    ) -> None:
        request = submit(self._hub, self, handle, frame, model, prompt, arrived)
        self._requests[frame.id] = request

    def _cancel(self, id: str) -> None:
        request = self._named(id)
        if isinstance(request, OpenRequest):
            self._hub.cancel(request)
        elif request is not None:
            request.client.withdraw(request)

    def _reprioritize(self, id: str, priority: int) -> None:
        request = self._named(id)
        if isinstance(request, OpenRequest):
            self._hub.reprioritize(request, priority)
        elif request is not None:
            request.frame = msgspec.structs.replace(request.frame, priority=priority)

    def _explain(self, id: str) -> None:
        try:
            self._hub.inquiries.ask(id, self, self._requests.get(id))
        except PageddError as error:
            self.outbox.put(error_frame(error, ref=id))

    def _named(self, id: str) -> OpenRequest | Preparing | None:
        """The own request with this id, or any one by its handle: no other's can be meant by error.

        The client is told when there is none.
        """
        request, handle = self._requests.get(id), handle_in(id)
        if request is None and handle is not None:
            request = self._hub.directory.by_handle(handle)
        if request is None:
            where = " on this connection" if handle is None else ""
            error = RequestNotFound(f"no request {id!r} is open{where}")
            self.outbox.put(error_frame(error, ref=id))
        return request

    def _caught_up(self) -> None:
        """All that was queued is sent: what waited for room comes now."""
        self._hub.feed.resume(self.outbox)

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
        for request in self._requests.values():
            if isinstance(request, OpenRequest):
                self._hub.abandon(request)
            else:
                request.scope.cancel()
        self._requests.clear()
        self._hub.feed.unsubscribe(self.outbox)
        self._hub.state_feed.unsubscribe(self.outbox)
        self._hub.inquiries.forget(self.outbox)

    def _open(self) -> list[OpenRequest]:
        return [found for found in self._requests.values() if isinstance(found, OpenRequest)]
