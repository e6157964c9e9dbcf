"""Memory: every change of a page table, with the counts, the index and the account it touches."""

from __future__ import annotations

from pagedd.core.page_table import pages_for
from pagedd.core.pages import PagePool
from pagedd.core.plan import Copy
from pagedd.core.prefix import PrefixIndex
from pagedd.core.sequence import Group, Sequence


class Memory:
    """The device pages: one PagePool, one PrefixIndex, and the tables that name the pages."""

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        key: bytes,
        prefix_cache: bool,
        longest_free_prompt: int | None = None,
    ) -> None:
        self.page_size = page_size
        self.prefix_cache = prefix_cache
        self._longest_free_prompt = longest_free_prompt
        self.index = PrefixIndex(page_size, key)
        self.pool = PagePool(num_pages, self.index.remove)
        self._grown: list[Group] = []  # requests that got pages since the last settle()

    def pages(self, num_tokens: int) -> int:
        """Pages that hold ``num_tokens`` tokens."""
        return pages_for(num_tokens, self.page_size)

    def hits(self, sequence: Sequence) -> list[int]:
        """The pages that hold the beginning of ``sequence`` already, in logical order.

        At least one token stays to be computed, or there would be no logits to draw from.
        """
        pages: list[int] = []
        if not self.prefix_cache:
            return pages
        keys, salt = sequence.keys, self._salt(sequence)
        for logical in range((sequence.num_tokens - 1) // self.page_size):
            self.index.extend(keys, sequence.tokens, logical + 1, salt)
            page = self.index.find(keys[logical])
            if page is None:
                break
            pages.append(page)
        return pages

    def resting(self, pages: list[int]) -> int:
        """How many of ``pages`` count as available as long as nobody adopts them."""
        refs = self.pool.refs
        return sum(1 for page in pages if refs[page] == 0)

    def adopt(self, sequence: Sequence, pages: list[int], now: float) -> None:
        """Begin the empty table of ``sequence`` with ``pages``, which :meth:`hits` found."""
        assert not sequence.table.pages, "only an empty table can begin with cached pages"
        for page in pages:
            self.pool.retain(page)
            sequence.table.append(page)
            sequence.group.book.hold(page, now)
        self._grown.append(sequence.group)
        sequence.num_indexed = len(pages)
        sequence.num_computed = len(pages) * self.page_size

    def needed(self, sequence: Sequence, upto: int) -> int:
        """Pages to allocate before ``tokens[num_computed:upto]`` can be computed."""
        table = sequence.table.pages
        need = pages_for(upto, self.page_size) - len(table)
        return need + 1 if self._writes_shared(sequence) else need

    def extend(
        self, sequence: Sequence, upto: int, copies: list[Copy], now: float
    ) -> list[tuple[int, int]]:
        """Give ``sequence`` pages of its own for ``tokens[num_computed:upto]``.

        Needs ``needed()`` available pages. Appends to ``copies`` the copy of a page that was
        shared so far; gives (logical, page) of every new entry of the table.
        """
        changes: list[tuple[int, int]] = []
        table, book = sequence.table, sequence.group.book
        if self._writes_shared(sequence):
            page = self._take()
            logical = sequence.num_computed // self.page_size
            source = table.replace(logical, page)
            self.pool.pin(source)
            self.pool.release(source)
            book.hold(page, now)
            book.drop(source, now)
            copies.append(Copy(source, page))
            changes.append((logical, page))
        for _ in range(pages_for(upto, self.page_size) - len(table)):
            page = self._take()
            book.hold(page, now)
            changes.append((table.append(page), page))
        if changes:
            self._grown.append(sequence.group)
        return changes

    def fork(self, parent: Sequence, child: Sequence, now: float) -> None:
        """Let ``child`` share all pages of ``parent``, the partial last one included."""
        for page in parent.table.pages:
            self.pool.retain(page)
            child.table.append(page)
            child.group.book.hold(page, now)

    def register(self, sequence: Sequence) -> None:
        """Offer the pages that ``num_computed`` has filled to the index. Only at commit."""
        full = sequence.num_computed // self.page_size
        if not self.prefix_cache or full == sequence.num_indexed:
            return
        self.index.extend(sequence.keys, sequence.tokens, full, self._salt(sequence))
        for logical in range(sequence.num_indexed, full):
            page = sequence.table.pages[logical]
            if self.pool.keys[page] is None and self.index.add(sequence.keys[logical], page):
                self.pool.label(page, sequence.keys[logical])
        sequence.num_indexed = full

    def release(self, sequence: Sequence, now: float) -> None:
        """Give all pages of ``sequence`` back."""
        for page in sequence.table.clear():
            self.pool.release(page)
            sequence.group.book.drop(page, now)
        sequence.num_indexed = 0
        sequence.num_computed = 0

    def distrust(self, sequence: Sequence) -> None:
        """Let nobody find the pages of ``sequence`` any more: their content may be wrong."""
        for page in sequence.table.pages:
            key = self.pool.forget(page)
            if key is not None:
                self.index.remove(key)

    def settle(self) -> None:
        """A plan is complete: pages kept for its copies are free, and accounts note their peak."""
        self.pool.unpin()
        for group in self._grown:
            group.book.peak()
        self._grown.clear()

    def _writes_shared(self, sequence: Sequence) -> bool:
        """The next position lies in a page that other tables name too."""
        table = sequence.table.pages
        logical = sequence.num_computed // self.page_size
        return logical < len(table) and self.pool.refs[table[logical]] > 1

    def _take(self) -> int:
        page = self.pool.allocate()
        assert page is not None, "fewer pages than were counted before"
        return page

    def _salt(self, sequence: Sequence) -> bytes:
        """What the keys of a sequence's pages depend on besides its tokens."""
        request, limit = sequence.group.request, self._longest_free_prompt
        if limit is None or len(request.prompt) <= limit:
            return bytes(8) + request.salt
        return len(request.prompt).to_bytes(8, "little") + request.salt
