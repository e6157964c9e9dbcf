"""Watch: what has changed since the last look, collected where it happens, while somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pagedd.core.host import HostPool
    from pagedd.core.memory import Memory
    from pagedd.core.pages import PagePool
    from pagedd.core.sequence import Group, Sequence

Key = tuple[int, int]  # handle, choice


class Changes(NamedTuple):
    """Pages, by state and holder, and sequences that are others than at the last look.

    ``key``: all of them, from page 0 on; then ``pages`` and ``host_pages`` are empty.
    ``owners[i]``: handle and choice of the first holder of the page of ``cells[i]``, or None.
    ``gone``: of these requests every row is obsolete; what goes on of them is in ``rows``.
    """

    key: bool
    pages: list[int]  # ascending
    cells: bytes
    owners: list[Key | None]
    host_pages: list[int]  # ascending
    host_cells: bytes
    rows: list[SequenceRow]
    gone: list[int]


class SequenceRow(NamedTuple):
    """One sequence, as in ``sequences`` of a state frame. A request has one until it forks."""

    handle: int
    choice: int
    state: str
    priority: int
    prompt_tokens: int
    generated: int
    computed: int  # tokens in the cache, or kept in host memory
    pages: int  # of its page table; while it is swapped, of host memory
    cached_tokens: int
    waiting_ms: float  # before it began and while preempted, together


class Holders:
    """Who names each page: noted in the request's account, and page by page during a watch."""

    def __init__(self) -> None:
        self._of: dict[int, list[Sequence]] | None = None

    def begin(self, sequences: Iterable[Sequence]) -> None:
        """From now on :meth:`first` can be asked."""
        self._of = {}
        for sequence in sequences:
            for page in sequence.table.pages:
                self._of.setdefault(page, []).append(sequence)

    def end(self) -> None:
        """No more."""
        self._of = None

    def hold(self, page: int, sequence: Sequence, now: float) -> None:
        """The table of ``sequence`` names ``page``."""
        sequence.group.book.hold(page, now)
        if self._of is not None:
            self._of.setdefault(page, []).append(sequence)

    def drop(self, page: int, sequence: Sequence, now: float) -> None:
        """It does so no more."""
        sequence.group.book.drop(page, now)
        if self._of is not None:
            holders = self._of[page]
            holders.remove(sequence)
            if not holders:
                del self._of[page]

    def first(self, page: int) -> Key | None:
        """The first holder in the order of handle and choice."""
        assert self._of is not None, "nobody watches"
        holders = self._of.get(page)
        return min((each.handle, each.index) for each in holders) if holders else None


class Watch:
    """Compares the sequences, and takes from the pools which pages were touched.

    The pools and ``Memory`` note what they do only while there is a watch, so that a scheduler at
    which nobody looks pays a comparison with None. A look takes time in proportion to the changes
    and the sequences.
    """

    def __init__(self, memory: Memory, groups: Mapping[int, Group]) -> None:
        self._pool = memory.pool
        self._host = memory.host
        self._holders = memory.holders
        self._seen: dict[Key, tuple[object, ...]] = {}
        self._whole = True  # the next look is the first
        self._pool.touched = set()
        self._host.touched = set()
        self._groups = groups
        self._holders.begin(self._sequences())

    def end(self) -> None:
        """Nobody looks any more."""
        self._pool.touched = None
        self._host.touched = None
        self._holders.end()

    def look(self, now: float) -> Changes:
        """What is another than at the look before; everything at the first."""
        rows, gone = self._compare(now)
        pages, cells = _taken(self._pool, whole=self._whole)
        host_pages, host_cells = _taken(self._host, whole=self._whole)
        first = self._holders.first
        owners = [first(page) for page in pages]
        if self._whole:
            self._whole = False
            return Changes(True, [], cells, owners, [], host_cells, rows, [])
        return Changes(False, pages, cells, owners, host_pages, host_cells, rows, gone)

    def _sequences(self) -> Iterator[Sequence]:
        for group in self._groups.values():
            yield from group.remaining

    def _compare(self, now: float) -> tuple[list[SequenceRow], list[int]]:
        before, seen = self._seen, {}
        changed: list[Sequence] = []
        same: list[Sequence] = []
        for sequence in self._sequences():
            key = (sequence.handle, sequence.index)
            seen[key] = mark = _mark(sequence)
            (same if before.get(key) == mark else changed).append(sequence)
        self._seen = seen
        gone = sorted({handle for handle, index in before.keys() - seen.keys()})
        if gone:  # of these, also what has not changed is told again
            changed += [each for each in same if each.handle in gone]
        return [row_of(sequence, now) for sequence in changed], gone


def row_of(sequence: Sequence, now: float) -> SequenceRow:
    """The row of ``sequence`` at this moment."""
    return SequenceRow(
        sequence.handle,
        sequence.index,
        sequence.state.value,
        sequence.priority,
        sequence.num_prompt,
        sequence.num_generated,
        sequence.num_computed or sequence.num_saved,
        len(sequence.table) or len(sequence.host),
        sequence.group.cached_tokens,
        sequence.group.book.waited_ms(now),
    )


def _mark(sequence: Sequence) -> tuple[object, ...]:
    """What a row tells but for the time, which goes on by itself."""
    return (
        sequence.state,
        sequence.order,
        len(sequence.tokens),
        sequence.num_computed,
        sequence.num_saved,
        len(sequence.table.pages) or len(sequence.host),
        sequence.group.cached_tokens,
    )


def _taken(pool: PagePool | HostPool, *, whole: bool) -> tuple[list[int], bytes]:
    """The touched pages, which are not touched any more, and what they are now."""
    assert pool.touched is not None
    pages = list(range(len(pool.refs))) if whole else sorted(pool.touched)
    pool.touched.clear()
    return pages, bytes(map(pool.state, pages))
