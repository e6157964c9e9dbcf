"""PageTable: logical page → physical page of one sequence."""

from __future__ import annotations


def pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that hold ``num_tokens`` tokens."""
    return -(-num_tokens // page_size)


class PageTable:
    """The physical pages of one sequence, in logical order.

    Position p of the sequence lies in ``pages[p // page_size]`` at offset ``p % page_size``.
    Reference counts are the pool's; ``memory.Memory`` keeps both in step.
    """

    __slots__ = ("pages",)

    def __init__(self) -> None:
        self.pages: list[int] = []

    def __len__(self) -> int:
        return len(self.pages)

    def append(self, page: int) -> int:
        """Name ``page`` after the last; its logical number."""
        self.pages.append(page)
        return len(self.pages) - 1

    def replace(self, logical: int, page: int) -> int:
        """Name ``page`` at ``logical``; the page that was there."""
        old = self.pages[logical]
        self.pages[logical] = page
        return old

    def clear(self) -> list[int]:
        """Name nothing; the pages that were named, last first.

        Last first, because the end of a chain is of use only with its beginning: the cached pages
        that rest longest, and go first, should be the ends.
        """
        pages = self.pages[::-1]
        self.pages.clear()
        return pages
