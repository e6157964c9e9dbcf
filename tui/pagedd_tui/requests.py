"""The table of requests: drawn line by line, sorted and filtered, with one of them chosen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from pagedd.protocol import SequenceRow
from pagedd_tui import tones
from pagedd_tui.cells import RowKey
from pagedd_tui.columns import MARKS, SORTS, Column, Entry, fitting, ordered, widths
from pagedd_tui.lines import LinePanel
from pagedd_tui.plain import Line, line, pad

_LEAST_TO_PIN = 6


class RequestTable(LinePanel, can_focus=True):
    """A title line, then a request a line. ``chosen`` stays chosen however the rows move.

    The next to be admitted is always seen: on the last line, if its place is out of sight.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
    ]

    class Opened(Message):
        """A double click on the chosen one."""

    class Sorted(Message):
        """A click on a column's title, or a key; the table is sorted by it already."""

    class Moved(Message):
        """Another one is chosen."""

    def __init__(self, *, id: str, ascii: bool = False) -> None:
        super().__init__(id=id)
        self.chosen: RowKey | None = None
        self.sort, self.reverse = SORTS[0], False
        self._marks = (">", "*") if ascii else ("▶", "»")
        self._entries: list[Entry] = []
        self._next: RowKey | None = None
        self._place_of_chosen = 0
        self._touched = False  # until somebody chooses, the first row is the chosen one
        self._all = 0

    @property
    def count(self) -> int:
        """Rows that the filter lets through."""
        return len(self._entries)

    @property
    def shown_keys(self) -> list[RowKey]:
        """The rows in their order."""
        return [entry.key for entry in self._entries]

    def show(self, entries: Iterable[Entry], total: int, next_key: RowKey | None) -> None:
        """These rows of ``total``; ``next_key`` is the next to be admitted."""
        self._entries = ordered(entries, self.sort, self.reverse)
        self._all, self._next = total, next_key
        self._follow()
        self._redraw()

    def sort_by(self, name: str) -> None:
        """Sort by a column; by the same again: the other way round."""
        self.reverse = not self.reverse if name == self.sort else False
        self.sort = name
        self._resort()

    def cycle_sort(self) -> None:
        """The next column."""
        self.sort, self.reverse = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)], False
        self._resort()

    def turn(self) -> None:
        """The other way round."""
        self.reverse = not self.reverse
        self._resort()

    def action_move(self, count: int) -> None:
        """Choose another."""
        self._choose(self._place_of_chosen + count)

    def action_page(self, count: int) -> None:
        """Choose one a page away."""
        self._choose(self._place_of_chosen + count * max(self.size.height - 2, 1))

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        if place is None:
            return
        if place.y == 0:
            name = self._column_at(place.x)
            if name:
                self.sort_by(name)
            return
        row = self.top + place.y - 1
        if not 0 <= row < len(self._entries):
            return
        if self._entries[row].key == self.chosen and event.chain > 1:
            self.post_message(self.Opened())
        else:
            self._choose(row)

    def _resort(self) -> None:
        self._entries = ordered(self._entries, self.sort, self.reverse)
        self._follow()
        self._redraw()
        self.post_message(self.Sorted())

    def _choose(self, place: int) -> None:
        if not self._entries:
            return
        place = max(0, min(place, len(self._entries) - 1))
        self._place_of_chosen, self._touched = place, True
        self.chosen = self._entries[place].key
        rows = max(self.size.height - 1, 1)
        self.top = max(place - rows + 1, min(self.top, place))
        self._redraw()
        self.post_message(self.Moved())

    def _follow(self) -> None:
        """Find the chosen one again; if it has gone, take the one in its place."""
        keys = [entry.key for entry in self._entries]
        if not keys:
            self.chosen, self._place_of_chosen = None, 0
        elif self.chosen in keys and self._touched:
            self._place_of_chosen = keys.index(self.chosen)
        else:
            self._place_of_chosen = min(self._place_of_chosen, len(keys) - 1) * self._touched
            self.chosen = keys[self._place_of_chosen]

    def _place(self, top: int) -> None:
        self.top = top
        self._redraw()

    def _redraw(self) -> None:
        self._draw(self._window())

    def _window(self) -> list[Line]:
        width, rows = self.size.width, max(self.size.height - 1, 0)
        self.top = max(0, min(self.top, len(self._entries) - rows))
        columns = fitting(width)
        id_cells, bar_cells = widths(columns, width)
        lines = [self._head(columns, id_cells, bar_cells)]
        if not self._entries:
            nothing = "no request matches the filter" if self._all else "no request is open"
            lines.append(line((f"  {nothing}", tones.DIM)))
        seen = self._entries[self.top : self.top + rows]
        if rows >= _LEAST_TO_PIN and len(self._entries) > rows:
            pinned = next((each for each in self._entries if each.key == self._next), None)
            if pinned is not None and pinned not in seen:
                seen[-1] = pinned
        most = max((entry.row.pages for entry in self._entries), default=0) or 1
        for entry in seen:
            bar = self._bar(entry.row, most, bar_cells) if bar_cells else ""
            lines.append(self._row(entry, columns, id_cells, bar))
        return lines[: self.size.height]

    def _bar(self, row: SequenceRow, most: int, cells: int) -> str:
        """The pages of a request beside those of the one with the most."""
        full, part = divmod(row.pages * cells * 8 // most, 8)
        if self._marks[0] == ">":
            return "  " + pad("#" * full, cells)
        return "  " + pad("█" * full + (" ▏▎▍▌▋▊▉"[part] if part else ""), cells)

    def _head(self, columns: list[Column], id_cells: int, bar_cells: int) -> Line:
        parts = [(" " * MARKS, tones.TEXT)]
        for column in columns:
            width = id_cells if column.name == "id" else column.width
            sorts = column.name == self.sort
            title = column.title
            if sorts:
                down = "v^" if self._marks[0] == ">" else "▼▲"
                title = f"{title[: width - 1]}{down[self.reverse]}"
            parts.append((pad(title, width, right=column.right), tones.KEY if sorts else tones.DIM))
            parts.append((" ", tones.TEXT))
        if bar_cells:
            parts.append((f" {pad('PAGES BESIDE THE MOST', bar_cells)}", tones.DIM))
        else:
            parts.pop()
        return line(*parts)

    def _row(self, entry: Entry, columns: list[Column], id_cells: int, bar: str) -> Line:
        chosen, is_next = entry.key == self.chosen, entry.key == self._next
        ground = tones.CHOSEN if chosen else tones.TEXT
        marks = (self._marks[0] if chosen else " ") + (self._marks[1] if is_next else " ")
        parts: list[tuple[str, Style]] = [(marks, ground if chosen else tones.WARN)]
        state = tones.STATES.get(entry.row.state, tones.TEXT)
        for column in columns:
            width = id_cells if column.name == "id" else column.width
            coloured = column.name == "state" or (is_next and column.name == "id")
            style = state if coloured else tones.TEXT
            parts.append((pad(column.text(entry), width, right=column.right), ground + style))
            parts.append((" ", ground))
        parts[-1] = (bar, ground + state)
        return line(*parts)

    def _column_at(self, x: int) -> str:
        columns = fitting(self.size.width)
        id_cells, _ = widths(columns, self.size.width)
        at = MARKS
        for column in columns:
            at += (id_cells if column.name == "id" else column.width) + 1
            if x < at:
                return column.name
        return ""
