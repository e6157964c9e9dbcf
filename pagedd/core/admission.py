"""Who leaves the queue: in order of urgency, when slots and pages suffice.

The first of the queue that does not fit holds up those behind it, so that a large request is not
passed for ever by small ones.
"""

from __future__ import annotations

from collections import Counter
from math import ceil

from pagedd.core.draft import Draft
from pagedd.core.policies import Rank
from pagedd.core.preemption import take_slots
from pagedd.core.sequence import Sequence, SequenceState
from pagedd.core.state import SchedulerState


def admit_waiting(state: SchedulerState, draft: Draft) -> None:
    """Admit from the queue and begin to compute, as long as there is budget and room.

    Comes last in a step. What runs has all its pages by then: as long as a prefill is not complete
    it leaves no budget. So two long prompts never get half of the pool each, and wait for the rest.
    """
    while state.waiting and draft.budget > 0:
        sequence = state.waiting.first
        if sequence.slots_needed > len(state.slots):
            return
        hits = state.memory.hits(sequence)
        room = state.memory.pool.available - state.memory.resting(hits)
        if _pages(state, sequence) - len(hits) + _headroom(state, sequence) > room:
            return
        state.admit(sequence, hits)
        draft.compute(sequence, min(sequence.missing, draft.budget))


def admit_urgent(state: SchedulerState, draft: Draft, rank: Rank) -> None:
    """Admit what is strictly more urgent than something that runs, at the cost of that.

    Comes before anything is scheduled. It takes slots at once; pages it takes like every running
    sequence, when its chunks need them: here it is only made sure that there are enough.
    """
    while state.waiting and state.running:
        sequence = state.waiting.first
        if sequence.priority >= state.running.last.priority:
            return
        above = [each for each in state.running if each.priority <= sequence.priority]
        if sum(each.missing for each in above) >= draft.budget:
            return  # it would get no token in this step: leave the others their places
        hits = state.memory.hits(sequence)
        need = _pages(state, sequence) - len(hits)
        need += sum(_pages(state, each) - len(each.table) for each in above)
        room = state.memory.pool.available - state.memory.resting(hits)
        if need > room + _reclaimable(state, sequence.priority, hits):
            return
        if not take_slots(state, sequence, rank):
            return
        state.admit(sequence, hits)


def _pages(state: SchedulerState, sequence: Sequence) -> int:
    """Pages of all tokens that ``sequence`` knows."""
    return state.memory.pages(sequence.num_tokens)


def _headroom(state: SchedulerState, sequence: Sequence) -> int:
    """Pages to leave free after the admission, so that what runs can go on for a while.

    A sequence that was preempted waits until each running one could take another page; it would
    have to go again at once otherwise. What runs alone needs to leave nothing.
    """
    if not state.running:
        return 0
    pages = ceil(state.config.watermark * state.config.num_pages)
    if sequence.state in (SequenceState.PREEMPTED, SequenceState.SWAPPED):
        return max(pages, len(state.running))
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
