"""A world with somebody who looks: what looks add up to is the picture of the moment."""

from __future__ import annotations

from typing import Any

from pagedd.core.watch import Changes, Key, SequenceRow
from tests.core.world import World


class Picture:
    """The looks, folded by the rules of the wire."""

    def __init__(self) -> None:
        self.cells = bytearray()
        self.host_cells = bytearray()
        self.owners: list[Key | None] = []
        self.rows: dict[Key, SequenceRow] = {}
        self.told = 0  # rows

    def take(self, changes: Changes) -> None:
        if changes.key:
            self.cells, self.host_cells = bytearray(changes.cells), bytearray(changes.host_cells)
            self.owners = list(changes.owners)
            self.rows = {}
        for page, cell, owner in zip(changes.pages, changes.cells, changes.owners, strict=False):
            self.cells[page], self.owners[page] = cell, owner
        for page, cell in zip(changes.host_pages, changes.host_cells, strict=False):
            self.host_cells[page] = cell
        gone = set(changes.gone)
        self.rows = {key: row for key, row in self.rows.items() if row.handle not in gone}
        for row in changes.rows:
            self.rows[row.handle, row.choice] = row
        self.told += len(changes.rows)


class WatchedWorld(World):
    """Looks after every change, and compares with the snapshot."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.picture = Picture()
        self.watched = True
        self.scheduler.watch(wanted=True)

    def _observe(self, *, audit: bool = True) -> None:
        super()._observe(audit=audit)
        if self.watched:
            self.look()

    def look(self) -> Changes:
        changes = self.scheduler.look()
        assert changes is not None
        assert changes.pages == sorted(set(changes.pages))
        self.picture.take(changes)
        self.compare()
        return changes

    def compare(self) -> None:
        """Rows without their time, which goes on by itself."""
        snapshot, picture = self.scheduler.snapshot(), self.picture
        assert picture.cells == snapshot.cells
        assert picture.host_cells == snapshot.host_cells
        named = [None, *((row.handle, row.choice) for row in snapshot.sequences)]
        assert picture.owners == [named[owner] for owner in snapshot.owners]
        assert {key: row[:-1] for key, row in picture.rows.items()} == {
            (row.handle, row.choice): row[:-1] for row in snapshot.sequences
        }
