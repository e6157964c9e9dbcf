"""When a request begins, goes on or ends: a range, by rates that were measured.

Two forecasts follow slots and pages through the ends of what runs and the queue in its order. The
hopeful one lets choices end when most others did before, and takes no more pages than there are
tokens now; the pessimistic one lets every choice draw all that it may, and keeps all the pages for
that from its beginning, so that nobody would have to give way. What is less urgent than the
request gives way to it in both. What may come later is in neither.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from itertools import islice
from math import ceil

from pagedd.core.sequence import Group, Sequence
from pagedd.core.state import SchedulerState

DEVIATION = 1.25  # of what steps will take from what they have taken
LOOK_AHEAD = 256  # sequences of the queue that are followed; those behind wait in proportion


def eta_ms(
    state: SchedulerState, group: Group, places: list[int], is_next: bool = False
) -> tuple[float, float]:
    """Until ``group`` begins or goes on or, when a part of it runs, until it has ended.

    ``places`` are those of its sequences in the queue. ``is_next`` says that the next plan admits
    one: then at most one step is to be waited for. Takes time proportional to the slots, the pages
    of what runs and ``LOOK_AHEAD``.
    """
    if is_next:
        rows = sum(each.missing for each in state.running if each.missing > 1)
        busy = min(rows, state.config.max_num_batched_tokens) * state.costs.token_seconds
        return 0.0, (state.costs.step_seconds + busy) * DEVIATION * 1e3
    queue = list(islice(state.waiting, LOOK_AHEAD))
    first, second = (
        _Forecast(state, group, places, hopeful).seconds(queue) for hopeful in (True, False)
    )
    return min(first, second) * 1e3, max(first, second) * 1e3


class _Forecast:
    """Goes from end to end, in steps from now; a step of prefill takes its time on top."""

    def __init__(
        self, state: SchedulerState, group: Group, places: list[int], hopeful: bool
    ) -> None:
        self._state = state
        self._group = group
        self._hopeful = hopeful
        self._step = 0
        self._slots = state.config.max_num_seqs  # free ones
        self._pages = state.config.num_pages
        self._ends: list[tuple[int, int, int]] = []  # a heap: step, and slots and pages then free
        self._prefilled = 0.0  # the step up to which budgets are given to prefills
        self._busy = 0.0  # seconds of prefills and copies so far
        self._last = 0  # step in which the last of the request's sequences ends
        self._found = 0.0  # share of the tokens of a prompt that the index finds
        self._places = places
        self._least = state.lengths.least(1 + min(places, default=0))  # that choices draw, in hope
        totals = state.totals
        if hopeful and totals.prefix_queries:
            self._found = totals.prefix_hits / totals.prefix_queries

    def seconds(self, queue: list[Sequence]) -> float:
        """From now on; ``queue`` is its beginning."""
        again = self._seat_running()
        if len(self._places) == len(self._group.remaining):
            return self._until_start(again, queue)
        own = len(self._places) + sum(each.group is self._group for each in again)
        for sequence in [*again, *queue]:
            if not own and self._step >= self._last:
                break
            self._wait(sequence)
            self._seat(sequence)
            own -= sequence.group is self._group
        return self._time(self._last) * max(1, (max(self._places, default=0) + 1) / LOOK_AHEAD)

    def _until_start(self, again: list[Sequence], queue: list[Sequence]) -> float:
        for sequence in again:
            self._wait(sequence)
            self._seat(sequence)
        for sequence in queue:
            self._wait(sequence)
            if sequence.group is self._group:
                return self._time(self._step)
            self._seat(sequence)
        return self._time(self._step) * (min(self._places) + 1) / LOOK_AHEAD

    def _seat_running(self) -> list[Sequence]:
        """Let run what runs and does not give way; what would have to, some day, in its order."""
        again: list[Sequence] = []
        refs = self._state.memory.pool.refs
        last: dict[int, int] = {}  # shared page → step from which on nobody names it
        for sequence in self._state.running:
            if sequence.priority > self._group.asked:
                continue
            table = sequence.table.pages
            shared = [page for page in table if refs[page] > 1]
            pages = len(table) - len(shared)
            if not self._hopeful:
                pages += self._most(sequence) - len(table)
                new = sum(1 for page in shared if page not in last)
                if pages + new > self._pages - len(last):
                    again.append(sequence)
                    continue
            single = sequence.missing == 1 and sequence.joined
            end = self._draws(sequence)
            if not single:
                end += self._prefill(sequence.missing) - 1
            self._occupy(sequence, end, pages)
            for page in shared:
                last[page] = max(last.get(page, 0), end)
        for step, count in Counter(last.values()).items():
            self._pages -= count
            heappush(self._ends, (step, 0, count))
        return again

    def _wait(self, sequence: Sequence) -> None:
        """Go on to the step in which ``sequence`` is admitted."""
        slots, pages = sequence.slots_needed, self._entry(sequence)
        self._step = max(self._step, int(self._prefilled))
        ends = self._ends
        while ends and (ends[0][0] <= self._step or self._slots < slots or self._pages < pages):
            step, free_slots, free_pages = heappop(ends)
            self._step = max(self._step, step)
            self._slots += free_slots
            self._pages += free_pages

    def _seat(self, sequence: Sequence) -> None:
        """Admit ``sequence`` now."""
        tokens = sequence.num_tokens - sequence.num_saved
        if sequence.host:
            costs, config = self._state.costs, self._state.config
            self._busy += len(sequence.host) * config.page_bytes * costs.byte_seconds
        first = self._prefill(tokens * (1 - self._found))
        end = first + self._draws(sequence) - 1
        self._occupy(sequence, end, self._held(sequence))

    def _occupy(self, sequence: Sequence, end: int, pages: int) -> None:
        slots = 1 + len(sequence.group.reserved) if sequence.slot >= 0 else sequence.slots_needed
        self._slots -= slots
        self._pages -= pages
        heappush(self._ends, (end, slots, pages))
        if sequence.group is self._group:
            self._last = max(self._last, end)

    def _prefill(self, tokens: float) -> int:
        """Compute so many tokens, at least one; the step whose end draws from the last."""
        config = self._state.config
        budget = config.max_num_batched_tokens
        if not self._hopeful:
            budget = max(budget - (config.max_num_seqs - self._slots), 1)
        begin = max(self._prefilled, self._step)
        self._prefilled = begin + max(tokens, 1) / budget
        self._busy += tokens * self._state.costs.token_seconds
        return ceil(self._prefilled)

    def _draws(self, sequence: Sequence) -> int:
        """Tokens that ``sequence`` is still to draw, at least one."""
        group, drawn = sequence.group, sequence.num_generated
        most = group.max_tokens - sequence.num_tokens
        if not self._hopeful or not group.ends:
            return most
        least = max(self._least, group.request.params.min_tokens)
        return max(min(int(least) - drawn, most), 1)

    def _entry(self, sequence: Sequence) -> int:
        """Pages that have to be free when ``sequence`` is admitted."""
        if sequence.group is not self._group:
            return self._held(sequence)
        memory = self._state.memory
        hits = memory.hits(sequence)
        return memory.pages(sequence.num_tokens) - len(hits) + memory.resting(hits)

    def _held(self, sequence: Sequence) -> int:
        """Pages that ``sequence`` has at its end, or in hope at its beginning."""
        if self._hopeful:
            pages = self._state.memory.pages(sequence.num_tokens)
            return ceil(pages * (1 - self._found))
        return min(self._most(sequence), self._state.config.num_pages)

    def _most(self, sequence: Sequence) -> int:
        """Pages of all that ``sequence`` may become, with its choices when it is to fork."""
        memory, group = self._state.memory, sequence.group
        pages = memory.pages(group.max_tokens)
        shared = sequence.num_tokens // memory.page_size
        return pages + (sequence.slots_needed - 1) * (pages - shared)

    def _time(self, step: int) -> float:
        steps = step * self._state.costs.step_seconds
        if self._hopeful:
            rows = max(self._prefilled - step, 0) * self._state.config.max_num_batched_tokens
            busy = self._busy - rows * self._state.costs.token_seconds  # of its own step or later
            return max(steps, busy) / DEVIATION
        # The step that runs now, perhaps, is not over.
        return (steps + self._busy + self._state.costs.step_seconds) * DEVIATION
