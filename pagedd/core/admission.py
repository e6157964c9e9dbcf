"""Who leaves the queue: in order of urgency, when slots and pages suffice.

The first of the queue that does not fit holds up those behind it, so that a large request is not
passed for ever by small ones.
"""

from __future__ import annotations

from pagedd.core.draft import Draft
from pagedd.core.need import Need, displaces, need_of
from pagedd.core.policies import Rank
from pagedd.core.preemption import take_slots
from pagedd.core.state import SchedulerState


def admit_waiting(state: SchedulerState, draft: Draft) -> Need | None:
    """Admit from the queue and begin to compute, as long as there is budget and room.

    What the first of those that stay behind needs; None when nobody does.

    Comes last in a step. What runs has all its pages by then: as long as a prefill is not complete
    it leaves no budget. So two long prompts never get half of the pool each, and wait for the rest.
    """
    while state.waiting:
        sequence = state.waiting.first
        need = need_of(state, sequence, state.config.max_num_batched_tokens - draft.budget)
        if need.limit:
            return need
        state.admit(sequence, need.hits)
        draft.compute(sequence, min(sequence.missing, draft.budget))
    return None


def admit_urgent(state: SchedulerState, draft: Draft, rank: Rank) -> None:
    """Admit what is strictly more urgent than something that runs, at the cost of that.

    Comes before anything is scheduled. It takes slots at once; pages it takes like every running
    sequence, when its chunks need them: here it is only made sure that there are enough.
    """
    while state.waiting:
        sequence = state.waiting.claimant
        hits = displaces(state, sequence, draft.budget)
        if hits is None:
            return
        take_slots(state, sequence, rank)
        state.admit(sequence, hits)
