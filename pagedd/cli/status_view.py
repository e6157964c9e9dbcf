"""A status as a few lines for a person."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple, TextIO

from pagedd.cli.terminal import Style, can_show, columns_of, one_line
from pagedd.cli.times import duration
from pagedd.core.wording import counted

if TYPE_CHECKING:
    from pagedd.protocol import Status

BAR_CELLS = 40
_PHASES = ("plan", "build", "execute", "sample", "commit", "send")
_STATE_COLOURS = (("ready", "32"), ("loading", "33"), ("draining", "33"))


class Glyphs(NamedTuple):
    """Characters for page states, and separators."""

    owned: str
    shared: str
    cached: str
    free: str
    swapped: str
    dot: str
    between: str


RICH = Glyphs("█", "▓", "▒", "·", "░", "●", " · ")
ASCII = Glyphs("#", "=", "+", ".", "s", "*", ", ")


def lines_of(status: Status, stream: TextIO) -> list[str]:
    """Lines without newline, no wider than the terminal, without control characters of the data.

    What is longer goes on in the next line: a number that is cut in two reads as another one.
    """
    glyphs = RICH if can_show(stream, "".join(RICH)) else ASCII
    style = Style(stream)
    columns = columns_of(stream)
    rows = [_requests(status, glyphs)]
    if status.pages.total:
        rows.append(_pages(status, glyphs))
        if status.host_pages.total:
            rows.append(_host_pages(status, glyphs))
        rows.append(_speed(status, glyphs))
    if status.preemptions.swap or status.preemptions.recompute:
        rows.append(_preemptions(status, glyphs))
    if status.step_ms:
        rows.append(("step", _step(status.step_ms, glyphs)))
    rows.append(("listens", glyphs.between.join(one_line(at) for at in status.endpoints) or "-"))
    lines = [_head(status, glyphs, style, columns)]
    if isinstance(status.advice, str):
        rows.insert(0, ("advice", one_line(status.advice)))
    for name, text in rows:
        first, *more = wrap(text, max(columns - 10, 1)) or [""]
        colour = "1;33" if name == "advice" else "2"
        lines.append(f"{style(f'{name:<9}', colour)} {first}")
        lines += [" " * 10 + line for line in more]
    return lines


def bar(counts: Sequence[tuple[int, str]], total: int, free: str, cells: int = BAR_CELLS) -> str:
    """Pages as a bar: so many of each glyph, then the free ones; of any that exist at least one."""
    widths = [max(1, round(count * cells / total)) if count else 0 for count, _ in counts]
    while sum(widths) > cells:
        widths[widths.index(max(widths))] -= 1
    shown = "".join(glyph * width for (_, glyph), width in zip(counts, widths, strict=True))
    return shown + free * (cells - len(shown))


def amount(size: float) -> str:
    """Bytes in a unit that leaves few digits: 512 B, 34.0 MiB."""
    unit = "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


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
    now = [
        f"{counts.running} running",
        f"{counts.waiting} waiting",
        f"{counts.swapped} swapped",
    ]
    ended = [f"{counts.finished_total} finished", f"{counts.cancelled_total} cancelled"]
    ended.append(f"{counts.failed_total} failed")
    return "requests", f"{glyphs.between.join(now)}   ({glyphs.between.join(ended)})"


def _pages(status: Status, glyphs: Glyphs) -> tuple[str, str]:
    pages = status.pages
    held = ((pages.owned, glyphs.owned), (pages.shared, glyphs.shared))
    drawn = bar((*held, (pages.cached, glyphs.cached)), pages.total, glyphs.free)
    counts = [
        f"{pages.owned} owned",
        f"{pages.shared} shared",
        f"{pages.cached} cached",
        f"{pages.free} free",
    ]
    total = f"of {pages.total}"
    if glyphs is RICH:
        total += f" × {counted(status.page_size, 'token')}"
    used = f"{status.gpu_cache_usage:.0%} in use"
    return "pages", f"{drawn} {used}   {glyphs.between.join(counts)} {total}"


def _host_pages(status: Status, glyphs: Glyphs) -> tuple[str, str]:
    pages = status.host_pages
    drawn = bar(
        ((pages.swapped, glyphs.swapped), (pages.cached, glyphs.cached)), pages.total, glyphs.free
    )
    counts = [f"{pages.swapped} swapped", f"{pages.cached} cached", f"{pages.free} free"]
    used = f"{status.host_cache_usage:.0%} in use"
    return "host", f"{drawn} {used}   {glyphs.between.join(counts)} of {pages.total}"


def _speed(status: Status, glyphs: Glyphs) -> tuple[str, str]:
    parts = [
        f"{status.tokens.per_second:.1f} tokens/s",
        f"{status.tokens.generated} generated",
        f"{status.tokens.prompt} prompt",
    ]
    if status.prefix.queries:
        where = (
            f" ({counted(status.host_hits, 'token')} of it in host memory)"
            if status.host_hits
            else ""
        )
        share = status.prefix.hits / status.prefix.queries
        parts.append(f"{share:.0%} from the prefix cache{where}")
    return "tokens", glyphs.between.join(parts)


def _preemptions(status: Status, glyphs: Glyphs) -> tuple[str, str]:
    parts = [
        f"{status.preemptions.swap} by swap",
        f"{status.preemptions.recompute} by recompute",
        f"{counted(status.recomputed_tokens, 'token')} recomputed",
        f"{amount(status.swapped_bytes)} swapped",
    ]
    return "preempted", glyphs.between.join(parts)


def _step(step_ms: dict[str, float], glyphs: Glyphs) -> str:
    known = [name for name in _PHASES if name in step_ms]
    names = known + sorted(set(step_ms) - set(known) - {"total"})
    total = step_ms.get("total", sum(step_ms[name] for name in names))
    parts = glyphs.between.join(f"{one_line(name)} {step_ms[name]:.2f}" for name in names)
    return f"{total:.1f} ms: {parts}"
