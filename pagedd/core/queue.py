"""Sequences in the order of their urgency."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter

from pagedd.core.sequence import Sequence

_order = attrgetter("order")


class UrgencyQueue:
    """Sequences sorted by ``Sequence.order``, the most urgent first.

    Finding a place takes O(log n) comparisons; taking it moves pointers, which is cheaper than
    comparing up to thousands of entries.
    """

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def __contains__(self, sequence: Sequence) -> bool:
        place = bisect_left(self._sequences, sequence.order, key=_order)
        return place < len(self) and self._sequences[place] is sequence

    @property
    def first(self) -> Sequence:
        """The most urgent one."""
        return self._sequences[0]

    @property
    def last(self) -> Sequence:
        """The least urgent one."""
        return self._sequences[-1]

    def add(self, sequence: Sequence) -> None:
        """Put ``sequence`` in its place."""
        insort(self._sequences, sequence, key=_order)

    def place(self, sequence: Sequence) -> int:
        """How many are more urgent than ``sequence``."""
        return bisect_left(self._sequences, sequence.order, key=_order)

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence`` out."""
        place = self.place(sequence)
        assert self._sequences[place] is sequence, "the sequence is not in this queue"
        del self._sequences[place]
