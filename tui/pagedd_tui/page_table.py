"""A page table as lines: logical → physical, shared pages marked, and with whom they are shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.style import Style

from pagedd.protocol import OWNED, SHARED, SWAPPED, PageTable
from pagedd_tui import tones
from pagedd_tui.columns import name_of
from pagedd_tui.model import Model
from pagedd_tui.palette import Palette
from pagedd_tui.plain import Line, fold, line, plain

_MOST = 2000  # pages that are drawn of a table


def table_lines(table: PageTable, palette: Palette, width: int, several: bool) -> list[Line]:
    """A title, then the pages in logical order: ``3→817`` is the fourth page of the sequence."""
    shared = sum(1 for refs in table.refs if refs > 1)
    name = f"choice {table.index}: " if several else ""
    title = f"{name}{len(table.pages)} pages of the device, {shared} of them shared"
    if table.host:
        title += f"; {len(table.host)} pages of host memory"
    lines = [line((title, tones.TEXT))]
    lines += _grid(0, table.pages, table.refs, palette, width, host=False)
    if table.host:
        lines.append(line(("in host memory:", tones.TEXT)))
        refs = [1] * len(table.host)
        lines += _grid(table.host_start, table.host, refs, palette, width, host=True)
    return lines


def sharing_lines(tables: Sequence[PageTable], handle: int, model: Model, width: int) -> list[Line]:
    """Who else holds pages of these tables, as far as the feed names them."""
    shared = {
        page
        for table in tables
        for page, refs in zip(table.pages, table.refs, strict=False)
        if refs > 1
    }
    if not shared:
        return [line(("nobody: all its pages are its own", tones.TEXT))]
    most = max(refs for table in tables for refs in (*table.refs, 0))
    named: Counter[str] = Counter()
    for page in shared:
        owner = model.pages.owners[page] if 0 <= page < len(model.pages) else None
        row = None if owner is None or owner[0] == handle else model.rows.get(owner)
        if row is not None:
            named[name_of(row, 40)] += 1
    said = f"{len(shared)} pages are held by up to {most} sequences"
    own = len(tables) - 1
    if own > 0:
        said += f", its own {len(tables)} choices among them"
    if named:
        who = ", ".join(f"{name} ({pages} pages)" for name, pages in named.most_common(8))
        said += f"; with {who}"
    elif own <= 0:
        said += "; it was the first of them"
    return [line((text, tones.TEXT)) for text in fold(plain(said, 1000), width)]


def _grid(
    start: int,
    pages: Sequence[int],
    refs: Sequence[int],
    palette: Palette,
    width: int,
    *,
    host: bool,
) -> list[Line]:
    """As many columns as there is room for."""
    number = len(str(start + len(pages)))
    physical = len(str(max(pages, default=0)))
    cell = number + physical + 7
    columns = max(width // cell, 1)
    lines: list[Line] = []
    parts: list[tuple[str, Style]] = []
    for i, page in enumerate(pages[:_MOST]):
        times = refs[i] if i < len(refs) else 1
        state = SWAPPED if host else SHARED if times > 1 else OWNED
        mark = f"×{times}" if times > 1 else ""
        parts.append((f"{start + i:>{number}}→", tones.DIM))
        parts.append(
            (f"{palette.glyph(state, host)}{page:<{physical}}", palette.style(state, host))
        )
        parts.append((f"{mark:<5}", tones.STRONG if mark else tones.TEXT))
        if (i + 1) % columns == 0:
            lines.append(line(*parts))
            parts = []
    if parts:
        lines.append(line(*parts))
    if len(pages) > _MOST:
        lines.append(line((f"and {len(pages) - _MOST} more", tones.DIM)))
    return lines
