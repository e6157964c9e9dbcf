"""What a scheduler's watch tells → frames of the ``state`` feed."""

from __future__ import annotations

from collections.abc import Mapping

from pagedd.core.watch import Changes, Key
from pagedd.protocol import Counters, PageCells, SequenceRow, State
from pagedd_tui.demo_events import Who


class Frames:
    """Numbers the frames of one feed. It remembers the rows, as each frame names owners by them."""

    def __init__(self) -> None:
        self._number = 0
        self._rows: dict[Key, SequenceRow] = {}

    def frame(
        self, changes: Changes, names: Mapping[int, Who], at: float, counters: Counters
    ) -> State:
        """The next frame: a keyframe if ``changes`` are everything."""
        self._number += 1
        rows = self._told(changes, names)
        place: dict[Key | None, int] = {key: number for number, key in enumerate(rows, 1)}
        if changes.key:
            pages = PageCells(changes.cells, n=len(changes.cells))
            host = PageCells(changes.host_cells, n=len(changes.host_cells))
        else:
            pages = PageCells(changes.cells, ids=changes.pages)
            host = PageCells(changes.host_cells, ids=changes.host_pages)
        return State(
            frame=self._number,
            at=at,
            key=changes.key,
            pages=pages,
            host_pages=host,
            owners=[place.get(owner, 0) for owner in changes.owners],
            sequences=list(rows.values()),
            gone=changes.gone,
            counters=counters,
        )

    def _told(self, changes: Changes, names: Mapping[int, Who]) -> dict[Key, SequenceRow]:
        """The rows that changed, and those that the owners name."""
        if changes.key:
            self._rows.clear()
        for key in [key for key in self._rows if key[0] in changes.gone]:
            del self._rows[key]
        told: dict[Key, SequenceRow] = {}
        for row in changes.rows:
            id = names[row.handle].id if row.handle in names else ""
            told[row.handle, row.choice] = SequenceRow(
                handle=row.handle,
                id=id,
                index=row.choice,
                state=row.state,
                priority=row.priority,
                prompt_tokens=row.prompt_tokens,
                generated=row.generated,
                computed=row.computed,
                pages=row.pages,
                cached_tokens=row.cached_tokens,
                waiting_ms=round(row.waiting_ms, 1),
            )
        self._rows |= told
        for owner in changes.owners:
            if owner is not None:
                told.setdefault(owner, self._rows[owner])
        return told
