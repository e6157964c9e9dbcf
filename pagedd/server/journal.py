"""What happened lately: a bounded ring of compact entries. Sentences are made when they are read.

An entry keeps the engine's event as it came, with the names that its requests had then; so it can
still be told when these requests have ended.
"""

from __future__ import annotations

from typing import NamedTuple

from pagedd.core.events import (
    Accepted,
    Evicted,
    Failed,
    Finished,
    Preempted,
    Reprioritized,
    Resumed,
    Running,
    Shrunk,
    Started,
    Waiting,
)
from pagedd.protocol import MAX_HISTORY

# A full cache evicts in nearly every step: what it evicts is told together, once in so long.
EVICTIONS_EVERY_S = 1.0

Told = (
    Accepted
    | Started
    | Reprioritized
    | Waiting
    | Preempted
    | Resumed
    | Evicted
    | Shrunk
    | Running
    | Finished
    | Failed
)


class Who(NamedTuple):
    """A request as its client knows it."""

    id: str
    connection: int
    prompt_tokens: int
    priority: int  # that it came with
    choices: int


class Entry(NamedTuple):
    """An event, and who it is about."""

    at: float  # seconds since 1970
    event: Told
    handle: int | None  # the request that it is about
    who: Who | None  # None: about no request, or about one that is forgotten
    others: tuple[tuple[int, str], ...]  # handle and id of the other requests that it names

    def id_of(self, handle: int) -> str:
        """A request's id; empty if it was not known any more."""
        if self.who is not None and handle == self.handle:
            return self.who.id
        return next((id for other, id in self.others if other == handle), "")


class Journal:
    """Entries are numbered from 0; the last ``size`` of them can be read."""

    def __init__(self, size: int = MAX_HISTORY) -> None:
        self._ring: list[Entry] = []  # entry n is at n % size
        self._size = size
        self._names: dict[int, Who] = {}  # of what the engine holds
        self._evicted = Evicted(0, 0, 0)  # not told yet
        self._told_evictions = 0.0  # when
        self.end = 0  # the number of the next entry

    @property
    def start(self) -> int:
        """The number of the oldest entry that can be read; ``end`` if there is none."""
        return max(self.end - self._size, 0)

    def __getitem__(self, number: int) -> Entry:
        assert self.start <= number < self.end, "the entry is not kept"
        return self._ring[number % self._size]

    def know(self, handle: int, who: Who) -> None:
        """From now on, and until the engine says that it has ended, ``handle`` has this name."""
        self._names[handle] = who

    def name_of(self, handle: int) -> str:
        """The client's name of a request that the engine holds; empty if it is not known."""
        who = self._names.get(handle)
        return "" if who is None else who.id

    def forget_all(self) -> None:
        """The engine is gone, and all that it held."""
        self._names.clear()
        self._evicted = Evicted(0, 0, 0)

    def entry(self, event: Told, at: float) -> Entry:
        """An event with its names, not put into the ring."""
        names = self._names
        if isinstance(event, Evicted | Shrunk):
            return Entry(at, event, None, None, ())
        others = tuple((handle, names[handle].id) for handle in _named(event) if handle in names)
        return Entry(at, event, event.handle, names.get(event.handle), others)

    def record(self, event: Told, at: float) -> Entry:
        """Put an event into the ring. One that ends a request is the last to know its name."""
        entry = self.entry(event, at)
        if self.end < self._size:
            self._ring.append(entry)
        else:
            self._ring[self.end % self._size] = entry
        self.end += 1
        if isinstance(event, Finished | Failed):
            self._names.pop(event.handle, None)
        return entry

    def evicted(self, events: list[Evicted], at: float, *, idle: bool) -> None:
        """Count evicted pages, and record them when it is time, or when no step follows soon."""
        for event in events:
            self._evicted = Evicted(*(a + b for a, b in zip(self._evicted, event, strict=True)))
        due = idle or at - self._told_evictions >= EVICTIONS_EVERY_S
        if due and any(self._evicted):
            self.record(self._evicted, at)
            self._evicted = Evicted(0, 0, 0)
            self._told_evictions = at

    def of(self, handle: int) -> list[Entry]:
        """What is kept about one request, the oldest first."""
        return [entry for entry in self._kept() if entry.handle == handle]

    def ended(self, id: str, connection: int | None = None) -> int | None:
        """The handle of the request with this id (on one connection) that ended last."""
        for entry in reversed(self._kept()):
            who = entry.who
            if (
                who is not None
                and who.id == id
                and connection in (None, who.connection)
                and isinstance(entry.event, Finished | Failed)
            ):
                return entry.handle
        return None

    def _kept(self) -> list[Entry]:
        first = self.start % self._size
        return self._ring[first:] + self._ring[:first]


def _named(event: Told) -> tuple[int, ...]:
    """Handles, besides its own, that an event names."""
    match event:
        case Preempted():
            return (event.taker,)
        case Waiting():
            return (event.first, *(holder.handle for holder in event.holders))
        case _:
            return ()
