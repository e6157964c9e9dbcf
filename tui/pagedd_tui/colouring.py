"""What a page's colour says: its state, its owner, when it changed last, how many hold it.

A page's class is a number from 0 to 15, 0 for a free one. Everything but a change of what the
colour says takes time in proportion to the changes. Plain data.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, get_args

from pagedd.protocol import FREE, SHARED
from pagedd_tui.cells import NUM_STATES, Cells, Owner
from pagedd_tui.palette import NUM_AGES, NUM_OWNERS

ColourBy = Literal["state", "owner", "age", "refs"]
WAYS: tuple[ColourBy, ...] = get_args(ColourBy)

NO_OWNER = NUM_OWNERS + 1  # the class of pages that no request holds, or no known one
AGE_LIMITS_S = (1.0, 10.0, 60.0)  # a page gets older when its last change is so long ago

Change = tuple[int, int, int]  # page, class before, class now


class Colouring:
    """``classes[page]``. The pages lie in a ``Cells``; ``take`` is told what has changed there."""

    def __init__(self, by: ColourBy = "state") -> None:
        self.by: ColourBy = by
        self.classes = bytearray()
        self.states = bytearray()
        self._owners: list[Owner] = []
        self._changed: list[float] = []  # when each page changed last
        self._now = 0.0
        # for each limit the changes that have not come to it, oldest first
        self._young: tuple[deque[tuple[float, tuple[int, ...]]], ...] = tuple(
            deque() for _ in AGE_LIMITS_S
        )

    def replace(self, cells: Cells, now: float) -> None:
        """All pages may be different. Those that are not keep their age."""
        states = bytearray(cells.states.translate(_KNOWN))
        if len(states) != len(self.states) or now < self._now:
            self._changed = [float("-inf")] * len(states)
            for young in self._young:
                young.clear()
        else:
            before = zip(self.states, self._owners, strict=True)
            after = zip(states, cells.owners, strict=True)
            pairs = enumerate(zip(before, after, strict=True))
            self._stamp(tuple(page for page, (was, is_) in pairs if was != is_), now)
        self._now, self.states, self._owners = now, states, list(cells.owners)
        self._expire(now)
        self.classes = self._build()

    def take(self, cells: Cells, changed: tuple[int, ...], now: float) -> list[Change]:
        """Pages have changed, or nothing but the time. Returns whose class is another now."""
        changes: list[Change] = []
        self._now = now
        self._stamp(changed, now)
        states, owners = cells.states, cells.owners
        for page in changed:
            state = states[page]
            self.states[page] = state if state < NUM_STATES else FREE
            self._owners[page] = owners[page]
            self._set(page, self._class_of(page), changes)
        for page in self._expire(now):
            self._set(page, self._class_of(page), changes)
        return changes

    def colour_by(self, by: ColourBy) -> None:
        """Let the colour say something else."""
        self.by = by
        self.classes = self._build()

    def _build(self) -> bytearray:
        if self.by in ("state", "refs"):
            return bytearray(self.states)
        return bytearray(map(self._class_of, range(len(self.states))))

    def _class_of(self, page: int) -> int:
        state = self.states[page]
        if state == FREE or self.by in ("state", "refs"):
            return state
        if self.by == "owner":
            owner = self._owners[page]
            return NO_OWNER if owner is None else owner[0] % NUM_OWNERS + 1
        age = self._now - self._changed[page]
        return 1 + sum(age >= limit for limit in AGE_LIMITS_S)

    def _set(self, page: int, kind: int, changes: list[Change]) -> None:
        before = self.classes[page]
        if before != kind:
            self.classes[page] = kind
            changes.append((page, before, kind))

    def _stamp(self, pages: tuple[int, ...], now: float) -> None:
        if pages:
            for page in pages:
                self._changed[page] = now
            self._young[0].append((now, pages))

    def _expire(self, now: float) -> list[int]:
        """Hand changes on from limit to limit. Returns the pages that got older by it."""
        older: list[int] = []
        for i, limit in enumerate(AGE_LIMITS_S):
            young = self._young[i]
            while young and now - young[0][0] >= limit:
                batch = young.popleft()
                if i + 1 < len(AGE_LIMITS_S):
                    self._young[i + 1].append(batch)
                if self.by == "age":
                    older += [page for page in batch[1] if self._changed[page] == batch[0]]
        return older


def holders(kind: int) -> int:
    """For colours by references: of a class the number of holders, 2 for several."""
    return {FREE: 0, SHARED: 2}.get(kind, 1 if kind < SHARED else 0)


assert len(AGE_LIMITS_S) + 1 == NUM_AGES
_KNOWN = bytes(state if state < NUM_STATES else FREE for state in range(256))
