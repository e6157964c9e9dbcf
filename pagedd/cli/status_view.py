"""A status as a few lines for a person."""

from __future__ import annotations

import shutil
from textwrap import wrap
from typing import NamedTuple, TextIO

from pagedd.cli.terminal import Style, can_show, one_line
from pagedd.protocol import PageCounts, Status

BAR_CELLS = 40
_PHASES = ("plan", "build", "execute", "sample", "commit", "send")
_STATE_COLOURS = (("ready", "32"), ("loading", "33"), ("draining", "33"))


class Glyphs(NamedTuple):
    """Characters for page states, and separators."""

    owned: str
    shared: str
    cached: str
    free: str
    dot: str
    between: str


RICH = Glyphs("█", "▓", "▒", "·", "●", " · ")
ASCII = Glyphs("#", "=", "+", ".", "*", ", ")


def lines_of(status: Status, stream: TextIO) -> list[str]:
    """Lines without newline, no wider than the terminal, without control characters of the data.

    What is longer goes on in the next line: a number that is cut in two reads as another one.
    """
    glyphs = RICH if can_show(stream, "".join(RICH)) else ASCII
    style = Style(stream)
    columns = shutil.get_terminal_size((100, 24)).columns if style.enabled else 200
    rows = [_requests(status, glyphs)]
    if status.pages.total:
        rows += [_pages(status.pages, status.page_size, glyphs), _speed(status, glyphs)]
    if status.step_ms:
        rows.append(("step", _step(status.step_ms, glyphs)))
    rows.append(("listens", glyphs.between.join(one_line(at) for at in status.endpoints) or "-"))
    if isinstance(status.advice, str):
        rows.append(("advice", one_line(status.advice)))
    lines = [_head(status, glyphs, style, columns)]
    for name, text in rows:
        first, *more = wrap(text, max(columns - 10, 1)) or [""]
        lines.append(f"{style(f'{name:<9}', '2')} {first}")
        lines += [" " * 10 + line for line in more]
    return lines


def bar(pages: PageCounts, glyphs: Glyphs, cells: int = BAR_CELLS) -> str:
    """The pages as a bar: owned, shared, cached, free; any that exist show at least one cell."""
    counts = (pages.owned, pages.shared, pages.cached)
    widths = [max(1, round(count * cells / pages.total)) if count else 0 for count in counts]
    while sum(widths) > cells:
        widths[widths.index(max(widths))] -= 1
    shown = "".join(glyph * width for glyph, width in zip(glyphs, widths, strict=False))
    return shown + glyphs.free * (cells - len(shown))


def duration(seconds: float) -> str:
    """Two units at most: 2 h 5 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _head(status: Status, glyphs: Glyphs, style: Style, columns: int) -> str:
    state = one_line(status.state)
    colour = dict(_STATE_COLOURS).get(status.state, "31")
    rest = f"  {one_line(status.model)}"
    where = one_line(f"{status.device}, {status.dtype}".strip(", "))
    if where:
        rest += f" ({where})"
    rest += f"  up {duration(status.uptime_s)}  pid {status.pid}"
    if isinstance(status.reason, str):
        rest += f"  {one_line(status.reason)}"
    room = max(columns - len(f"pagedd {glyphs.dot} {state}"), 0)
    return f"pagedd {style(f'{glyphs.dot} {state}', colour)}{rest[:room]}"


def _requests(status: Status, glyphs: Glyphs) -> tuple[str, str]:
    counts = status.requests
    now = [f"{counts.running} running", f"{counts.waiting} waiting"]
    if counts.swapped:
        now.append(f"{counts.swapped} swapped")
    ended = [f"{counts.finished_total} finished", f"{counts.cancelled_total} cancelled"]
    ended.append(f"{counts.failed_total} failed")
    return "requests", f"{glyphs.between.join(now)}   ({glyphs.between.join(ended)})"


def _pages(pages: PageCounts, page_size: int, glyphs: Glyphs) -> tuple[str, str]:
    used = (pages.owned + pages.shared) / pages.total
    counts = [
        f"{pages.owned} owned",
        f"{pages.shared} shared",
        f"{pages.cached} cached",
        f"{pages.free} free",
    ]
    total = f"of {pages.total} × {page_size} tokens" if glyphs is RICH else f"of {pages.total}"
    return (
        "pages",
        f"{bar(pages, glyphs)} {used:.0%} in use   {glyphs.between.join(counts)} {total}",
    )


def _speed(status: Status, glyphs: Glyphs) -> tuple[str, str]:
    parts = [
        f"{status.tokens.per_second:.1f} tokens/s",
        f"{status.tokens.generated} generated",
        f"{status.tokens.prompt} prompt",
    ]
    if status.prefix.queries:
        parts.append(f"{status.prefix.hits / status.prefix.queries:.0%} from the prefix cache")
    preempted = status.preemptions.swap + status.preemptions.recompute
    if preempted:
        parts.append(f"{preempted} preemptions")
    return "tokens", glyphs.between.join(parts)


def _step(step_ms: dict[str, float], glyphs: Glyphs) -> str:
    known = [name for name in _PHASES if name in step_ms]
    names = known + sorted(set(step_ms) - set(known) - {"total"})
    total = step_ms.get("total", sum(step_ms[name] for name in names))
    parts = glyphs.between.join(f"{one_line(name)} {step_ms[name]:.2f}" for name in names)
    return f"{total:.1f} ms: {parts}"
