"""Priority: how it changes, by a command or by waiting."""

from __future__ import annotations

from pagedd.core.ageing import MOST_URGENT
from pagedd.core.events import Reprioritized
from pagedd.core.sequence import Group
from pagedd.core.state import SchedulerState


def prioritize(state: SchedulerState, group: Group, priority: int) -> None:
    """The client asks for another priority; what was gained by waiting is gone.

    So what it asks for is what it gets, and its wait is bounded from now on as if it had just come.
    """
    _move(state, group, priority, priority, aged=False)
    if state.ageing is not None:
        state.ageing.restart(group.request.handle, state.now)


def age(state: SchedulerState) -> None:
    """Make more urgent who has waited for long enough, down to the least number there is."""
    if state.ageing is None:
        return
    for handle, levels in state.ageing.promote(state.now):
        group = state.groups[handle]
        priority = max(group.priority - levels, MOST_URGENT)
        if priority != group.priority:
            _move(state, group, group.asked, priority, aged=True)


def _move(state: SchedulerState, group: Group, asked: int, priority: int, *, aged: bool) -> None:
    """Every sequence of the request takes its new place. No page and no slot changes hands."""
    places = [
        (state.waiting if sequence.slot < 0 else state.running, sequence)
        for sequence in group.remaining
    ]
    for queue, sequence in places:
        queue.remove(sequence)
    before, group.asked, group.priority = group.priority, asked, priority
    for queue, sequence in places:
        sequence.order = sequence.order_now()
        queue.add(sequence)
    state.events.reprioritized.append(Reprioritized(group.request.handle, before, priority, aged))
