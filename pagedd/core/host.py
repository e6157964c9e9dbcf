"""HostPool: pages in host memory, where swapped sequences wait and the prefix cache goes on."""

from __future__ import annotations

from collections import OrderedDict

from pagedd.core.events import HostPageCounts


class HostPool:
    """Reference counts of ``num_pages`` host pages; every operation takes constant time.

    A page is *swapped* while sequences refer to it: those whose content it keeps, or copies back.
    A full page has the key of its content, the same as in the prefix index, so that what several
    sequences share lies here once. Without references it stays *cached* under its key until its
    memory is needed, least recently used first; without a key it is *free*.
    """

    def __init__(self, num_pages: int) -> None:
        self.refs = [0] * num_pages
        self.keys: list[bytes | None] = [None] * num_pages
        self.touched: set[int] | None = None  # pages that may have another state, for a Watch
        self.evictions = 0  # cached pages whose memory was needed, since the start
        self._free = list(range(num_pages - 1, -1, -1))  # last in, first out
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._pages: dict[bytes, int] = {}

    @property
    def available(self) -> int:
        """Pages that :meth:`allocate` can give."""
        return len(self._free) + len(self._cached)

    @property
    def counts(self) -> HostPageCounts:
        """Pages by state."""
        total, free, cached = len(self.refs), len(self._free), len(self._cached)
        return HostPageCounts(total, free, total - free - cached, cached)

    def state(self, page: int) -> int:
        """The byte of a page in a state frame: 0 free, 1 swapped, 3 cached."""
        if self.refs[page]:
            return 1
        return 3 if page in self._cached else 0

    def find(self, key: bytes) -> int | None:
        """The page that holds what ``key`` stands for."""
        return self._pages.get(key)

    def allocate(self, key: bytes | None) -> int:
        """A page with one reference; ``key`` will find it. Needs an available one."""
        if self._free:
            page = self._free.pop()
        else:
            page = next(iter(self._cached))
            self._unkey(page)
            del self._cached[page]
            self.evictions += 1
        self.refs[page] = 1
        self._touch(page)
        if key is not None:
            assert key not in self._pages, "one content in two host pages"
            self.keys[page] = key
            self._pages[key] = page
        return page

    def retain(self, page: int) -> None:
        """One more sequence refers to ``page``, which is swapped or cached."""
        if self.refs[page] == 0:
            assert page in self._cached, f"host page {page} is free"
            del self._cached[page]
        self.refs[page] += 1
        self._touch(page)

    def release(self, page: int) -> None:
        """One sequence less refers to ``page``; without any it is cached or free."""
        self.refs[page] -= 1
        assert self.refs[page] >= 0, f"host page {page} was released twice"
        if self.refs[page] == 0:
            self._touch(page)
            if self.keys[page] is None:
                self._free.append(page)
            else:
                self._cached[page] = None

    def touch(self, page: int) -> None:
        """What ``page`` holds was of use just now."""
        if page in self._cached:
            self._cached.move_to_end(page)

    def forget(self, page: int) -> None:
        """Let no key find ``page``."""
        if self.keys[page] is None:
            return
        self._unkey(page)
        if page in self._cached:
            del self._cached[page]
            self._free.append(page)
            self._touch(page)

    def resting(self) -> tuple[list[int], list[int]]:
        """The free list, and the cached pages from least to most recently used."""
        return list(self._free), list(self._cached)

    def entries(self) -> dict[bytes, int]:
        """A copy of what keys find."""
        return dict(self._pages)

    def _touch(self, page: int) -> None:
        if self.touched is not None:
            self.touched.add(page)

    def _unkey(self, page: int) -> None:
        key = self.keys[page]
        assert key is not None, f"cached host page {page} has no key"
        self.keys[page] = None
        del self._pages[key]
