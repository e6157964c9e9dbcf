"""The pages of one memory, device or host: a byte each, kept up to date from changes."""

from __future__ import annotations

from collections.abc import Iterable

NUM_STATES = 4


class Cells:
    """``states[page]`` as in ``pagedd.protocol.PageCells``; ``owners[page]``: a row of the model.

    ``counts[state]`` pages are in each state. Everything takes time in proportion to the changes.
    """

    def __init__(self) -> None:
        self.states = bytearray()
        self.owners: list[Owner] = []
        self.counts = [0] * NUM_STATES
        self.generation = 0  # raised when all pages were replaced

    def __len__(self) -> int:
        return len(self.states)

    def replace(self, states: bytes, owners: list[Owner] | None = None) -> None:
        """All pages at once: a keyframe. Unknown states count as free."""
        self.states = bytearray(states)
        self.owners = [None] * len(states) if owners is None else owners
        self.counts = [self.states.count(state) for state in range(NUM_STATES)]
        self.counts[0] += len(states) - sum(self.counts)
        self.generation += 1

    def change(self, ids: Iterable[int], states: bytes, owners: list[Owner] | None = None) -> None:
        """Some pages. ``ids`` lie within the memory, as many as ``states``."""
        mine, counts = self.states, self.counts
        for page, state in zip(ids, states, strict=True):
            before = mine[page]
            counts[before if before < NUM_STATES else 0] -= 1
            counts[state if state < NUM_STATES else 0] += 1
            mine[page] = state
        if owners is not None:
            for page, owner in zip(ids, owners, strict=True):
                self.owners[page] = owner


RowKey = tuple[int, int]  # handle, index of the choice
Owner = RowKey | None
