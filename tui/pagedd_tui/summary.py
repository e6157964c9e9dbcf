"""What a terminal too small for panels shows: the same answers in words."""

from __future__ import annotations

from collections.abc import Sequence

from pagedd.protocol import CACHED, FREE, OWNED, SHARED, SWAPPED, Record, SequenceRow
from pagedd_tui import tones
from pagedd_tui.columns import Entry, name_of
from pagedd_tui.glance import most_pages, sharing, why_next
from pagedd_tui.model import Model
from pagedd_tui.plain import Line, fold, line, plain


def summary_lines(
    model: Model,
    entries: Sequence[Entry],
    next_row: SequenceRow | None,
    reason: Record | None,
    width: int,
) -> list[Line]:
    """The most important first; what does not fit below is cut off."""
    pages, host, counters = model.pages.counts, model.host.counts, model.counters
    lines = [
        f"run {counters.num_requests_running} wait {counters.num_requests_waiting} "
        f"swap {counters.num_requests_swapped} {counters.tokens_per_second:.0f} tok/s",
        f"pages {len(model.pages)}: {pages[OWNED]} owned {pages[SHARED]} shared "
        f"{pages[CACHED]} cached {pages[FREE]} free",
        f"host {len(model.host)}: {host[SWAPPED]} swapped {host[CACHED]} cached {host[FREE]} free",
    ]
    found = [line((plain(text, width), tones.TEXT)) for text in lines]
    for text in (f"next: {why_next(model, next_row, reason)}", most_pages(model), sharing(model)):
        found += [line((each, tones.TEXT)) for each in fold(text, width, 3)]
    for entry in entries:
        row = entry.row
        text = f"{name_of(row, 16)} {row.prompt_tokens}→{row.generated} {row.pages}p"
        state = plain(row.state, 10)
        found.append(
            line(
                (f"{state:<10} "[:width], tones.STATES.get(state, tones.TEXT)),
                (plain(text, max(width - 11, 0)), tones.TEXT),
            )
        )
    return found
