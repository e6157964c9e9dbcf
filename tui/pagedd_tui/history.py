"""The last minutes as charts: a line of the overview, or a view of its own."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from pagedd.protocol import Counters
from pagedd_tui.palette import Palette
from pagedd_tui.plots import SPANS_S, strip, view
from pagedd_tui.series import Series


class History(Widget):
    """``add`` is called by the frame clock; the charts are made anew when they are to be drawn."""

    def __init__(self, *, palette: Palette, id: str, compact: bool = False) -> None:
        super().__init__(id=id)
        self._palette = palette
        self._compact = compact
        self._series = Series()
        self._span_s: float | None = None  # as much as there is
        self._lines: list[list[Segment]] | None = None
        self._drawn_size = (0, 0)

    @property
    def palette(self) -> Palette:
        """Another one may be put in its place."""
        return self._palette

    @palette.setter
    def palette(self, palette: Palette) -> None:
        self._palette = palette
        self._again()

    @property
    def compact(self) -> bool:
        """Whether it is one line."""
        return self._compact

    @compact.setter
    def compact(self, compact: bool) -> None:
        self._compact = compact
        self._again()

    def add(self, at: float, counters: Counters, gap: bool = False) -> None:
        """Counters at a time; ``gap``: not of the daemon that those before came from, or later."""
        if self._series.add(at, counters, gap):
            self._again()

    def zoom(self, delta: int) -> None:
        """Show less time, or more; where all is shown, as much as there is."""
        now = len(SPANS_S) if self._span_s is None else SPANS_S.index(round(self._span_s))
        then = max(0, min(now - delta, len(SPANS_S)))
        self._span_s = SPANS_S[then] if then < len(SPANS_S) else None
        self._again()

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if self._lines is None or self._drawn_size != (width, height):
            self._drawn_size = (width, height)
            self._lines = self._draw(width, height)
        line = self._lines[y] if y < len(self._lines) else []
        return Strip(line).adjust_cell_length(width).apply_style(self.rich_style)

    def _draw(self, width: int, height: int) -> list[list[Segment]]:
        if width < 1 or height < 1:
            return []
        if self._compact:
            return [strip(self._series, self._palette, width)]
        return view(self._series, self._palette, (width, height), self._span_s)

    def _again(self) -> None:
        self._lines = None
        self.refresh()
