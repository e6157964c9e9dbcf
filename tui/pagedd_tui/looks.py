"""From the codes of a picture to glyphs and styles."""

from __future__ import annotations

from rich.style import Style

from pagedd.protocol import CACHED
from pagedd_tui.colouring import NO_OWNER, ColourBy, holders
from pagedd_tui.grid import EMPTY, FULL, LEVEL_SHIFT, NUM_CLASSES
from pagedd_tui.palette import NUM_AGES, NUM_OWNERS, Palette
from pagedd_tui.picture import REVERSE

Look = tuple[str, Style]

_REVERSED = Style(reverse=True)


def looks(palette: Palette, by: ColourBy, *, host: bool, single: bool) -> list[Look]:
    """For each code what to draw. ``single``: a cell is one page."""
    table: list[Look] = []
    for code in range(REVERSE):
        shape, kind = code >> LEVEL_SHIFT, code & NUM_CLASSES - 1
        style = class_style(palette, by, kind, host=host)
        if single:
            glyph = _glyph_of_page(palette, by, shape, kind, host=host)
            if by == "owner" and kind == NO_OWNER:
                style = palette.style(shape, host)
        else:
            glyph = _glyph_of_cell(palette, by, shape, kind, host=host)
        table.append((glyph, style))
    table += [(palette.reversed_glyph(glyph), style + _REVERSED) for glyph, style in table]
    return table


def class_style(palette: Palette, by: ColourBy, kind: int, *, host: bool) -> Style:
    """The colour of a class of pages."""
    if kind == 0 or by == "state":
        return palette.style(kind, host)
    if by == "refs":
        return palette.refs(holders(kind))
    if by == "age":
        return palette.age(NUM_AGES - 1 if kind > NUM_AGES else kind - 1)
    return palette.owner(kind - 1) if kind <= NUM_OWNERS else palette.style(CACHED, host)


def class_mark(palette: Palette, by: ColourBy, kind: int, *, host: bool) -> str:
    """A glyph that tells classes apart where colours do not."""
    if kind == 0 or by in ("state", "refs"):
        return palette.glyph(kind, host)
    if by == "age":
        return str(min(kind, NUM_AGES) - 1)
    return chr(ord("a") + kind - 1) if kind <= NUM_OWNERS else palette.glyph(CACHED, host)


def _glyph_of_page(palette: Palette, by: ColourBy, state: int, kind: int, *, host: bool) -> str:
    if palette.coloured or by in ("state", "refs"):
        return palette.glyph(state, host)
    return class_mark(palette, by, kind, host=host)


def _glyph_of_cell(palette: Palette, by: ColourBy, level: int, kind: int, *, host: bool) -> str:
    if level == EMPTY:
        return palette.glyph(0, host)
    if palette.heights:
        return palette.levels[min(level, FULL) - 1]
    return class_mark(palette, by, kind, host=host)
