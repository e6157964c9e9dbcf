"""Charts of blocks: values → lines of segments. Series lie on top of each other in one chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style

EIGHTHS = " ▁▂▃▄▅▆▇█"
_ASCII = " ...::==#"
_FILLS = "█▒░▓"  # tell series apart without colours
_ASCII_FILLS = "#=.+"

_STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15)

Column = Sequence[float] | None  # a value for each series from the bottom up; None: not known


@dataclass(frozen=True, slots=True)
class Ink:
    """How charts are drawn: a style for each series, and whether colours and blocks may be used."""

    styles: tuple[Style, ...]
    coloured: bool
    ascii: bool

    def style(self, series: int) -> Style:
        """The styles take turns."""
        return self.styles[series % len(self.styles)]


def nice_top(value: float) -> float:
    """A round number that is not below ``value`` and not far above it."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if value <= step * power * (1 + 1e-9))


def spark(values: Sequence[float | None], top: float, ink: Ink, series: int = 0) -> list[Segment]:
    """One line. Anything above nothing can be seen; what is not known stays blank."""
    return chart([None if value is None else (value,) for value in values], top, 1, ink, series)[0]


def chart(
    columns: Sequence[Column], top: float, rows: int, ink: Ink, series: int = 0
) -> list[list[Segment]]:
    """``rows`` lines, the highest first. ``top``: the value of the upper edge."""
    drawn = [_column(column, top, rows, ink, series) for column in columns]
    return [_joined([column[row] for column in drawn]) for row in range(rows)]


def _column(column: Column, top: float, rows: int, ink: Ink, first: int) -> list[Segment]:
    """The cells of a column from the highest to the lowest."""
    edges, total = [], 0.0
    for value in column or ():
        total += value
        edges.append(total / top * rows * 8 if top > 0 else 0.0)
    if edges and total > 0:
        edges[-1] = min(max(edges[-1], 1.0), rows * 8.0)
    return [_cell(edges, row * 8, ink, first) for row in range(rows - 1, -1, -1)]


def _cell(edges: list[float], low: int, ink: Ink, first: int) -> Segment:
    """The cell from ``low`` to 8 eighths above it. ``edges``: upper ends of the series."""
    filled = round(min(edges[-1] - low, 8)) if edges else 0
    if filled <= 0:
        return Segment(" ", ink.styles[0])
    bottom = next(i for i, edge in enumerate(edges) if edge > low)
    part = round(min(edges[bottom] - low, 8))
    stacked = len(edges) > 1
    if ink.coloured and not ink.ascii and 0 < part < filled == 8:
        above = next(i for i, edge in enumerate(edges) if edge > low + part)
        style = ink.style(first + bottom) + Style(bgcolor=ink.style(first + above).color)
        return Segment(EIGHTHS[part], style)
    # the series that takes most of the cell, as far as one glyph can tell
    middle = low + filled / 2
    most = next((i for i, edge in enumerate(edges) if edge > middle), len(edges) - 1)
    if stacked and filled == 8 and not ink.coloured:
        fills = _ASCII_FILLS if ink.ascii else _FILLS
        return Segment(fills[(first + most) % len(fills)], ink.style(first + most))
    glyphs = _ASCII if ink.ascii else EIGHTHS
    return Segment(glyphs[filled], ink.style(first + most))


def _joined(cells: list[Segment]) -> list[Segment]:
    """A segment for each run of one style."""
    joined: list[Segment] = []
    for cell in cells:
        if joined and joined[-1].style == cell.style:
            joined[-1] = Segment(joined[-1].text + cell.text, cell.style)
        else:
            joined.append(cell)
    return joined
