"""One HTTP request as a client of the hub: one ``generate`` frame for each of its prompts."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from pagedd.errors import PageddError, SlowConsumer
from pagedd.protocol import Generate
from pagedd.server.choices import cancelled_before_start
from pagedd.server.edge import check_frame
from pagedd.server.http.mailbox import Mailbox
from pagedd.server.hub import Hub
from pagedd.server.intake import Prompt, prepare_aside, ready, submit
from pagedd.server.model import Model
from pagedd.server.replies import error_frame
from pagedd.server.requests import OpenRequest, Preparing


class Caller:
    """Owns what it has asked for. Implements ``requests.Client``."""

    def __init__(self, hub: Hub, limit: int) -> None:
        self.connection = hub.next_connection()
        self.outbox = Mailbox(limit, self._slow)
        self._hub = hub
        self._open: dict[int, OpenRequest | Preparing] = {}
        self.gave_up = anyio.Event()  # the client does not read

    async def ask(self, model: Model, frames: list[Generate]) -> list[int]:
        """Tokenise all, then submit all: their handles, in the order of the frames.

        Raises PageddError when one of them is refused; the others have been given up then.
        """
        for frame in frames:
            check_frame(frame, model.limits)
        preparing = [Preparing(self._hub.next_handle(), frame, self) for frame in frames]
        try:
            prompts: list[Prompt | None] = []
            for each in preparing:  # all with the same parameters: one request of HTTP
                known = next((prompt for prompt in prompts if prompt is not None), None)
                prompts.append(await self._prompt(each, model, known))
            for each, prompt in zip(preparing, prompts, strict=True):
                await anyio.lowlevel.checkpoint()  # others have their turn between a thousand
                if prompt is None:
                    continue  # somebody else has cancelled it, and the mailbox says so
                # with the priority that it may have got meanwhile
                frame = each.frame
                request = submit(self._hub, self, each.handle, frame, model, prompt, each.arrived)
                self._open[each.handle] = request
        except BaseException:
            self.abandon()
            raise
        return [each.handle for each in preparing]

    def ended(self, request: OpenRequest) -> None:
        """Its last frame comes next."""
        self._open.pop(request.handle, None)

    def withdraw(self, preparing: Preparing, error: PageddError | None = None) -> None:
        """End what the engine does not know yet: it was cancelled, or has failed with ``error``."""
        preparing.scope.cancel()
        frame = cancelled_before_start(preparing.frame) if error is None else error_frame(error)
        self.outbox.put(frame, preparing.handle)

    def abandon(self) -> None:
        """Nobody will read the rest."""
        for request in self._open.values():
            if isinstance(request, OpenRequest):
                self._hub.abandon(request)
            else:
                request.scope.cancel()
        self._open.clear()

    async def _prompt(
        self, preparing: Preparing, model: Model, like: Prompt | None
    ) -> Prompt | None:
        """None: it was cancelled meanwhile."""
        frame = preparing.frame
        prompt = ready(frame)
        if prompt is not None:
            return prompt
        self._hub.begin_preparing(preparing)
        self._open[preparing.handle] = preparing
        try:
            with preparing.scope:
                return await prepare_aside(self._hub, frame, model, like)
        finally:
            self._open.pop(preparing.handle, None)
            self._hub.end_preparing(preparing)
        return None

    def _slow(self) -> None:
        """The mailbox is full: the client does not read."""
        self.gave_up.set()
        requests = [each for each in self._open.values() if isinstance(each, OpenRequest)]
        for request in requests:
            self.outbox.drop(request.handle)
            self._hub.abandon(request)
        for request in requests:
            request.fail(SlowConsumer("the client does not read; the request is cancelled"))
