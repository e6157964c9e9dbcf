"""The picture of a map before it is drawn: cells, their colours, which are in reverse video."""

from __future__ import annotations

from operator import or_

from pagedd_tui.cells import Cells, RowKey
from pagedd_tui.colouring import Change, ColourBy, Colouring
from pagedd_tui.grid import LEVEL_SHIFT, Grid, pages_per_cell

REVERSE = 0x80  # a bit of a code


class Picture:
    """Cells in rows of ``width``. A cell's code is ``REVERSE? | shape << 4 | class``.

    The shape is the page's state where a cell is one page (``k`` = 1), and a level otherwise.
    ``show`` and ``select`` return the cells that are to be drawn again, None for all.
    """

    def __init__(self, by: ColourBy = "state") -> None:
        self.k = 1
        self.fit_k = 1  # pages a cell when everything is to be seen at once
        self.width = 0
        self.selected: RowKey | None = None
        self._colouring = Colouring(by)
        self._cells = Cells()
        self._generation = -1
        self._grid: Grid | None = None
        self._reverse = bytearray()
        self._flashed: set[int] = set()
        self._picked: dict[int, int] = {}  # cell → its pages that the selected request holds
        self._picked_pages: set[int] = set()

    @property
    def by(self) -> ColourBy:
        """What the colours say."""
        return self._colouring.by

    @property
    def num_pages(self) -> int:
        """All pages."""
        return len(self._colouring.states)

    @property
    def num_cells(self) -> int:
        """All cells, also those that are scrolled away."""
        return -(-self.num_pages // self.k)

    @property
    def num_rows(self) -> int:
        """All rows, the last of which may be short."""
        return -(-self.num_cells // self.width) if self.width else 0

    def lay_out(self, width: int, height: int, zoom: int) -> bool:
        """Fit the pages into rows; each step of ``zoom`` halves the pages of a cell.

        Returns whether anything is different.
        """
        fit = pages_per_cell(self.num_pages, width * height)
        k = max(-(-fit // (1 << min(zoom, 30))), 1)
        if (k, fit, width) == (self.k, self.fit_k, self.width):
            return False
        different = k != self.k
        self.k, self.fit_k, self.width = k, fit, width
        if different:
            self._rebuild()
        return True

    def show(self, cells: Cells, changed: tuple[int, ...] | None, now: float) -> set[int] | None:
        """The pages after a frame that changed some, or all (None). Changed ones are reversed."""
        known = cells is self._cells and cells.generation == self._generation
        if changed is None or not known or len(cells) != self.num_pages:
            self._cells, self._generation = cells, cells.generation
            self._colouring.replace(cells, now)
            self._rebuild()
            return None
        dirty = self._recolour(self._colouring.take(cells, changed, now))
        dirty |= self._flashed
        for cell in self._flashed:
            self._reverse[cell] = REVERSE if cell in self._picked else 0
        self._flashed = {page // self.k for page in changed}
        dirty |= self._flashed
        if self.selected is not None:
            dirty |= self._pick(changed)
        for cell in self._flashed:
            self._reverse[cell] = REVERSE
        return dirty

    def select(self, owner: RowKey | None) -> set[int]:
        """Reverse the pages that this request holds as the first of their holders."""
        if owner == self.selected:
            return set()
        before = set(self._picked)
        self.selected = owner
        self._pick_all()
        return before | set(self._picked)

    def colour_by(self, by: ColourBy) -> None:
        """Let the colours say something else: all cells are to be drawn again."""
        self._colouring.colour_by(by)
        self._rebuild()

    def row(self, y: int) -> bytes:
        """The codes of one row; fewer than ``width`` at the end of the pages."""
        begin, end = y * self.width, min((y + 1) * self.width, self.num_cells)
        if self._grid is not None:
            codes = self._grid.shown[begin:end]
        else:
            shapes = self._colouring.states[begin:end]
            kinds = self._colouring.classes[begin:end]
            codes = bytearray(
                shape << LEVEL_SHIFT | kind for shape, kind in zip(shapes, kinds, strict=True)
            )
        return bytes(map(or_, codes, self._reverse[begin:end]))

    def pages_of(self, cell: int) -> range:
        """The pages that a cell stands for."""
        return range(cell * self.k, min((cell + 1) * self.k, self.num_pages))

    def _recolour(self, changes: list[Change]) -> set[int]:
        if self._grid is not None:
            return self._grid.change(changes)
        return {page for page, _, _ in changes}

    def _rebuild(self) -> None:
        self._grid = Grid(self.k, self._colouring.classes) if self.k > 1 else None
        self._flashed = set()
        self._reverse = bytearray(self.num_cells)
        self._pick_all()

    def _pick_all(self) -> None:
        for cell in self._picked:
            if cell < len(self._reverse) and cell not in self._flashed:
                self._reverse[cell] = 0
        self._picked = {}
        self._picked_pages = set()
        if self.selected is not None:
            owners = self._cells.owners
            self._pick(tuple(p for p, owner in enumerate(owners) if owner == self.selected))

    def _pick(self, pages: tuple[int, ...]) -> set[int]:
        """Look again whether the selected request holds these pages."""
        owners, mine = self._cells.owners, self._picked_pages
        different = set()
        for page in pages:
            holds = owners[page] == self.selected
            if holds == (page in mine):
                continue
            cell = page // self.k
            count = self._picked.get(cell, 0) + (1 if holds else -1)
            if holds:
                mine.add(page)
            else:
                mine.discard(page)
            if count:
                self._picked[cell] = count
            else:
                del self._picked[cell]
            self._reverse[cell] = REVERSE if count or cell in self._flashed else 0
            different.add(cell)
        return different
