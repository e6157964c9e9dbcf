"""A daemon as a source: connects, subscribes, and comes back when the connection is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from pagedd.client import Client
from pagedd.errors import PageddError, Unreachable, UsageError
from pagedd.protocol import Event, Explanation
from pagedd_tui.model import BrokenFrame, Model
from pagedd_tui.source import LIVE, Item, Lost

HISTORY = 200  # events from before, at each connection
STATUS_S = 1.0
LEAST_RETRY_S, MOST_RETRY_S = 0.5, 5.0
AGAIN_S = 0.25  # from a feed that broke to the next subscription
MOST_LATE = 30  # frames of a feed that was left, before the keyframe of the next
_ROOM = 1000  # items that may wait for the reader of ``items``

Sleep = Callable[[float], Awaitable[None]]
Out = MemoryObjectSendStream[Item]


class LiveSource:
    """The daemon at ``url``. Every frame it gives can be taken in by a model.

    ``random`` gives numbers from 0 to 1, for pauses of different length: many dashboards should
    not come back at the same moment. ``hz`` can be changed: from the next frame on.
    """

    can_command = True

    def __init__(
        self,
        url: str,
        key: str | None = None,
        hz: float = 10.0,
        *,
        sleep: Sleep = anyio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.url = url
        self.title = LIVE
        self.hz = hz
        self._key = key
        self._sleep = sleep
        self._random = random
        self._client: Client | None = None
        self._failures = 0  # in a row, to connect and get a picture
        self._missed = 0  # events, since that was told
        self._missed_until = 0.0

    async def items(self) -> AsyncIterator[Item]:
        """What the daemon sends, until the iteration is left.

        Raises UsageError alone: when ``url`` is no address.
        """
        out, items = anyio.create_memory_object_stream[Item](_ROOM)
        # A task group cannot be open where a generator gives something out; this task is ended,
        # and waited for, below.
        work = asyncio.create_task(self._work(out))
        try:
            async for item in items:
                yield item
            await work
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            items.close()

    async def explain(self, handle: int) -> Explanation:
        """Why a request is where it is. Raises PageddError."""
        return await self._connected().explain(f"#{handle}")

    async def cancel(self, handle: int) -> None:
        """End a request. Raises PageddError."""
        await self._connected().stop(f"#{handle}")

    async def reprioritize(self, handle: int, priority: int) -> None:
        """Another priority. Raises PageddError."""
        await self._connected().reprioritize(f"#{handle}", priority)

    def _connected(self) -> Client:
        if self._client is None:
            raise Unreachable("there is no connection to the daemon")
        return self._client

    async def _work(self, out: Out) -> None:
        with out:
            while True:
                reason = await self._converse(out)
                pause = self._pause()
                self._failures += 1
                await out.send(Lost(reason, pause))
                await self._sleep(pause)

    async def _converse(self, out: Out) -> str:
        """One connection from beginning to end; why it ended."""
        try:
            async with Client.connect(self.url, self._key) as client:
                if "state" not in client.hello.features:
                    raise PageddError("this daemon is too old: it does not tell of its pages")
                self._client = client
                await out.send(client.hello)
                return await self._listen(client, out)
        except UsageError:
            raise
        except PageddError as error:
            return error.message
        finally:
            self._client = None

    async def _listen(self, client: Client, out: Out) -> str:
        """All feeds at once, until one of them fails; why it did."""
        reasons: list[str] = []

        async def run(feed: Callable[[Client, Out], Awaitable[None]]) -> None:
            try:
                await feed(client, out)
            except PageddError as error:
                reasons.append(error.message)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for feed in (self._states, self._events, self._statuses):
                tasks.start_soon(run, feed)
        return reasons[0]

    async def _states(self, client: Client, out: Out) -> None:
        """Frames that fold. When one does not, there is a gap: subscribe again.

        So too when the feed ends by itself, because the reader of all this was too slow.
        """
        while True:
            model, late, hz = Model(), 0, self.hz
            async with aclosing(client.state(hz)) as frames:
                async for frame in frames:
                    if not model.frame and not frame.key and late < MOST_LATE:
                        late += 1
                        continue
                    try:
                        model.take(frame)
                    except BrokenFrame:
                        break
                    self._failures = 0
                    await out.send(frame)
                    if self.hz != hz:
                        break
            if self.hz == hz:
                await self._sleep(AGAIN_S)

    async def _events(self, client: Client, out: Out) -> None:
        """Events, without waiting for a reader that is slow: it is told how many it missed."""
        self._missed = 0
        async with aclosing(client.events(HISTORY)) as events:
            async for event in events:
                self._missed_until = event.at
                try:
                    self._tell_missed(out)
                    out.send_nowait(event)
                except anyio.WouldBlock:
                    self._missed += 1

    def _tell_missed(self, out: Out) -> None:
        if self._missed:
            out.send_nowait(_missed(self._missed, self._missed_until))
            self._missed = 0

    async def _statuses(self, client: Client, out: Out) -> None:
        while True:
            await out.send(await client.status())
            with suppress(anyio.WouldBlock):
                self._tell_missed(out)  # if no event follows
            pause = 1 / self.hz
            if pause > STATUS_S:  # pictures are rare: what comes meanwhile is taken in at one time
                client.rest()
            await self._sleep(max(STATUS_S, pause))

    def _pause(self) -> float:
        most = min(LEAST_RETRY_S * 2.0 ** (self._failures + 1), MOST_RETRY_S)
        return LEAST_RETRY_S + (most - LEAST_RETRY_S) * self._random()


def _missed(count: int, at: float) -> Event:
    events = "1 event was" if count == 1 else f"{count:,} events were"
    return Event(at=at, kind="missed", text=f"{events} missed, they came too fast.", count=count)
