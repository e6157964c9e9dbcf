"""PagePool: all device pages, their reference counts and states."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum

from pagedd.core.events import PageCounts


class PageState(IntEnum):
    """What a page is; the values are the bytes of ``cells`` in a state frame."""

    FREE = 0  # nobody refers to it and nothing in it can be found
    OWNED = 1  # one page table names it
    SHARED = 2  # two or more page tables name it
    CACHED = 3  # no table names it, but the prefix index finds its content


class PagePool:
    """Reference counts of ``num_pages`` pages; every operation takes constant time.

    ``evicted`` is called with a cached page and its key at the moment its memory is given to
    somebody else, so that the index never finds a page under what it used to hold.
    """

    def __init__(self, num_pages: int, evicted: Callable[[int, bytes], None]) -> None:
        self.refs = [0] * num_pages
        self.keys: list[bytes | None] = [None] * num_pages
        self.touched: set[int] | None = None  # pages that may have another state, for a Watch
        self._evicted = evicted
        self._free = list(range(num_pages - 1, -1, -1))  # last in, first out
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._owned = 0
        self._shared = 0
        self._pinned: set[int] = set()
        self._limbo: list[int] = []

    @property
    def available(self) -> int:
        """Pages that :meth:`allocate` can give."""
        return len(self._free) + len(self._cached)

    def allocate(self) -> int | None:
        """A page with one reference and no content, or None when all are referred to."""
        if self._free:
            page = self._free.pop()
        elif self._cached:
            page, _ = self._cached.popitem(last=False)
            self._evicted(page, self._unkey(page))
        else:
            return None
        self.refs[page] = 1
        self._owned += 1
        self._touch(page)
        return page

    def retain(self, page: int) -> None:
        """One more table names ``page``, which is cached, owned or shared."""
        refs = self.refs[page]
        if refs == 0:
            assert page in self._cached, f"page {page} is free and cannot be shared"
            del self._cached[page]
            self._owned += 1
        elif refs == 1:
            self._owned -= 1
            self._shared += 1
        self.refs[page] = refs + 1
        self._touch(page)

    def release(self, page: int) -> None:
        """One table less names ``page``; without any it becomes cached or free."""
        refs = self.refs[page] - 1
        assert refs >= 0, f"page {page} was released twice"
        self.refs[page] = refs
        if refs == 0:
            self._owned -= 1
            self._rest(page)
        elif refs == 1:
            self._shared -= 1
            self._owned += 1
        self._touch(page)

    def label(self, page: int, key: bytes) -> None:
        """The content of ``page`` is complete and the index finds it under ``key``."""
        assert self.refs[page] > 0, f"page {page} has no owner to vouch for its content"
        assert self.keys[page] is None, f"page {page} has a key already"
        self.keys[page] = key

    def forget(self, page: int) -> bytes | None:
        """Take the key off ``page``; the key it had, for the index to drop."""
        if self.keys[page] is None:
            return None
        key = self._unkey(page)
        if page in self._cached:
            del self._cached[page]
            self._free.append(page)
            self._touch(page)
        return key

    def pin(self, page: int) -> None:
        """Until :meth:`unpin`, do not hand out ``page``: a copy of this plan reads it.

        Copies of one plan run in no order, so that a source must not be a destination too.
        """
        self._pinned.add(page)

    def unpin(self) -> None:
        """The plan is complete; what was only kept for its copies can be used again."""
        self._pinned.clear()
        for page in self._limbo:
            self._rest(page)
            self._touch(page)
        self._limbo.clear()

    def state(self, page: int) -> PageState:
        """The state of one page."""
        refs = self.refs[page]
        if refs:
            return PageState.OWNED if refs == 1 else PageState.SHARED
        return PageState.CACHED if page in self._cached else PageState.FREE

    @property
    def counts(self) -> PageCounts:
        """Pages by state; meaningful between plans, when nothing is pinned."""
        return PageCounts(
            len(self.refs), len(self._free), len(self._cached), self._owned, self._shared
        )

    def resting(self) -> tuple[list[int], list[int], list[int]]:
        """The free list, the cached pages from least to most recently used, the pinned ones."""
        return list(self._free), list(self._cached), [*self._pinned, *self._limbo]

    def _touch(self, page: int) -> None:
        if self.touched is not None:
            self.touched.add(page)

    def _unkey(self, page: int) -> bytes:
        key = self.keys[page]
        assert key is not None, f"cached page {page} has no key"
        self.keys[page] = None
        return key

    def _rest(self, page: int) -> None:
        if page in self._pinned:
            self._limbo.append(page)
        elif self.keys[page] is not None:
            self._cached[page] = None
        else:
            self._free.append(page)
