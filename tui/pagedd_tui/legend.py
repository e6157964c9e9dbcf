"""What the glyphs and colours of the maps mean, in one line."""

from __future__ import annotations

from rich.style import Style

from pagedd.protocol import CACHED, FREE, OWNED, SHARED, SWAPPED
from pagedd_tui.colouring import AGE_LIMITS_S, ColourBy
from pagedd_tui.lines import LinePanel
from pagedd_tui.looks import class_mark, class_style
from pagedd_tui.palette import Palette
from pagedd_tui.plain import Line, line

_DIM, _TEXT = Style(dim=True), Style()
_SWATCHES = 6  # of the owners' colours

Entry = tuple[str, Style, str]  # glyph, its style, what it means


class Legend(LinePanel):
    """Says what the maps show now."""

    def show(self, palette: Palette, by: ColourBy, *, several: bool) -> None:
        """``several``: whether a cell stands for more than one page."""
        self.set_lines([legend_line(palette, by, several=several)])


def legend_line(palette: Palette, by: ColourBy, *, several: bool) -> Line:
    """Everything in one line, the most important first: it is cut where there is no room."""
    parts: list[tuple[str, Style]] = [(" ", _TEXT)]
    for glyph, style, meaning in entries(palette, by):
        parts += [(glyph, style), (f" {meaning}  " if meaning else "", _TEXT)]
    if several and palette.heights:
        parts.append((f"height {palette.levels}: how full  ", _DIM))
    reverse = palette.reversed_glyph(palette.glyph(OWNED, False))
    parts += [(reverse, palette.style(OWNED, False) + Style(reverse=True))]
    parts.append((" changed now, or of the chosen request", _DIM))
    return line(*parts)


def entries(palette: Palette, by: ColourBy) -> list[Entry]:
    """The meaning of each colour."""
    free = (palette.glyph(FREE, False), palette.style(FREE, False), "free")
    cached = (palette.glyph(CACHED, False), palette.style(CACHED, False))
    if by == "owner":
        marks = "".join(
            class_mark(palette, by, kind, host=False)
            if not palette.coloured
            else palette.glyph(OWNED, False)
            for kind in range(1, 1 + _SWATCHES)
        )
        swatches = [
            (mark, class_style(palette, by, kind, host=False), "")
            for kind, mark in enumerate(marks, 1)
        ]
        return [free, *_joined(swatches, "a colour for each request"), (*cached, "held by nobody")]
    if by == "age":
        limits = [f"changed in the last {AGE_LIMITS_S[0]:.0f} s"]
        limits += [f"{limit:.0f} s" for limit in AGE_LIMITS_S[1:]] + ["longer ago"]
        return [free, *(_entry(palette, by, 1 + i, said) for i, said in enumerate(limits))]
    if by == "refs":
        return [
            free,
            _entry(palette, by, CACHED, "held by none (cached)"),
            _entry(palette, by, OWNED, "by one"),
            _entry(palette, by, SHARED, "by several"),
        ]
    swapped = (palette.glyph(SWAPPED, True), palette.style(SWAPPED, True), "swapped (host)")
    owned = _entry(palette, by, OWNED, "owned")
    return [owned, _entry(palette, by, SHARED, "shared"), (*cached, "cached"), swapped, free]


def _entry(palette: Palette, by: ColourBy, kind: int, meaning: str) -> Entry:
    style = class_style(palette, by, kind, host=False)
    if palette.coloured and by == "age":
        return palette.glyph(OWNED, False), style, meaning
    return class_mark(palette, by, kind, host=False), style, meaning


def _joined(swatches: list[Entry], meaning: str) -> list[Entry]:
    """Several glyphs with one meaning, said after the last of them."""
    return [*swatches[:-1], (*swatches[-1][:2], meaning)]
