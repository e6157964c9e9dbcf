"""What steps compute twice and copy because of preemptions, counted from outside."""

from __future__ import annotations

from collections import Counter

from pagedd.core.events import StepEvents
from pagedd.core.plan import StepPlan

Owner = tuple[int, int]  # handle, choice


class Tally:
    """Follows plans as a runner does: a slot, and a table, belong to whom the last join named.

    ``recomputed`` tokens and ``swapped`` pages by handle. Copies for the prefix cache, out when
    pages are evicted and in when a new request finds them, do not count as swapped; nor do pages
    that were copied in for a sequence that had to go again before it had them all.
    """

    def __init__(self) -> None:
        self.recomputed: Counter[int] = Counter()
        self.swapped: Counter[int] = Counter()
        self.saved = 0  # evicted pages that live on in host memory
        self._owners: dict[int, Owner] = {}  # by slot
        self._tables: dict[Owner, dict[int, int]] = {}  # logical → page, of who runs or ran last
        self._arrived: set[int] = set()  # device pages that were copied in, and joined by nobody
        self._reached: Counter[Owner] = Counter()  # tokens computed, at the most

    def add(self, plan: StepPlan, events: StepEvents) -> None:
        """The next step, and what was told of it."""
        self.saved += sum(each.saved for each in events.evicted)
        gone = [(each.handle, each.choice) for each in events.preempted if each.mode == "swap"]
        out = {copy.src for copy in plan.swap_out}
        for owner in gone:
            mine = out & set(self._tables[owner].values())
            self.swapped[owner[0]] += len(mine)
            out -= mine  # what two of them share is copied once
        self._arrived.update(copy.dst for copy in plan.swap_in)
        back = {(each.handle, each.choice) for each in events.resumed if each.mode == "swap"}
        for join in plan.join:
            owner = join.handle, join.index
            self._owners[join.slot] = owner
            self._tables[owner] = dict(enumerate(join.pages))
            if owner in back:
                self.swapped[join.handle] += len(self._arrived & set(join.pages))
            self._arrived.difference_update(join.pages)
        for slot, logical, page in plan.grow:
            self._tables[self._owners[slot]][logical] = page
            self._arrived.discard(page)
        self._count_tokens(plan)

    def _count_tokens(self, plan: StepPlan) -> None:
        for slot, start, length, samples in plan.chunks:
            owner = self._owners[slot]
            self.recomputed[owner[0]] += max(min(self._reached[owner], start + length) - start, 0)
            self._reached[owner] = max(self._reached[owner], start + length)
            for sibling in samples[1:]:  # forked with this chunk
                self._reached[self._owners[sibling]] = start + length
