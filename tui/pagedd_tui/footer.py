"""The last line: what plays or that it is frozen, the keys, the views."""

from __future__ import annotations

from rich.cells import cell_len
from rich.style import Style

from pagedd_tui import tones
from pagedd_tui.keys import permitted
from pagedd_tui.looking import VIEWS, Looking
from pagedd_tui.plain import Line, line, plain

# Keys that are not worth their room while many requests are shown, or one alone.
_OF_ONE = frozenset(("back", "cancel", "priority"))
_OF_MANY = frozenset(("filter", "sort", "open", "colour", "zoom_in", "next_panel"))


def footer_line(looking: Looking, playing: str, can_command: bool, width: int) -> Line:
    """``playing`` and the views have room first, then as many keys as fit."""
    parts: list[tuple[str, Style]] = [(f" {playing.upper()} ", tones.BANNER)]
    views: list[tuple[str, Style]] = []
    for number, name in VIEWS.items():
        chosen = number == looking.view and looking.subject is None
        views.append((f" {number}", tones.KEY))
        if width >= 110 or chosen:
            views.append((f" {name}", tones.STRONG if chosen else tones.DIM))
    room = width - _cells(parts) - _cells(views) - 1
    if looking.filter.text:
        text = f" /{plain(looking.filter.text, 24)}"
        parts.append((text, tones.BAD if looking.filter.problem else tones.WARN))
        room -= len(text)
    left_out = _OF_MANY if looking.subject is not None else _OF_ONE
    for key in permitted(looking.keys, can_command):
        cells = cell_len(key.shown) + len(key.hint) + 2
        if not key.hint or key.id in left_out or cells > room:
            continue
        room -= cells
        parts += [(f" {key.shown}", tones.KEY), (f" {key.hint}", tones.DIM)]
    return line(*parts, (" " * max(room + 1, 0), tones.TEXT), *views)


def _cells(parts: list[tuple[str, Style]]) -> int:
    return sum(len(text) for text, _ in parts)
