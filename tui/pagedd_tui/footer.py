"""The last line: live or frozen, the keys, the views."""

from __future__ import annotations

from rich.style import Style

from pagedd_tui import tones
from pagedd_tui.keys import KEYS
from pagedd_tui.looking import VIEWS, Looking
from pagedd_tui.plain import Line, line, plain


def footer_line(looking: Looking, live: bool, can_command: bool, width: int) -> Line:
    """The state and the views have room first, then as many keys as fit."""
    tag = " LIVE " if live else " FROZEN "
    parts: list[tuple[str, Style]] = [(tag, tones.BANNER)]
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
    for key in KEYS:
        hint = key.hint
        if looking.subject is not None and key.id in ("open", "sort"):
            hint = "back" if key.id == "open" else ""
        if not hint or (key.commands and not can_command):
            continue
        shown = "esc" if hint == "back" else key.shown
        cells = len(shown) + len(hint) + 2
        if cells > room:
            continue
        room -= cells
        parts += [(f" {shown}", tones.KEY), (f" {hint}", tones.DIM)]
    return line(*parts, (" " * max(room + 1, 0), tones.TEXT), *views)


def _cells(parts: list[tuple[str, Style]]) -> int:
    return sum(len(text) for text, _ in parts)
