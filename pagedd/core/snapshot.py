"""Snapshot: a frozen picture for observers."""

from __future__ import annotations

from dataclasses import dataclass

from pagedd.core.events import Stats
from pagedd.core.ledger import Phase
from pagedd.core.sequence import Sequence
from pagedd.core.state import SchedulerState


@dataclass(frozen=True, slots=True)
class SequenceRow:
    """One sequence, as in ``sequences`` of a state frame. A request has one until it forks."""

    handle: int
    index: int
    state: str
    priority: int
    prompt_tokens: int
    generated: int
    computed: int  # tokens in the cache
    pages: int
    cached_tokens: int
    waiting_ms: float  # before it began and while preempted, together


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Pages, sequences and counters at one moment.

    ``cells`` holds a byte a page: 0 free, 1 owned, 2 shared, 3 cached. ``owners`` names for each
    page the row of ``sequences`` that holds it, counted from 1; 0 is none, and of several holders
    of a shared page it is the first. Rows are sorted by handle, then choice.
    """

    at: float  # seconds, the last time the scheduler was told
    page_size: int
    cells: bytes
    owners: tuple[int, ...]
    sequences: tuple[SequenceRow, ...]
    counters: Stats


def take_snapshot(state: SchedulerState) -> Snapshot:
    """The picture of ``state`` now."""
    pool = state.memory.pool
    num_pages = state.config.num_pages
    owners = [0] * num_pages
    rows: list[SequenceRow] = []
    for handle in sorted(state.groups):
        for sequence in state.groups[handle].remaining:
            rows.append(_row(sequence, state.now))
            for page in sequence.table.pages:
                owners[page] = owners[page] or len(rows)
    return Snapshot(
        at=state.now,
        page_size=state.config.page_size,
        cells=bytes(pool.state(page) for page in range(num_pages)),
        owners=tuple(owners),
        sequences=tuple(rows),
        counters=state.stats(),
    )


def _row(sequence: Sequence, now: float) -> SequenceRow:
    book = sequence.group.book
    return SequenceRow(
        handle=sequence.handle,
        index=sequence.index,
        state=sequence.state.value,
        priority=sequence.priority,
        prompt_tokens=sequence.num_prompt,
        generated=sequence.num_generated,
        computed=sequence.num_computed,
        pages=len(sequence.table),
        cached_tokens=sequence.group.cached_tokens,
        waiting_ms=book.elapsed_ms(Phase.QUEUED, now) + book.elapsed_ms(Phase.PREEMPTED, now),
    )
