"""The daemon's copy of the engine's pages and sequences, kept while somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pagedd.core.watch import Changes, Key
from pagedd.protocol import Counters, PageCells, SequenceRow, State

# About the bytes of a change: its number, its state, its owner. A keyframe has the last two for
# each page, so that from so many changes on it is the smaller one.
_KEY_SHARE = 2 / 5


@dataclass(slots=True)
class Dirt:
    """What is another than in somebody's last frame. ``everything``: a keyframe is due."""

    everything: bool = True
    pages: set[int] = field(default_factory=set)
    host_pages: set[int] = field(default_factory=set)
    rows: set[Key] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self.everything or any((self.pages, self.host_pages, self.rows, self.gone))

    def add(self, changes: Changes) -> None:
        """Take in what one step has changed."""
        self.everything = self.everything or changes.key
        if not self.everything:
            self.pages.update(changes.pages)
            self.host_pages.update(changes.host_pages)
            self.gone.update(changes.gone)
            self.rows.update((row.handle, row.choice) for row in changes.rows)


class StateMirror:
    """Takes the changes in, gives frames out. ``id_of``: the client's name of a handle."""

    def __init__(self, id_of: Callable[[int], str]) -> None:
        self._id_of = id_of
        self.clear()

    def clear(self) -> None:
        """Nothing is known: nobody looked, or the engine is another one."""
        self.known = False
        self._cells = bytearray()
        self._host_cells = bytearray()
        self._owners: list[Key | None] = []
        self._rows: dict[Key, SequenceRow] = {}

    def take(self, changes: Changes) -> None:
        """What one step has changed. Before the first whole picture nothing is taken in."""
        if changes.key:
            self.known = True
            self._cells, self._host_cells = bytearray(changes.cells), bytearray(changes.host_cells)
            self._owners = list(changes.owners)
            self._rows = {}
        elif not self.known:
            return
        else:
            self._change(changes)
        for row in changes.rows:
            key = (row.handle, row.choice)
            self._rows[key] = SequenceRow(row.handle, self._id_of(row.handle), *row[1:])

    def is_large(self, dirt: Dirt) -> bool:
        """A keyframe would be smaller than the changes."""
        pages, host_pages = len(self._cells), len(self._host_cells)
        return len(dirt.pages) + len(dirt.host_pages) > _KEY_SHARE * (pages + host_pages)

    def keyframe(self, number: int, at: float, counters: Counters) -> State:
        """The whole picture."""
        place = {key: index for index, key in enumerate(self._rows, 1)}
        return State(
            frame=number,
            at=at,
            key=True,
            pages=PageCells(bytes(self._cells), n=len(self._cells)),
            host_pages=PageCells(bytes(self._host_cells), n=len(self._host_cells)),
            owners=[0 if owner is None else place[owner] for owner in self._owners],
            sequences=list(self._rows.values()),
            gone=[],
            counters=counters,
        )

    def change(self, number: int, at: float, dirt: Dirt, counters: Counters) -> State:
        """What ``dirt`` names, as it is now, and the rows that the owners refer to."""
        pages, host_pages = sorted(dirt.pages), sorted(dirt.host_pages)
        owners = [self._owners[page] for page in pages]
        # of a request of which one choice is gone, the others have to come again
        named = {key: None for key in self._rows if key in dirt.rows or key[0] in dirt.gone}
        named.update((owner, None) for owner in owners if owner is not None)
        place = {key: index for index, key in enumerate(named, 1)}
        return State(
            frame=number,
            at=at,
            key=False,
            pages=PageCells(bytes(map(self._cells.__getitem__, pages)), ids=pages),
            host_pages=PageCells(
                bytes(map(self._host_cells.__getitem__, host_pages)), ids=host_pages
            ),
            owners=[0 if owner is None else place[owner] for owner in owners],
            sequences=[self._rows[key] for key in named],
            gone=sorted(dirt.gone),
            counters=counters,
        )

    def _change(self, changes: Changes) -> None:
        for page, cell, owner in zip(changes.pages, changes.cells, changes.owners, strict=True):
            self._cells[page] = cell
            self._owners[page] = owner
        for page, cell in zip(changes.host_pages, changes.host_cells, strict=True):
            self._host_cells[page] = cell
        if changes.gone:
            gone = set(changes.gone)
            for key in [key for key in self._rows if key[0] in gone]:
                del self._rows[key]
