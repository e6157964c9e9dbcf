"""Fill: how much the sequences hold, and how full that is, known at any time."""

from __future__ import annotations

from collections.abc import Iterable

from pagedd.core.sequence import Group, Sequence


class Fill:
    """Follows the page tables, so that nobody has to look at all of them in every step."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._largest: Group | None = None  # None: not known
        self.unused = 0  # token slots in the pages that tables name that hold no token

    def unused_of(self, sequence: Sequence) -> int:
        """Token slots in the pages of ``sequence`` that hold no token of it yet."""
        return max(len(sequence.table.pages) * self._page_size - sequence.num_computed, 0)

    def grew(self, group: Group) -> None:
        """``group`` has got pages, and what it holds now counts for its peak."""
        group.book.peak()
        if self._largest is not None and group.book.pages > self._largest.book.pages:
            self._largest = group

    def release(self, sequence: Sequence) -> None:
        """``sequence`` is about to give all its pages back."""
        self.unused -= self.unused_of(sequence)
        if sequence.group is self._largest:
            self._largest = None

    def most_pages(self, running: Iterable[Sequence]) -> int:
        """The pages of the request among ``running`` that holds most.

        Looks at all of them only after the one that had most has given some back.
        """
        if self._largest is None:
            groups = (sequence.group for sequence in running)
            self._largest = max(groups, key=lambda group: group.book.pages, default=None)
        return 0 if self._largest is None else self._largest.book.pages
