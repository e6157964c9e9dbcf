"""Who holds how many pages of the device, by request: its choices have pages in common."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from pagedd.protocol import OWNED, SequenceRow
from pagedd_tui.columns import is_held, name_of
from pagedd_tui.model import Model
from pagedd_tui.plain import plain


class Holder(NamedTuple):
    """A request of which something is on the device.

    ``rows``: its choices that are; ``pages``: those that they hold together, each counted once.
    """

    rows: list[SequenceRow]
    pages: int

    @property
    def state(self) -> str:
        """Decoding, if one of its choices is."""
        states = [row.state for row in self.rows]
        return "decoding" if "decoding" in states else states[0]

    def name(self, width: int) -> str:
        """The client's name for it; where it has one choice there, also which that is."""
        (first, *more) = self.rows
        return plain(first.id, width) if more else name_of(first, width)


def holders(model: Model) -> list[Holder]:
    """All that hold pages of the device, those with the most pages first."""
    requests: dict[int, list[SequenceRow]] = defaultdict(list)
    for row in model.rows.values():
        if is_held(row) and row.pages:
            requests[row.handle].append(row)
    several = [handle for handle, rows in requests.items() if len(rows) > 1]
    alone = _alone(model, several)
    found = [Holder(rows, _together(rows, alone[handle])) for handle, rows in requests.items()]
    return sorted(found, key=lambda each: (-each.pages, each.rows[0].handle))


def _alone(model: Model, handles: Iterable[int]) -> Counter[int]:
    """How many pages one choice of each of these requests holds alone, of all its choices."""
    wanted = set(handles)
    if not wanted:
        return Counter()
    pages = zip(model.pages.owners, model.pages.states, strict=True)
    held = (owner[0] for owner, state in pages if owner is not None and state == OWNED)
    return Counter(handle for handle in held if handle in wanted)


def _together(rows: list[SequenceRow], alone: int) -> int:
    """Pages of all choices. What is not held by one alone is of the prompt, and held by each."""
    total = sum(row.pages for row in rows)
    if len(rows) == 1:
        return total
    return alone + ceil(max(total - alone, 0) / len(rows))
