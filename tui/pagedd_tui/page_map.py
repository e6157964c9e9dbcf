"""The map of a memory: a cell for a page, or for several, drawn line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from pagedd.protocol import SequenceRow
from pagedd_tui.cells import Cells, RowKey
from pagedd_tui.colouring import WAYS, ColourBy
from pagedd_tui.looks import looks
from pagedd_tui.page_words import describe
from pagedd_tui.palette import Palette
from pagedd_tui.picture import Picture

_RUNS = re.compile(rb"(?s)(.)\1*")
_CURSOR = Style(color="#000000", bgcolor="#ffffff", bold=True)
_CURSOR_MONO = Style(reverse=True, bold=True, underline=True)


class PageMap(ScrollView, can_focus=True, inherit_bindings=False):
    """``show`` is called by the frame clock; only rows in sight that differ are drawn again."""

    DEFAULT_CSS = """
    PageMap { overflow-x: hidden; scrollbar-size: 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1, 0)", show=False),
        Binding("right,l", "move(1, 0)", show=False),
        Binding("up,k", "move(0, -1)", show=False),
        Binding("down,j", "move(0, 1)", show=False),
        Binding("pageup", "turn(-1)", show=False),
        Binding("pagedown", "turn(1)", show=False),
    ]

    class CursorMoved(Message):
        """The cursor is on another cell; ``page_map.describe_cursor()`` says what is there."""

        def __init__(self, page_map: PageMap) -> None:
            super().__init__()
            self.page_map = page_map

    def __init__(self, *, host: bool, palette: Palette, id: str) -> None:
        super().__init__(id=id)
        self.host = host
        self.cursor = 0  # a page: it stays where it is when the zoom changes
        self._palette = palette
        self._zoom = 0
        self._picture = Picture()
        self._cells = Cells()
        self._rows: Mapping[RowKey, SequenceRow] = {}
        self._looks = looks(palette, "state", host=host, single=True)
        self._shown_title = ""

    @property
    def title(self) -> str:
        """What is to be seen: which memory, how many pages, how many of them a cell stands for."""
        picture = self._picture
        parts = [f"{'host' if self.host else 'device'} pages {picture.num_pages}"]
        if picture.k > 1:
            parts.append(f"1 cell = {picture.k} pages")
        if self.colour_by != "state":
            parts.append(f"by {self.colour_by}")
        rows, height, top = picture.num_rows, self.size.height, self.scroll_offset.y
        if rows > height > 0:
            parts.append(f"rows {top + 1}-{min(top + height, rows)} of {rows}")
        return (" | " if self._palette.ascii else " · ").join(parts)

    @property
    def palette(self) -> Palette:
        """Another one may be put in its place."""
        return self._palette

    @palette.setter
    def palette(self, palette: Palette) -> None:
        self._palette = palette
        self._draw_all()

    @property
    def colour_by(self) -> ColourBy:
        """What the colours say."""
        return self._picture.by

    @colour_by.setter
    def colour_by(self, by: ColourBy) -> None:
        self._picture.colour_by(by)
        self._draw_all()

    @property
    def pages_per_cell(self) -> int:
        """How many pages a cell stands for."""
        return self._picture.k

    def cycle_colour(self) -> None:
        """Let the colours say the next thing: state, owner, age, references."""
        self.colour_by = WAYS[(WAYS.index(self.colour_by) + 1) % len(WAYS)]

    def show(
        self,
        cells: Cells,
        rows: Mapping[RowKey, SequenceRow],
        changed: tuple[int, ...] | None,
        now: float,
    ) -> None:
        """The pages after a frame; ``changed``: which ones are different, None for all."""
        self._cells, self._rows = cells, rows
        dirty = self._picture.show(cells, changed, now)
        if dirty is None:
            self.cursor = max(min(self.cursor, len(cells) - 1), 0)
            self._lay_out()
            self._draw_all()
        else:
            self._draw(dirty)

    def select(self, owner: RowKey | None) -> None:
        """Show the pages of this request in reverse video."""
        self._draw(self._picture.select(owner))

    def zoom(self, delta: int) -> None:
        """Each step halves the pages of a cell, down to one; back to where all can be seen."""
        zoom, fit = self._zoom + delta, self._picture.fit_k
        self._zoom = max(0, min(zoom, (fit - 1).bit_length()))
        if self._lay_out():
            self._draw_all()
            self._keep_in_sight()

    def page_at(self, x: int, y: int) -> int | None:
        """The first page of the cell at a place of the widget's content; None beside the cells."""
        width = self._picture.width
        cell = (y + self.scroll_offset.y) * width + x
        if not (0 <= x < width and y >= 0 and cell < self._picture.num_cells):
            return None
        return cell * self._picture.k

    def owner_at_cursor(self) -> RowKey | None:
        """The request that holds the page under the cursor, or the first page of its cell held."""
        pages = self._picture.pages_of(self.cursor // self._picture.k)
        owners = (self._cells.owners[page] for page in pages if page < len(self._cells))
        return next((owner for owner in owners if owner is not None), None)

    def describe_cursor(self) -> str:
        """A line about the page under the cursor, or the pages of its cell."""
        pages = self._picture.pages_of(self.cursor // self._picture.k)
        return describe(self._cells, self._rows, pages, host=self.host)

    def render_line(self, y: int) -> Strip:
        width, row, picture = self.size.width, y + self.scroll_offset.y, self._picture
        codes = picture.row(row) if row < picture.num_rows else b""
        table = self._looks
        at, cursor_row = self._cursor_place()
        if self.has_focus and cursor_row == row and at < len(codes):
            segments = [*_runs(codes[:at], table), self._cursor(codes[at])]
            segments += _runs(codes[at + 1 :], table)
        else:
            segments = list(_runs(codes, table))
        strip = Strip(segments, len(codes))
        if len(codes) != width:
            strip = strip.adjust_cell_length(width)
        # the theme's background, not the terminal's
        return strip.apply_style(Style(bgcolor=self.rich_style.bgcolor))

    def on_resize(self) -> None:
        """Other rows of cells."""
        if self._lay_out():
            self._draw_all()
            self._keep_in_sight()

    def on_focus(self) -> None:
        self._draw({self.cursor // self._picture.k})

    def on_blur(self) -> None:
        self._draw({self.cursor // self._picture.k})

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        page = None if offset is None else self.page_at(offset.x, offset.y)
        if page is not None:
            self._put_cursor(page)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._entitle()

    def action_move(self, columns: int, rows: int) -> None:
        """The cursor goes by cells."""
        picture = self._picture
        cell = self.cursor // picture.k + columns + rows * picture.width
        if 0 <= cell < picture.num_cells:
            self._put_cursor(cell * picture.k)

    def action_turn(self, screens: int) -> None:
        """The cursor goes by as many rows as can be seen."""
        picture = self._picture
        step = max(self.size.height - 1, 1) * picture.width
        cell = self.cursor // picture.k + screens * step
        if picture.num_cells:
            self._put_cursor(max(0, min(cell, picture.num_cells - 1)) * picture.k)

    def _put_cursor(self, page: int) -> None:
        before, self.cursor = self.cursor, page
        self._draw({before // self._picture.k, page // self._picture.k})
        self._keep_in_sight()
        self.post_message(self.CursorMoved(self))

    def _cursor_place(self) -> tuple[int, int]:
        cell, width = self.cursor // self._picture.k, max(self._picture.width, 1)
        return cell % width, cell // width

    def _cursor(self, code: int) -> Segment:
        glyph, _ = self._looks[code & 0x7F]
        return Segment(glyph, _CURSOR if self._palette.coloured else _CURSOR_MONO)

    def _keep_in_sight(self) -> None:
        row, top, height = self._cursor_place()[1], self.scroll_offset.y, self.size.height
        if height and not top <= row < top + height:
            y = row if row < top else row - height + 1
            self.scroll_to(y=y, animate=False, immediate=True)

    def _lay_out(self) -> bool:
        width, height = self.size
        different = self._picture.lay_out(width, height, self._zoom)
        size = Size(width, max(self._picture.num_rows, height))
        if size != self.virtual_size:
            self.virtual_size = size
        return different

    def _draw_all(self) -> None:
        single = self._picture.k == 1
        self._looks = looks(self._palette, self.colour_by, host=self.host, single=single)
        self._entitle()
        self.refresh()

    def _draw(self, cells: Iterable[int]) -> None:
        """Draw the rows of these cells again, as far as they are in sight, in one call."""
        width, height = self.size
        columns, top = max(self._picture.width, 1), self.scroll_offset.y
        rows = {cell // columns - top for cell in cells}
        regions = [Region(0, row, width, 1) for row in rows if 0 <= row < height]
        if regions:
            self.refresh(*regions)

    def _entitle(self) -> None:
        title = self.title
        if title != self._shown_title:
            self._shown_title = title
            self.border_title = title


def _runs(codes: bytes, table: list[tuple[str, Style]]) -> Iterable[Segment]:
    """A segment for each run of equal cells."""
    for run in _RUNS.finditer(codes):
        begin, end = run.span()
        glyph, style = table[codes[begin]]
        yield Segment(glyph * (end - begin), style)
