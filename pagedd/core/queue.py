"""Sequences in the order of their urgency."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Protocol

from pagedd.core.sequence import Sequence

Key = Callable[[Sequence], tuple[int, ...]]


class WaitingQueue(Protocol):
    """What waits, the next to be admitted first."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sequence]: ...

    def __contains__(self, sequence: Sequence) -> bool: ...

    @property
    def first(self) -> Sequence:
        """The next to be admitted."""

    @property
    def claimant(self) -> Sequence:
        """The first that may displace others: it was asked to be the most urgent."""

    def add(self, sequence: Sequence) -> None:
        """Put ``sequence`` in its place."""

    def place(self, sequence: Sequence) -> int:
        """How many come before ``sequence``."""

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence`` out. What it is sorted by is still what it was when it was added."""


class UrgencyQueue:
    """Sequences sorted by a key, ``Sequence.order`` unless told, the most urgent first.

    Finding a place takes O(log n) comparisons; taking it moves pointers, which is cheaper than
    comparing up to thousands of entries.
    """

    def __init__(self, key: Key = attrgetter("order")) -> None:
        self._key = key
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def __contains__(self, sequence: Sequence) -> bool:
        place = self.place(sequence)
        return place < len(self) and self._sequences[place] is sequence

    @property
    def first(self) -> Sequence:
        """The most urgent one."""
        return self._sequences[0]

    claimant = first

    @property
    def last(self) -> Sequence:
        """The least urgent one."""
        return self._sequences[-1]

    def add(self, sequence: Sequence) -> None:
        """Put ``sequence`` in its place."""
        insort(self._sequences, sequence, key=self._key)

    def place(self, sequence: Sequence) -> int:
        """How many are more urgent than ``sequence``."""
        return bisect_left(self._sequences, self._key(sequence), key=self._key)

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence`` out."""
        place = self.place(sequence)
        assert self._sequences[place] is sequence, "the sequence is not in this queue"
        del self._sequences[place]


class AgedQueue:
    """A queue in which waiting has moved some ahead of those that were asked to be as urgent.

    Ageing gives a place in the queue, and protects who has it while it runs; but nobody loses a
    slot or a page to it. Or else, whenever more wait than run, all that run would have to make
    room for those that wait, every few seconds.
    """

    def __init__(self, by_order: WaitingQueue, by_claim: WaitingQueue) -> None:
        self._by_order = by_order
        self._by_claim = by_claim

    def __len__(self) -> int:
        return len(self._by_order)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._by_order)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._by_order

    @property
    def first(self) -> Sequence:
        """The next to be admitted."""
        return self._by_order.first

    @property
    def claimant(self) -> Sequence:
        """The first of those that were asked to be the most urgent."""
        return self._by_claim.first

    def add(self, sequence: Sequence) -> None:
        """Put ``sequence`` in its place."""
        self._by_order.add(sequence)
        self._by_claim.add(sequence)

    def place(self, sequence: Sequence) -> int:
        """How many come before ``sequence``."""
        return self._by_order.place(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence`` out."""
        self._by_order.remove(sequence)
        self._by_claim.remove(sequence)
