"""HostPool: pages in host memory, where swapped sequences wait."""

from __future__ import annotations

from pagedd.core.events import HostPageCounts


class HostPool:
    """Reference counts of ``num_pages`` host pages; every operation takes constant time.

    A page is referred to by each sequence whose content it holds. A full page has the key of its
    content, the same as in the prefix index, so that what several sequences share lies here once.
    """

    def __init__(self, num_pages: int) -> None:
        self.refs = [0] * num_pages
        self.keys: list[bytes | None] = [None] * num_pages
        self._free = list(range(num_pages - 1, -1, -1))  # last in, first out
        self._pages: dict[bytes, int] = {}

    @property
    def available(self) -> int:
        """Pages that :meth:`allocate` can give."""
        return len(self._free)

    @property
    def counts(self) -> HostPageCounts:
        """Pages by state."""
        total, free = len(self.refs), len(self._free)
        return HostPageCounts(total, free, total - free, 0)

    def find(self, key: bytes) -> int | None:
        """The page that holds what ``key`` stands for."""
        return self._pages.get(key)

    def allocate(self, key: bytes | None) -> int:
        """A page with one reference; ``key`` will find it. Needs an available one."""
        page = self._free.pop()
        self.refs[page] = 1
        if key is not None:
            assert key not in self._pages, "one content in two host pages"
            self.keys[page] = key
            self._pages[key] = page
        return page

    def retain(self, page: int) -> None:
        """One more sequence refers to ``page``."""
        assert self.refs[page] > 0, f"host page {page} is free"
        self.refs[page] += 1

    def release(self, page: int) -> None:
        """One sequence less refers to ``page``; without any it is free."""
        self.refs[page] -= 1
        assert self.refs[page] >= 0, f"host page {page} was released twice"
        if self.refs[page] == 0:
            self.forget(page)
            self._free.append(page)

    def forget(self, page: int) -> None:
        """Let no key find ``page``."""
        key = self.keys[page]
        if key is not None:
            self.keys[page] = None
            del self._pages[key]

    def resting(self) -> list[int]:
        """The free list."""
        return list(self._free)

    def entries(self) -> dict[bytes, int]:
        """A copy of what keys find."""
        return dict(self._pages)
