"""Which frame of a connection is for whom: what the asynchronous client hands out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import UNSET

from pagedd.protocol import Done, Error, Event, Explanation, ServerFrame, State, Status

Inbox = MemoryObjectSendStream[ServerFrame]
Frames = MemoryObjectReceiveStream[ServerFrame]


class Inboxes:
    """Everybody who waits for something. ``statuses`` and ``questions`` hold lines of askers."""

    def __init__(self) -> None:
        self.requests: dict[str, Inbox] = {}  # by id
        self.statuses: dict[str, list[Inbox]] = {}  # ref → who waits for its answer
        self.questions: dict[str, list[Inbox]] = {}  # id → who asked about it
        self.feeds: dict[str, Inbox] = {}  # by topic
        self.overrun: set[str] = set()  # feeds that were closed because their reader was slow

    def deliver(self, frame: ServerFrame) -> None:
        """Hand ``frame`` to who waits for it. A frame that nobody wants is lost.

        Only the feed of states has an inbox that can be full. Then it ends, after what is in it:
        its reader begins again with a new picture, as old ones are of no use.
        """
        inbox = self._addressee(frame)
        if inbox is None:
            return
        try:
            inbox.send_nowait(frame)
        except anyio.WouldBlock:
            self.overrun.add("state")
            self.feeds.pop("state").close()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # Who waited has left; the id is free when the daemon has ended the request.
            if isinstance(frame, Done | Error) and isinstance(frame.id, str):
                self.requests.pop(frame.id, None)

    def close(self) -> None:
        """No frame comes any more."""
        askers = itertools.chain(*self.statuses.values(), *self.questions.values())
        for inbox in [*self.requests.values(), *self.feeds.values(), *askers]:
            inbox.close()

    def _addressee(self, frame: ServerFrame) -> Inbox | None:
        """Who waits for this frame. Who asked a question waits no more when it is answered."""
        match frame:
            case Status(ref=str(ref)):
                line, place = self.statuses.get(ref), 0
            case Explanation(id=id):
                line, place = self.questions.get(id), 0
            case Error(id=ended, ref=str(ref)) if ended is UNSET:
                line, place = self.questions.get(ref), -1  # refusals are quick: it asked last
            case Event():
                return self.feeds.get("events")
            case State():
                return self.feeds.get("state")
            case _:
                own = getattr(frame, "id", None)
                return self.requests.get(own) if isinstance(own, str) else None
        return line.pop(place) if line else None


@contextmanager
def waiting(lines: dict[str, list[Inbox]], key: str) -> Iterator[Frames]:
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
