"""HostTier: host memory as the second tier of the prefix cache, and the copies that go there."""

from __future__ import annotations

from pagedd.core.events import Evicted
from pagedd.core.host import HostPool
from pagedd.core.plan import Copy


class HostTier:
    """What goes from the device to host memory with the plan in the making, and what does not.

    A plan copies out before it does anything else. So a device page can be given away, and a host
    page read, as soon as the copy is noted here.
    """

    def __init__(self, num_pages: int) -> None:
        self.pool = HostPool(num_pages)
        self._copies: dict[int, int] = {}  # host page → device page whose content it gets
        self._evicted: list[bytes] = []  # keys, since the last settle()
        self._evictions = 0  # of the host pool, up to the last settle()
        self._dropped: set[int] = set()  # device pages that a preemption gave up
        self._shared: set[int] = set()  # device pages that a later request found

    def copy_out(self, page: int, key: bytes | None) -> int:
        """The host page, with one reference, to which the plan copies the device page ``page``.

        Needs an available one. When that was to get another content with the same plan, which
        nobody refers to, its copy is made no more: each host page is the target of one copy.
        """
        target = self.pool.allocate(key)
        self._copies[target] = page
        return target

    def evict(self, page: int, key: bytes) -> None:
        """Cached content leaves the device: save it, when it is worth that and there is room.

        Swapped sequences lose nothing by that, and what lies there already is not copied again.
        """
        self._evicted.append(key)
        target = self.pool.find(key)
        if target is not None:
            self.pool.touch(target)
        elif self.pool.available and page not in self._dropped:
            self.pool.release(self.copy_out(page, key))

    def drop(self, page: int) -> None:
        """``page``, which is cached, was given up by a sequence that is to compute it again.

        That was found to be better than to copy it. But what others share is worth a copy.
        """
        if page not in self._shared:
            self._dropped.add(page)

    def find(self, page: int, *, first: bool) -> None:
        """``page`` is found again, by a request that begins (``first``) or by one that resumes."""
        self._dropped.discard(page)
        if first:
            self._shared.add(page)

    def renew(self, page: int) -> None:
        """``page`` gets a new content, of which nothing is known."""
        self._dropped.discard(page)
        self._shared.discard(page)

    @property
    def settled(self) -> bool:
        """Nothing waits for a plan: always so between two of them."""
        return not self._copies and not self._evicted

    def take_copies(self) -> tuple[Copy, ...]:
        """The copies out, for the plan."""
        copies = tuple(Copy(source, target) for target, source in self._copies.items())
        self._copies.clear()
        return copies

    def settle(self) -> Evicted | None:
        """A plan is complete: what was evicted for it."""
        keys, self._evicted = self._evicted, []
        forgotten = self.pool.evictions - self._evictions
        self._evictions = self.pool.evictions
        if not keys and not forgotten:
            return None
        saved = sum(1 for key in keys if self.pool.find(key) is not None)
        return Evicted(len(keys), saved, forgotten)
