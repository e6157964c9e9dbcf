"""Questions to the daemon while somebody looks: why the next waits, and all about one request."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from pagedd.errors import PageddError
from pagedd.protocol import Event, Explanation, Record, SequenceRow
from pagedd_tui.columns import first_waiting
from pagedd_tui.feed import Feed
from pagedd_tui.glance import reason_of
from pagedd_tui.source import Source
from pagedd_tui.story import present_of

_PATIENCE_S = 3.0


class Inquiry:
    """The latest answers. ``named``: the handle of the first of the queue, as the daemon says."""

    def __init__(self, source: Source, feed: Feed) -> None:
        self._source, self._feed = source, feed
        self.named: int | None = None
        self.reason: Record | None = None  # why ``named`` waits
        self.subject: int | None = None
        self.explanation: Explanation | None = None
        self.note = ""  # why there is no newer explanation of the subject
        self.version = 0
        self._heard: Event | None = None

    def look_at(self, handle: int | None) -> None:
        """Whom the next questions are about."""
        if handle != self.subject:
            self.subject, self.explanation, self.note = handle, None, ""

    def forget(self) -> None:
        """Another daemon: what was answered is of no use."""
        self.named, self.reason, self.explanation = None, None, None

    async def ask(self) -> None:
        """One round. A daemon that does not answer is not waited for."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._ask_next()
                await self._ask_subject()
        except TimeoutError:
            self.note = "the daemon does not answer"
        self.version += 1

    def next_row(self) -> SequenceRow | None:
        """The first of the queue."""
        self._hear()
        key = first_waiting(self._feed.model.rows, self.named)
        return None if key is None else self._feed.model.rows[key]

    def _hear(self) -> None:
        """An event is newer than an answer when it is about another request."""
        event = self._feed.first_waiting
        if event is None or not isinstance(event.handle, int) or self._heard is event:
            return
        self._heard = event
        self.named, self.reason = event.handle, reason_of([event], event.handle, event.index)

    async def _ask_next(self) -> None:
        row = self.next_row()
        if row is None:
            self.reason = None
            return
        try:
            explanation = await self._source.explain(row.handle)
        except PageddError:
            return  # a recording has no answers; the last event has the reason
        present = present_of(explanation)
        first = next((each for each in present if each.kind == "waiting" and not each.ahead), None)
        if first is not None and isinstance(first.handle, int):
            self.named = first.handle
            self.reason = reason_of(present, first.handle, first.index)

    async def _ask_subject(self) -> None:
        handle = self.subject
        if handle is None:
            return
        try:
            explanation = await self._source.explain(handle)
        except PageddError as error:
            if handle == self.subject:
                self.note = error.message
            return
        if handle != self.subject:
            return
        before = self.explanation
        if before is not None and not isinstance(explanation.text, list):
            # it has ended: what it said last is worth keeping in sight
            explanation = replace(explanation, text=before.text)
        self.explanation, self.note = explanation, ""
