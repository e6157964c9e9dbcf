"""What the frames of the ``state`` feed add up to. Plain data: no terminal, no network."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET

from pagedd.protocol import Counters, PageCells, SequenceRow, State
from pagedd_tui.cells import Cells, Owner, RowKey

NO_COUNTERS = Counters(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, {})


@dataclass(frozen=True, slots=True)
class Changed:
    """What one frame has changed: pages of the device and of the host; ``key``: all of them."""

    key: bool
    pages: tuple[int, ...] = ()
    host_pages: tuple[int, ...] = ()


class BrokenFrame(ValueError):
    """A frame contradicts itself, or the frames before it; the sentence says how."""


class Model:
    """The picture after the last frame. ``frame`` is its number, 0 before the first."""

    def __init__(self) -> None:
        self.frame = 0
        self.at = 0.0
        self.pages = Cells()
        self.host = Cells()
        self.rows: dict[RowKey, SequenceRow] = {}
        self.counters = NO_COUNTERS

    def follows(self, frame: State) -> bool:
        """Whether ``frame`` can be taken in: a keyframe, or the one after the last.

        If not, frames are missing: subscribe again.
        """
        return frame.key or (self.frame > 0 and frame.frame == self.frame + 1)

    def take(self, frame: State) -> Changed:
        """Fold ``frame`` in, which follows. Raises BrokenFrame, and then nothing is changed."""
        if not self.follows(frame):
            raise BrokenFrame(f"frame {frame.frame} does not follow frame {self.frame}")
        owners = _owners(frame)
        changed = self._checked(frame)
        if frame.key:
            self.pages.replace(frame.pages.cells, owners)
            self.host.replace(frame.host_pages.cells)
            self.rows = {}
        else:
            self.pages.change(changed.pages, frame.pages.cells, owners)
            self.host.change(changed.host_pages, frame.host_pages.cells)
            if frame.gone:
                gone = set(frame.gone)
                for key in [key for key in self.rows if key[0] in gone]:
                    del self.rows[key]
        for row in frame.sequences:
            self.rows[row.handle, row.index] = row
        self.frame, self.at, self.counters = frame.frame, frame.at, frame.counters
        return changed

    def copy(self) -> Model:
        """The same picture, on its own."""
        other = Model()
        other.frame, other.at, other.counters = self.frame, self.at, self.counters
        other.pages.replace(bytes(self.pages.states), list(self.pages.owners))
        other.host.replace(bytes(self.host.states))
        other.rows = dict(self.rows)
        return other

    def keyframe(self) -> State:
        """One frame that says all this: a model that takes it in is equal to this one."""
        rows = [self.rows[key] for key in sorted(self.rows)]
        place = {(row.handle, row.index): i for i, row in enumerate(rows, 1)}
        return State(
            frame=self.frame,
            at=self.at,
            key=True,
            pages=PageCells(bytes(self.pages.states), n=len(self.pages)),
            host_pages=PageCells(bytes(self.host.states), n=len(self.host)),
            owners=[0 if owner is None else place.get(owner, 0) for owner in self.pages.owners],
            sequences=rows,
            gone=[],
            counters=self.counters,
        )

    def _checked(self, frame: State) -> Changed:
        if frame.key:
            for cells in (frame.pages, frame.host_pages):
                if cells.n is UNSET or cells.n != len(cells.cells):
                    raise BrokenFrame(f"keyframe {frame.frame} has {len(cells.cells)} cells")
            return Changed(key=True)
        return Changed(
            key=False,
            pages=_ids(frame.pages, len(self.pages)),
            host_pages=_ids(frame.host_pages, len(self.host)),
        )


def _owners(frame: State) -> list[Owner]:
    if len(frame.owners) != len(frame.pages.cells):
        raise BrokenFrame(f"frame {frame.frame} names {len(frame.owners)} owners")
    keys: list[Owner] = [None, *((row.handle, row.index) for row in frame.sequences)]
    if any(not 0 <= owner < len(keys) for owner in frame.owners):
        raise BrokenFrame(f"frame {frame.frame} names an owner that it does not describe")
    return [keys[owner] for owner in frame.owners]


def _ids(cells: PageCells, size: int) -> tuple[int, ...]:
    ids = () if cells.ids is UNSET else tuple(cells.ids)
    if len(ids) != len(cells.cells) or any(not 0 <= page < size for page in ids):
        raise BrokenFrame("a change names pages that there are not")
    return ids
