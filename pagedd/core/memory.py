"""Memory: every change of a page table, with the counts, the index and the account it touches.

A content can be on the device, in host memory or in both. What is swapped out is copied to the
host page by page, also what others share or the index finds: that may be gone from the device when
the sequence comes back. But a content that lies in host memory already is not copied there again,
and what the device still holds is not copied back.

A sequence begins with the pages that the device holds of it, then those that host memory holds::

    logical          0    1    2    3    4    5
    on the device    7    2                        adopted, as the beginning of the table
    in host memory             9    4    1         retained by ``host``, from ``host_start`` = 2 on
    computed                                  ×    the rest, from ``num_computed`` on

``extend`` allocates the pages for both parts; ``bring`` has the host's copied in, perhaps in
several steps. Only then does anything else happen to the sequence, but that it may be put back.
"""

from __future__ import annotations

from collections.abc import Callable

from pagedd.core.events import Evicted
from pagedd.core.fill import Fill
from pagedd.core.page_table import pages_for
from pagedd.core.pages import PagePool, PageState
from pagedd.core.plan import Copy
from pagedd.core.prefix import PrefixIndex, salt_of
from pagedd.core.sequence import Group, Sequence, SequenceState
from pagedd.core.tier import HostTier
from pagedd.core.watch import Holders


class Memory:
    """The pages: a PagePool, a HostPool, a PrefixIndex, and the tables that name the pages."""

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        key: bytes,
        prefix_cache: bool,
        longest_free_prompt: int | None = None,
        num_host_pages: int = 0,
    ) -> None:
        self.page_size = page_size
        self.prefix_cache = prefix_cache
        self._longest_free_prompt = longest_free_prompt
        self.index = PrefixIndex(page_size, key)
        self.pool = PagePool(num_pages, self._evicted)
        self.tier = HostTier(num_host_pages)
        self.host = self.tier.pool
        self.holders = Holders()
        self._read: list[int] = []  # host pages that the plan in the making copies back
        self._arriving: list[Sequence] = []  # what gets such copies, up to the commit
        self._grown: list[Group] = []  # requests that got pages since the last settle()
        self.fill = Fill(page_size)

    def pages(self, num_tokens: int) -> int:
        """Pages that hold ``num_tokens`` tokens."""
        return pages_for(num_tokens, self.page_size)

    def hits(self, sequence: Sequence) -> list[int]:
        """The device pages that hold the beginning of ``sequence`` already, in logical order.

        Those in host memory that go on from there are not among them: each needs a device page, as
        what is computed does. :meth:`adopt` finds them.
        """
        return self._chain(sequence, 0, self.index.find)

    def resting(self, pages: list[int]) -> int:
        """How many of ``pages`` count as available as long as nobody adopts them."""
        refs = self.pool.refs
        return sum(1 for page in pages if refs[page] == 0)

    def adopt(self, sequence: Sequence, pages: list[int], now: float) -> None:
        """Begin the empty table of ``sequence`` with ``pages``, which :meth:`hits` found.

        What goes on from there in host memory counts as computed too: :meth:`extend` copies it in.
        """
        assert not sequence.table.pages, "only an empty table can begin with cached pages"
        first = sequence.state is SequenceState.WAITING
        for page in pages:
            self.pool.retain(page)
            self.tier.find(page, first=first)
            sequence.table.append(page)
            self.holders.hold(page, sequence, now)
        self._grown.append(sequence.group)
        if sequence.state is not SequenceState.SWAPPED:
            sequence.host = self._chain(sequence, len(pages), self.host.find)
            sequence.host_start = len(pages)
            sequence.num_saved = (len(pages) + len(sequence.host)) * self.page_size
            for page in sequence.host:
                self.host.retain(page)
        sequence.num_indexed = sequence.arrived = len(pages)
        sequence.num_computed = max(len(pages) * self.page_size, sequence.num_saved)

    def needed(self, sequence: Sequence, upto: int) -> int:
        """Pages to allocate before ``tokens[num_computed:upto]`` can be computed.

        Not fewer than none: pages that were copied in ahead can be more than ``upto`` needs.
        """
        table = sequence.table.pages
        need = max(pages_for(upto, self.page_size) - len(table), 0)
        return need + 1 if self._writes_shared(sequence) else need

    def extend(
        self, sequence: Sequence, upto: int, copies: list[Copy], now: float
    ) -> list[tuple[int, int]]:
        """Give ``sequence`` pages of its own for ``tokens[num_computed:upto]``.

        Needs ``needed()`` available pages. Appends to ``copies`` the copy of a page that was
        shared so far; gives (logical, page) of every new entry of the table.
        """
        changes: list[tuple[int, int]] = []
        unused = self.fill.unused_of(sequence)
        table, holders = sequence.table, self.holders
        if self._writes_shared(sequence):
            page = self._take()
            logical = sequence.num_computed // self.page_size
            source = table.replace(logical, page)
            self.pool.pin(source)
            self.pool.release(source)
            holders.hold(page, sequence, now)
            holders.drop(source, sequence, now)
            copies.append(Copy(source, page))
            changes.append((logical, page))
        for _ in range(pages_for(upto, self.page_size) - len(table)):
            page = self._take()
            holders.hold(page, sequence, now)
            changes.append((table.append(page), page))
        if changes:
            self._grown.append(sequence.group)
            self.fill.unused += self.fill.unused_of(sequence) - unused
        return changes

    def bring(self, sequence: Sequence, limit: int | None) -> list[Copy]:
        """Copies of the next pages that ``sequence`` has in host memory, at most ``limit``.

        Its table has pages for all of them. With the last one it has none there any more.
        """
        first = sequence.arrived
        sources = sequence.host[max(first - sequence.host_start, 0) :][:limit]
        targets = sequence.table.pages[first : first + len(sources)]
        sequence.arrived += len(sources)
        if sequence.state is SequenceState.WAITING:
            for target in targets:
                self.tier.find(target, first=True)
        if sequence.host and sequence.arrived >= sequence.host_start + len(sequence.host):
            self._read += self._forsake(sequence)
            self._arriving.append(sequence)
        return [Copy(*pair) for pair in zip(sources, targets, strict=True)]

    def fork(self, parent: Sequence, child: Sequence, now: float) -> None:
        """Let ``child`` share all pages of ``parent``, the partial last one included."""
        for page in parent.table.pages:
            self.pool.retain(page)
            child.table.append(page)
            self.holders.hold(page, child, now)
        self.fill.unused += self.fill.unused_of(parent)

    def register(self, sequence: Sequence) -> None:
        """Offer the pages that ``num_computed`` has filled to the index. Only at commit."""
        full = sequence.num_computed // self.page_size
        if not self.prefix_cache or full == sequence.num_indexed:
            return
        self._key_pages(sequence, full)
        for logical in range(sequence.num_indexed, full):
            page = sequence.table.pages[logical]
            if self.pool.keys[page] is None and self.index.add(sequence.keys[logical], page):
                self.pool.label(page, sequence.keys[logical])
        sequence.num_indexed = full

    def release(self, sequence: Sequence, now: float, *, dropped: bool = False) -> None:
        """Give all pages of ``sequence`` back; ``dropped``: to compute them again some time."""
        self.fill.release(sequence)
        for page in sequence.table.clear():
            self.pool.release(page)
            if dropped and self.pool.state(page) is PageState.CACHED:
                self.tier.drop(page)
            self.holders.drop(page, sequence, now)
        sequence.num_indexed = 0
        sequence.num_computed = 0
        sequence.arrived = 0

    def in_host(self, sequence: Sequence) -> list[int | None]:
        """For each page that ``num_computed`` reaches, the host page that has its content."""
        full, rest = divmod(sequence.num_computed, self.page_size)
        self._key_pages(sequence, full)
        return [self.host.find(key) for key in sequence.keys[:full]] + [None] * bool(rest)

    def host_room(self, sequence: Sequence) -> tuple[int, int]:
        """Host pages that :meth:`save` would have to allocate, and how many there are for that."""
        if not self.host.refs:
            return self.pages(sequence.num_computed), 0
        found = [page for page in self.in_host(sequence) if page is not None]
        kept = sum(1 for page in found if self.host.refs[page] == 0)  # not for others any more
        return self.pages(sequence.num_computed) - len(found), self.host.available - kept

    def save(self, sequence: Sequence) -> int:
        """Let host memory keep what ``sequence`` has computed; the number of pages to copy.

        Needs as many host pages as :meth:`host_room` says.
        """
        assert not sequence.host, "it is in host memory already"
        found = self.in_host(sequence)
        for page in found:
            if page is not None:
                self.host.retain(page)
        full = sequence.num_computed // self.page_size
        for logical, page in enumerate(found):
            if page is None:
                key = sequence.keys[logical] if logical < full else None
                page = self.tier.copy_out(sequence.table.pages[logical], key)
            sequence.host.append(page)
        sequence.host_start = 0
        sequence.num_saved = sequence.num_computed
        return found.count(None)

    def discard(self, sequence: Sequence) -> None:
        """What ``sequence`` has in host memory is not kept for it any more.

        Last page first, as in :meth:`PageTable.clear`.
        """
        for page in reversed(self._forsake(sequence)):
            self.host.release(page)

    def distrust(self, sequence: Sequence) -> None:
        """Let nobody find the pages of ``sequence`` any more: their content may be wrong."""
        for key in sequence.keys:
            if (page := self.host.find(key)) is not None:
                self.host.forget(page)
        for page in sequence.table.pages:
            if (gone := self.pool.forget(page)) is not None:
                self.index.remove(gone)

    def settle(self) -> Evicted | None:
        """A plan is complete: pages kept for its copies are free, and accounts note their peak.

        The host pages that it copies in are given back only now, because its copies out come first.
        Gives what was evicted for the plan.
        """
        self.pool.unpin()
        for page in reversed(self._read):
            self.host.release(page)
        self._read.clear()
        for group in self._grown:
            self.fill.grew(group)
        self._grown.clear()
        return self.tier.settle()

    def arrive(self) -> None:
        """The plan was carried out: let the index find what it has copied in."""
        for sequence in self._arriving:
            self.register(sequence)
        self._arriving.clear()

    def _chain(
        self, sequence: Sequence, start: int, find: Callable[[bytes], int | None]
    ) -> list[int]:
        """The pages found for the full pages of ``sequence`` from logical ``start`` on.

        At least one token stays to be computed, or there would be no logits to draw from.
        """
        pages: list[int] = []
        if not self.prefix_cache:
            return pages
        for logical in range(start, (sequence.num_tokens - 1) // self.page_size):
            self._key_pages(sequence, logical + 1)
            page = find(sequence.keys[logical])
            if page is None:
                break
            pages.append(page)
        return pages

    def _key_pages(self, sequence: Sequence, count: int) -> None:
        """Bring the keys of ``sequence`` to ``count`` pages at least."""
        if len(sequence.keys) < count:
            salt = salt_of(sequence.group.request, self._longest_free_prompt)
            self.index.extend(sequence.keys, sequence.tokens, count, salt)

    def _forsake(self, sequence: Sequence) -> list[int]:
        pages, sequence.host, sequence.num_saved = sequence.host, [], 0
        return pages

    def _evicted(self, page: int, key: bytes) -> None:
        self.index.remove(key)
        self.tier.evict(page, key)

    def _writes_shared(self, sequence: Sequence) -> bool:
        """The next position lies in a page that other tables name too."""
        table = sequence.table.pages
        logical = sequence.num_computed // self.page_size
        return logical < len(table) and self.pool.refs[table[logical]] > 1

    def _take(self) -> int:
        page = self.pool.allocate()
        assert page is not None, "fewer pages than were counted before"
        self.tier.renew(page)
        return page
