"""Pages → cells: a cell stands for ``k`` pages that lie side by side. Plain data, O(changes).

A page has a class, 0 to 15; class 0 is free. What is asked of a cell is which class most of its
pages have that are not free, and how full it is. Both have a little inertia, so that a cell does
not flicker when a count goes to and fro around a limit.
"""

from __future__ import annotations

from collections.abc import Iterable

NUM_CLASSES = 16
EMPTY, LOWEST, LOW, HALF, FULL = range(5)  # levels
LEVEL_SHIFT = 4  # a shown byte is level << 4 | class

# The share of pages in use up to which a level holds, and how far beyond it must be to leave it.
_LIMITS = (0.0, 0.1875, 0.375, 0.75, 1.0)
_SLACK = 0.0625
# A class must lead by this share of the pages in use before it takes the place of another.
_LEAD = 0.125


def pages_per_cell(pages: int, cells: int) -> int:
    """The smallest number that lets all pages fit; 1 when there are no cells."""
    return max(-(-pages // cells), 1) if cells > 0 else 1


class Grid:
    """``shown[cell]``: its level and class, as ``level << 4 | class``."""

    def __init__(self, k: int, classes: bytes | bytearray, *, inertia: bool = True) -> None:
        assert k >= 1
        self.k = k
        self.num_pages = len(classes)
        self._slack, self._lead = (_SLACK, _LEAD) if inertia else (0.0, 0.0)
        self._counts = _counts(classes, k)
        self.shown = bytearray(-(-len(classes) // k))
        for cell in range(len(self.shown)):
            self.shown[cell] = self._look(cell)

    def __len__(self) -> int:
        return len(self.shown)

    def pages_of(self, cell: int) -> range:
        """The pages that the cell stands for."""
        return range(cell * self.k, min((cell + 1) * self.k, self.num_pages))

    def counts_of(self, cell: int) -> list[int]:
        """How many of its pages have each class."""
        return self._counts[cell * NUM_CLASSES : (cell + 1) * NUM_CLASSES]

    def change(self, changes: Iterable[tuple[int, int, int]]) -> set[int]:
        """Take in (page, class before, class now). Returns the cells that look different now."""
        counts, k = self._counts, self.k
        touched = set()
        for page, before, now in changes:
            cell = page // k
            at = cell * NUM_CLASSES
            counts[at + before] -= 1
            counts[at + now] += 1
            touched.add(cell)
        different = set()
        for cell in touched:
            look = self._look(cell)
            if look != self.shown[cell]:
                self.shown[cell] = look
                different.add(cell)
        return different

    def _look(self, cell: int) -> int:
        at = cell * NUM_CLASSES
        counts = self._counts[at + 1 : at + NUM_CLASSES]
        used = sum(counts)
        if not used:
            return 0
        before = self.shown[cell]
        most = max(counts)
        kind = counts.index(most) + 1
        if before:
            shown_kind = before & NUM_CLASSES - 1
            of_shown = counts[shown_kind - 1]
            if of_shown and most - of_shown <= self._lead * used:
                kind = shown_kind
        share = used / (used + self._counts[at])
        return self._level(share, before >> LEVEL_SHIFT) << LEVEL_SHIFT | kind

    def _level(self, share: float, before: int) -> int:
        slack = self._slack
        if before and _LIMITS[before - 1] - slack < share <= _LIMITS[before] + slack:
            return before
        return next(level for level in range(LOWEST, FULL + 1) if share <= _LIMITS[level])


def _counts(classes: bytes | bytearray, k: int) -> list[int]:
    """For each cell the pages of each class, one after the other."""
    present = sorted(set(classes))
    counts = [0] * (-(-len(classes) // k) * NUM_CLASSES)
    for cell in range(-(-len(classes) // k)):
        pages = classes[cell * k : (cell + 1) * k]
        for kind in present:
            counts[cell * NUM_CLASSES + kind] = pages.count(kind)
    return counts
