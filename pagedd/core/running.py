"""What the running sequences compute in a step, and who gives way when pages are short.

Tokens go to decoding sequences first, then to partial prefills. Pages go by urgency: a sequence
that finds none takes them from the end of the order of protection, from sequences that this step
has not scheduled yet. So nothing ever has to be taken back out of a plan.

A step takes the longer the more it computes. So the step that gives a request its first token
leaves out those that are less urgent than it was asked to be: it waits for the step before to end,
but not for their tokens in its own. They lose a step, and never two in a row.
"""

from __future__ import annotations

from pagedd.core.draft import Draft
from pagedd.core.policies import Rank, most_protected_first
from pagedd.core.preemption import preempt
from pagedd.core.sequence import Sequence
from pagedd.core.state import SchedulerState

Work = tuple[Sequence, int]  # and how many of its tokens to compute


def compute_running(state: SchedulerState, draft: Draft, rank: Rank) -> None:
    """Schedule the running sequences as far as the budget goes, the most urgent one always."""
    running = running_on(state)
    if not running:
        return
    ahead = running if state.held_back else _ahead(running, draft.budget)
    state.held_back = len(ahead) < len(running)
    decodes, prefills = share(ahead, draft.budget)
    if _suffices(state, decodes, prefills):
        draft.compute_each(decodes)
        for sequence, length in prefills:
            draft.compute(sequence, length)
    else:
        lengths = {sequence.slot: 1 for sequence in decodes}
        lengths.update((sequence.slot, length) for sequence, length in prefills)
        order = most_protected_first(running, rank)
        order += [each for each in state.running if each in state.closing]  # give way at no cost
        _place(state, draft, order, lengths)
    if state.held_back:
        draft.budget = 0  # for those that wait, too


def running_on(state: SchedulerState) -> list[Sequence]:
    """What runs, by urgency, but for those that are known to end with a step under way."""
    if not state.closing:
        return list(state.running)
    return [each for each in state.running if each not in state.closing]


def _ahead(running: list[Sequence], budget: int) -> list[Sequence]:
    """Who computes in this step: all, or those that are not less urgent than a first token."""
    if running[-1].priority == running[0].priority:
        return running
    newcomer = next((each for each in running if each.num_generated == 0), None)
    if newcomer is None:
        return running
    ahead = [each for each in running if each.priority <= newcomer.asked]
    # a prompt that takes several steps leaves room for others in all but the last of them
    return ahead if sum(each.missing for each in ahead) <= budget else running


def share(running: list[Sequence], budget: int) -> tuple[list[Sequence], list[Work]]:
    """Who computes how much, pages aside: decoding ones first, each group by urgency.

    When the decoding ones alone would use up the budget, one token is kept for a prefill that is
    more urgent, or older, than the last of them. So whatever comes first goes on in every step.
    A sequence to be swapped in counts as a prefill: it may need more than one page.
    """
    decodes: list[Sequence] = []
    others: list[Sequence] = []
    for sequence in running:
        single = len(sequence.tokens) - sequence.num_computed == 1 and not sequence.host
        (decodes if single else others).append(sequence)
    if others and len(decodes) >= budget and others[0].order < decodes[budget - 1].order:
        del decodes[budget - 1 :]
    del decodes[budget:]
    budget -= len(decodes)
    prefills: list[Work] = []
    for sequence in others:
        if budget == 0:
            break
        length = min(sequence.missing, budget)
        prefills.append((sequence, length))
        budget -= length
    return decodes, prefills


def _suffices(state: SchedulerState, decodes: list[Sequence], prefills: list[Work]) -> bool:
    """All of it finds pages: then their order does not matter."""
    memory, available = state.memory, state.memory.pool.available
    for sequence, length in prefills:
        available -= memory.needed(sequence, sequence.num_computed + length)
    if available >= len(decodes):
        return True
    return available >= sum(memory.needed(each, each.num_computed + 1) for each in decodes)


def _place(
    state: SchedulerState, draft: Draft, order: list[Sequence], lengths: dict[int, int]
) -> None:
    """Schedule ``order``, the most protected first; its end gives pages to its beginning.

    The first of it is among those with a length and fits when alone; so the plan is never empty.
    """
    memory = state.memory
    place, end = 0, len(order)
    while place < end:
        sequence = order[place]
        place += 1
        length = lengths.get(sequence.slot, 0)
        if length == 0:
            continue
        upto = sequence.num_computed + length
        while memory.needed(sequence, upto) > memory.pool.available and end > place:
            end -= 1
            preempt(state, order[end], sequence, "pages")
        if memory.needed(sequence, upto) <= memory.pool.available:
            draft.compute(sequence, length)
        else:
            assert place > 1, "the most urgent sequence does not fit even when alone"
            preempt(state, sequence, sequence, "pages")
