"""A panel of lines: only those that differ from what is on the screen are drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from pagedd_tui.plain import Line, words

BLANK: Line = ()


class LinePanel(Widget):
    """Shows ``lines`` from ``top`` on. A panel that scrolls keeps its place when they change."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.top = 0
        self._lines: Sequence[Line] = ()
        self._drawn: list[Line] = []
        self._width = 0

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Show these. What has not changed is not drawn."""
        self._lines = lines
        self._place(self.top)

    def scroll_lines(self, count: int) -> None:
        """Move by so many lines, as far as there are some."""
        self._place(self.top + count)

    @property
    def all_lines(self) -> Sequence[Line]:
        """In sight or not."""
        return self._lines

    @property
    def text(self) -> list[str]:
        """What is on the screen, line by line."""
        return [words(line) for line in self._window()]

    def render_line(self, y: int) -> Strip:
        width, style = self.size.width, self.rich_style
        line = self._drawn[y] if 0 <= y < len(self._drawn) else BLANK
        return Strip(line).crop(0, width).extend_cell_length(width).apply_style(style)

    def on_resize(self, event: events.Resize) -> None:
        """Another size: lines of that width come with the next tick."""
        self._place(self.top)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.scroll_lines(-3)

    def _place(self, top: int) -> None:
        self.top = max(0, min(top, len(self._lines) - self.size.height))
        self._draw(self._window())

    def _window(self) -> list[Line]:
        return list(self._lines[self.top : self.top + self.size.height])

    def _draw(self, window: list[Line]) -> None:
        """Put ``window`` on the screen: one call for all lines that differ."""
        before, width = self._drawn, self.size.width
        rows = max(len(before), len(window))
        whole = width != self._width
        dirty = [
            Region(0, y, width, 1) for y in range(rows) if whole or _at(before, y) != _at(window, y)
        ]
        self._drawn, self._width = window, width
        if dirty:
            self.refresh(*dirty)


def _at(lines: list[Line], y: int) -> Line:
    return lines[y] if y < len(lines) else BLANK


class ScrollPanel(LinePanel, can_focus=True):
    """One that is scrolled by keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "lines(-1)", show=False),
        Binding("down,j", "lines(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "lines(-1000000)", show=False),
    ]

    def action_lines(self, count: int) -> None:
        """Scroll by lines."""
        self.scroll_lines(count)

    def action_page(self, count: int) -> None:
        """Scroll by what is seen at once."""
        self.scroll_lines(count * max(self.size.height - 1, 1))
