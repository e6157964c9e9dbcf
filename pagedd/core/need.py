"""What the sequences of the queue need, and what there is for them.

The one arithmetic that ``admission`` decides by and ``explain`` gives its reasons by.
"""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import NamedTuple

from pagedd.core.sequence import Sequence
from pagedd.core.state import SchedulerState


class Need(NamedTuple):
    """What an admission comes to. ``limit`` is the first one that it meets; "" is none.

    ``needed`` and ``available`` count in the unit of the limit; see ``events.Waiting``.
    """

    limit: str  # "slots", "pages", "tokens" or ""
    needed: int
    available: int
    headroom: int  # pages that stay free, of those needed
    hits: list[int]  # pages that hold the beginning already; not looked up when slots are short


def need_of(state: SchedulerState, sequence: Sequence, rows: int, growth: int = 0) -> Need:
    """What it takes to admit ``sequence`` as the next one, after all that runs.

    ``rows`` of the step are spoken for, and ``growth`` of the available pages.
    """
    slots, free = sequence.slots_needed, len(state.slots)
    if slots > free:
        return Need("slots", slots, free, 0, [])
    memory = state.memory
    hits = memory.hits(sequence)
    room = memory.pool.available - memory.resting(hits)
    headroom = _headroom(state, sequence) + growth
    needed = memory.pages(sequence.num_tokens) - len(hits) + headroom
    if needed > room:
        return Need("pages", needed, room, headroom, hits)
    if rows >= state.config.max_num_batched_tokens:
        return Need("tokens", 1, 0, 0, hits)
    return Need("", 0, 0, 0, hits)


def displaces(state: SchedulerState, sequence: Sequence, budget: int) -> list[int] | None:
    """The hits of ``sequence`` when it can be admitted at the cost of what is less urgent.

    None when nothing that runs is less urgent than it was asked to be (ageing gives a place in the
    queue, not what others have); when a step of ``budget`` rows would have none for it; and when
    all that the less urgent hold, and what is free, would not do.
    """
    asked = sequence.asked
    if not state.running or asked >= state.running.last.priority:
        return None
    above = [each for each in state.running if each.priority <= asked]
    if sum(each.missing for each in above) >= budget:
        return None
    memory = state.memory
    hits = memory.hits(sequence)
    need = memory.pages(sequence.num_tokens) - len(hits)
    need += sum(memory.pages(each.num_tokens) - len(each.table) for each in above)
    room = memory.pool.available - memory.resting(hits)
    if need > room + _reclaimable(state, asked, hits):
        return None
    slots = len(state.slots)
    for each in state.running:
        if each.priority > asked:
            slots += 1 + len(each.group.reserved)
    return hits if sequence.slots_needed <= slots else None


def _headroom(state: SchedulerState, sequence: Sequence) -> int:
    """Pages to leave free after the admission, so that what runs can go on for a while.

    A sequence that was preempted waits until each running one, and each that is to fork from one,
    could take another page; it would have to go again at once otherwise. What runs alone needs to
    leave nothing.
    """
    if not state.running:
        return 0
    pages = ceil(state.config.watermark * state.config.num_pages)
    if sequence.has_begun:
        return max(pages, state.config.max_num_seqs - len(state.slots))
    if not sequence.group.forked and sequence.num_tokens % state.config.page_size:
        pages += sequence.slots_needed - 1  # copies of the last page when it forks
    return pages


def _reclaimable(state: SchedulerState, priority: int, keep: list[int]) -> int:
    """Pages, ``keep`` aside, that only running sequences less urgent than ``priority`` hold."""
    names: Counter[int] = Counter()
    for sequence in reversed(list(state.running)):
        if sequence.priority <= priority:
            break
        names.update(sequence.table.pages)
    refs, kept = state.memory.pool.refs, set(keep)
    return sum(1 for page, count in names.items() if count == refs[page] and page not in kept)
