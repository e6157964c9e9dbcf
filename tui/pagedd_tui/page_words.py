"""What can be said of a page, or of the pages of a cell, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pagedd.protocol import CACHED, FREE, OWNED, SHARED, SequenceRow
from pagedd_tui.cells import Cells, Owner, RowKey
from pagedd_tui.plain import plain

NAME_CELLS = 40
_DEVICE = ("free", "owned", "shared", "cached")
_HOST = ("free", "swapped", "shared", "cached")


def describe(cells: Cells, rows: Mapping[RowKey, SequenceRow], pages: range, *, host: bool) -> str:
    """``pages`` lie side by side; there may be none, or they may not be there any more."""
    pages = range(pages.start, min(pages.stop, len(cells)))
    if not pages:
        return "no pages"
    kind = "host page" if host else "page"
    if len(pages) == 1:
        return f"{kind} {pages[0]}: {_one(cells, rows, pages[0], host=host)}"
    names = _HOST if host else _DEVICE
    states = Counter(names[_known(cells.states[page])] for page in pages)
    counts = ", ".join(f"{states[name]} {name}" for name in names[1:] + names[:1] if states[name])
    text = f"{kind}s {pages[0]} to {pages[-1]}: {counts}"
    owners = Counter(owner for owner in (cells.owners[page] for page in pages) if owner is not None)
    if owners:
        owner, count = owners.most_common(1)[0]
        text += f"; {count} held by {_name(owner, rows)}"
        if len(owners) > 1:
            text += f" and {len(owners) - 1} more"
    return text


def _one(cells: Cells, rows: Mapping[RowKey, SequenceRow], page: int, *, host: bool) -> str:
    state, owner = _known(cells.states[page]), cells.owners[page]
    if state == FREE:
        return "free"
    if state == CACHED:
        return "cached, held by nobody: it makes room when pages run out"
    if host:
        return "swapped, it waits to go back to the device"
    who = "a request that is not known" if owner is None else _name(owner, rows)
    if state == SHARED:
        return f"shared, {who} first of its holders"
    return f"owned by {who}"


def _name(owner: Owner, rows: Mapping[RowKey, SequenceRow]) -> str:
    assert owner is not None
    handle, index = owner
    row = rows.get(owner)
    name = f"#{handle}" if row is None else f"{plain(row.id, NAME_CELLS)} (#{handle})"
    return f"{name} choice {index}" if index else name


def _known(state: int) -> int:
    return state if OWNED <= state <= CACHED else FREE
