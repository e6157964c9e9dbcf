"""Snapshot: a frozen picture for observers."""

from __future__ import annotations

from dataclasses import dataclass

from pagedd.core.events import Stats
from pagedd.core.state import SchedulerState
from pagedd.core.watch import SequenceRow, row_of


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Pages, sequences and counters at one moment.

    ``cells`` holds a byte a page: 0 free, 1 owned, 2 shared, 3 cached; ``host_cells`` one a host
    page: 0 free, 1 swapped, 3 cached. ``owners`` names for each
    page the row of ``sequences`` that holds it, counted from 1; 0 is none, and of several holders
    of a shared page it is the first. Rows are sorted by handle, then choice.
    """

    at: float  # seconds, the last time the scheduler was told
    page_size: int
    cells: bytes
    host_cells: bytes
    owners: tuple[int, ...]
    sequences: tuple[SequenceRow, ...]
    counters: Stats


def take_snapshot(state: SchedulerState) -> Snapshot:
    """The picture of ``state`` now."""
    pool, host = state.memory.pool, state.memory.host
    num_pages = state.config.num_pages
    owners = [0] * num_pages
    rows: list[SequenceRow] = []
    for handle in sorted(state.groups):
        for sequence in state.groups[handle].remaining:
            rows.append(row_of(sequence, state.now))
            for page in sequence.table.pages:
                owners[page] = owners[page] or len(rows)
    return Snapshot(
        at=state.now,
        page_size=state.config.page_size,
        cells=bytes(map(pool.state, range(num_pages))),
        host_cells=bytes(map(host.state, range(len(host.refs)))),
        owners=tuple(owners),
        sequences=tuple(rows),
        counters=state.stats(),
    )
