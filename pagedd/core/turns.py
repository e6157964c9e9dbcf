"""TurnQueue: within a priority, clients take turns by the tokens that they have used."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import zip_longest
from operator import attrgetter

from pagedd.core.clients import Account
from pagedd.core.config import SchedulerConfig
from pagedd.core.queue import AgedQueue, UrgencyQueue, WaitingQueue
from pagedd.core.sequence import Order, Sequence


class TurnQueue:
    """Sorted by ``level``; within one, what had begun before comes first, by arrival.

    Then it is the turn of the client that has used least, with the first that it sent. Counters
    grow all the time, so that a heap keeps what they were, which is a lower bound, and is brought
    up to date where it is looked at. ``place`` and the iteration show the order in which the
    clients would take turns if each turn cost the same.
    """

    def __init__(self, level: Callable[[Sequence], int] = attrgetter("priority")) -> None:
        self._level = level
        self._levels: dict[int, _Level] = {}
        self._sorted: list[int] = []  # the keys of _levels
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        for level in self._sorted:
            yield from self._levels[level]

    def __contains__(self, sequence: Sequence) -> bool:
        level = self._levels.get(self._level(sequence))
        return level is not None and sequence in level

    @property
    def first(self) -> Sequence:
        """The next to be admitted."""
        return self._levels[self._sorted[0]].first

    claimant = first

    def add(self, sequence: Sequence) -> None:
        """Put ``sequence`` in its place."""
        key = self._level(sequence)
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = _Level()
            insort(self._sorted, key)
        level.add(sequence)
        self._count += 1

    def place(self, sequence: Sequence) -> int:
        """How many come before ``sequence``, if each turn cost the same."""
        key = self._level(sequence)
        before = self._sorted[: bisect_left(self._sorted, key)]
        return sum(len(self._levels[each]) for each in before) + self._levels[key].place(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence`` out."""
        key = self._level(sequence)
        level = self._levels[key]
        level.remove(sequence)
        self._count -= 1
        if not level:
            del self._levels[key]
            del self._sorted[bisect_left(self._sorted, key)]


class _Level:
    """What waits at one priority."""

    def __init__(self) -> None:
        self._begun = UrgencyQueue()
        self._lines: dict[Account, UrgencyQueue] = {}  # what each client has sent
        self._heap: list[tuple[int, Order, Account]] = []  # (used, first of the line), or before

    def __len__(self) -> int:
        return len(self._begun) + sum(map(len, self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._begun or self._lines)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._begun
        # Sorted only as far as it is asked for: most look at the beginning of a long queue.
        turns = [(*self._turn(account), account) for account in self._lines]
        heapify(turns)
        lines: list[Iterator[Sequence]] = []
        while turns:
            line = iter(self._lines[heappop(turns)[-1]])
            yield next(line)
            lines.append(line)
        for later in zip_longest(*lines):
            yield from (sequence for sequence in later if sequence is not None)

    def __contains__(self, sequence: Sequence) -> bool:
        if sequence.has_begun:
            return sequence in self._begun
        line = self._lines.get(_account(sequence))
        return line is not None and sequence in line

    @property
    def first(self) -> Sequence:
        if self._begun:
            return self._begun.first
        heap = self._heap
        while True:
            used, order, account = heap[0]
            line = self._lines.get(account)
            if line is None:
                heappop(heap)
            elif (used, order) != (turn := self._turn(account)):
                heapreplace(heap, (*turn, account))
            else:
                return line.first

    def add(self, sequence: Sequence) -> None:
        if sequence.has_begun:
            self._begun.add(sequence)
            return
        account = _account(sequence)
        line = self._lines.setdefault(account, UrgencyQueue())
        line.add(sequence)
        if line.first is sequence:
            heappush(self._heap, (*self._turn(account), account))
            if len(self._heap) > 2 * len(self._lines) + 16:
                self._heap = [(*self._turn(each), each) for each in self._lines]
                heapify(self._heap)

    def place(self, sequence: Sequence) -> int:
        if sequence.has_begun:
            return self._begun.place(sequence)
        own = _account(sequence)
        turn, rank = self._turn(own), self._lines[own].place(sequence)
        others = sum(
            min(len(line), rank + (self._turn(account) < turn))
            for account, line in self._lines.items()
            if account is not own
        )
        return len(self._begun) + rank + others

    def remove(self, sequence: Sequence) -> None:
        if sequence.has_begun:
            self._begun.remove(sequence)
            return
        account = _account(sequence)
        line = self._lines[account]
        line.remove(sequence)
        if not line:
            del self._lines[account]

    def _turn(self, account: Account) -> tuple[int, Order]:
        """Sorts the clients."""
        return account.used, self._lines[account].first.order


def _account(sequence: Sequence) -> Account:
    account = sequence.group.account
    assert account is not None, "a request without a client's account"
    return account


def waiting_queue(config: SchedulerConfig) -> WaitingQueue:
    """The queue that ``config`` asks for: by urgency or in turns, and with ageing or without."""
    plain: WaitingQueue = TurnQueue() if config.fair_share else UrgencyQueue()
    if config.priority_aging is None:
        return plain
    if config.fair_share:
        return AgedQueue(plain, TurnQueue(attrgetter("asked")))
    return AgedQueue(plain, UrgencyQueue(attrgetter("claim")))
