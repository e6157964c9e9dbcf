"""Why a request is where it is, as data, and when that of the first of the queue changes.

Nothing here decides anything or changes what is decided. What limits a sequence is what ``need``
says of the step that is being carried out or, between steps, of the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import NamedTuple

from pagedd.core.eta import eta_ms
from pagedd.core.events import MAX_HOLDERS, Explained, Holder, Running, Table, Waiting
from pagedd.core.need import Need, displaces, need_of
from pagedd.core.plan import StepPlan
from pagedd.core.running import running_on, share
from pagedd.core.sequence import Sequence, SequenceState
from pagedd.core.state import SchedulerState

# The states of sequences, the furthest first.
_FURTHEST = (
    SequenceState.DECODING,
    SequenceState.PREFILLING,
    SequenceState.SWAPPED,
    SequenceState.PREEMPTED,
    SequenceState.WAITING,
)


class _Taken(NamedTuple):
    """What the running sequences have, or will have, of a step."""

    rows: int
    growth: int  # pages that they are still to take


def explain(
    state: SchedulerState, handle: int, ref: int, in_flight: StepPlan | None = None
) -> Explained:
    """Where the request ``handle`` is, and what each of its sequences waits for.

    Takes time proportional to the slots, the pages of those that run, and what ``eta`` looks at.
    """
    group = state.groups.get(handle)
    if group is None:
        return Explained(ref, handle, "", (), (), None)
    sequences = group.remaining
    running = tuple(_running(state, each) for each in sequences if each.slot >= 0)
    behind = [each for each in sequences if each.slot < 0]
    if behind and state.waiting.first.group is not group:
        behind.append(state.waiting.first)
    taken = _taken(state, in_flight) if behind else _Taken(0, 0)
    waiting = tuple(_explain_waiting(state, each, taken) for each in behind)
    own = [each for each in waiting if each.handle == handle]
    is_next = not running and any((each.limit, each.ahead) == ("turn", 0) for each in own)
    return Explained(
        ref,
        handle,
        min((_state(each) for each in sequences), key=_FURTHEST.index).value,
        waiting,
        running,
        eta_ms(state, group, [each.ahead for each in own], is_next),
        tuple(_table(state, each) for each in sequences),
    )


def _table(state: SchedulerState, sequence: Sequence) -> Table:
    refs, pages = state.memory.pool.refs, tuple(sequence.table.pages)
    return Table(
        sequence.index,
        pages,
        tuple(refs[page] for page in pages),
        tuple(sequence.host),
        sequence.host_start,
    )


def note_waiting(state: SchedulerState, need: Need | None) -> None:
    """A plan is made: tell what the first of the queue waits for, if that is news.

    ``need`` is what kept it there; None if nobody is left behind. News is another sequence or
    another limit, so that there are no more such events than changes, however long the wait.
    """
    if need is None:
        state.noted = None
        return
    first = state.waiting.first
    noted = (first.handle, first.index, need.limit)
    if noted != state.noted:
        state.noted = noted
        state.events.waiting.append(_waiting(state, first, need))


def _explain_waiting(state: SchedulerState, sequence: Sequence, taken: _Taken) -> Waiting:
    if displaces(state, sequence, state.config.max_num_batched_tokens) is None:
        return _waiting(state, sequence, need_of(state, sequence, *taken))
    waiting = _waiting(state, sequence, Need("", 0, 0, 0, []))
    if sequence is state.waiting.claimant:  # which passes those that ageing has put before it
        waiting = waiting._replace(ahead=0, first=sequence.handle)
    return waiting


def _waiting(state: SchedulerState, sequence: Sequence, need: Need) -> Waiting:
    holders, others = _holders(state, need.limit)
    first = state.waiting.first
    return Waiting(
        handle=sequence.handle,
        choice=sequence.index,
        limit=need.limit or "turn",
        needed=need.needed,
        available=need.available,
        short=max(need.needed - need.available, 0),
        headroom=need.headroom,
        ahead=0 if sequence is first else state.waiting.place(sequence),
        first=first.handle,
        holders=holders,
        others=others,
    )


def _holders(state: SchedulerState, limit: str) -> tuple[tuple[Holder, ...], int]:
    """Who holds what ``limit`` counts, who holds most first; and how many are not named."""
    holding: Iterable[Sequence]
    key: Callable[[Sequence], tuple[int, ...]]
    if limit == "slots":
        holding = list(state.running)
        key = _by_slots
    elif limit == "pages":
        holding = [each for each in state.running if each.table.pages]
        key = _by_pages
    else:
        return (), 0
    named = tuple(_holder(state, each) for each in nsmallest(MAX_HOLDERS, holding, key))
    return named, len(holding) - len(named)


def _by_pages(sequence: Sequence) -> tuple[int, ...]:
    return (-len(sequence.table), *sequence.order)


def _by_slots(sequence: Sequence) -> tuple[int, ...]:
    return (-len(sequence.group.reserved), *_by_pages(sequence))


def _holder(state: SchedulerState, sequence: Sequence) -> Holder:
    pages = len(sequence.table)
    alone = pages - _shared(state, sequence)
    return Holder(sequence.handle, sequence.index, sequence.priority, pages, alone)


def _running(state: SchedulerState, sequence: Sequence) -> Running:
    return Running(
        handle=sequence.handle,
        choice=sequence.index,
        state=_state(sequence).value,
        priority=sequence.priority,
        computed=sequence.num_computed,
        tokens=sequence.num_tokens,
        generated=sequence.num_generated,
        pages=len(sequence.table),
        shared=_shared(state, sequence),
    )


def _shared(state: SchedulerState, sequence: Sequence) -> int:
    refs = state.memory.pool.refs
    return sum(1 for page in sequence.table.pages if refs[page] > 1)


def _state(sequence: Sequence) -> SequenceState:
    """Its state; with a slot, but no chunk yet, it counts as prefilling already."""
    if sequence.slot >= 0 and not sequence.joined:
        return SequenceState.PREFILLING
    return sequence.state


def _taken(state: SchedulerState, in_flight: StepPlan | None) -> _Taken:
    if in_flight is not None:
        return _Taken(in_flight.num_tokens, 0)  # it has its pages
    memory, config = state.memory, state.config
    rows = growth = 0
    room = config.swap_in_pages
    copied: Counter[int] = Counter()  # how many write to a page that is not theirs alone
    decodes, prefills = share(running_on(state), config.max_num_batched_tokens)
    for sequence, length in [*((each, 1) for each in decodes), *prefills]:
        upto = sequence.num_computed + length
        new = max(memory.pages(upto) - len(sequence.table), 0)
        if memory.needed(sequence, upto) > new:
            copied[sequence.table.pages[sequence.num_computed // memory.page_size]] += 1
        growth += new
        come = _to_come(sequence)
        late = room is not None and come > room
        if room is not None:
            room -= min(come, room)
        if late or not (come and config.swap_in_ahead):  # or else it goes on a step later
            rows += length
    # The last one that names such a page keeps it.
    growth += sum(min(times, memory.pool.refs[page] - 1) for page, times in copied.items())
    return _Taken(rows, growth)


def _to_come(sequence: Sequence) -> int:
    """Pages that are to be copied in from host memory before ``sequence`` goes on."""
    if not sequence.host:
        return 0
    return sequence.host_start + len(sequence.host) - max(sequence.arrived, sequence.host_start)
