"""Preemption: taking slot and pages from a running sequence, to bring it back later.

With ``swap`` what it has computed is copied to host memory and back; with ``recompute`` the pages
are dropped (those the index knows stay findable until their memory is needed), and the sequence
computes its prompt and what it drew again. ``costs.Costs`` chooses.
"""

from __future__ import annotations

from pagedd.core.events import Preempted
from pagedd.core.policies import Rank
from pagedd.core.sequence import Sequence
from pagedd.core.state import SchedulerState


def preempt(state: SchedulerState, victim: Sequence, reason: str) -> None:
    """Put ``victim`` back into the queue; nobody hears of one whose first chunk is to come."""
    if not victim.joined:
        state.put_back(victim)
        return
    pages, (mode, choice) = len(victim.table), state.costs.choose(victim)
    if mode == "swap":
        state.save(victim)
        state.totals.preemptions_swap += 1
    else:
        state.totals.preemptions_recompute += 1
    state.put_back(victim)
    victim.preemptions += 1
    victim.group.book.preemptions += 1
    sentence = f"{reason}; {choice}"
    state.events.preempted.append(Preempted(victim.handle, victim.index, mode, sentence, pages))


def preempt_for_page(state: SchedulerState, victim: Sequence, taker: Sequence) -> None:
    """``taker`` found no page; ``victim`` may be the same, when all others come first."""
    if victim is taker:
        reason = "no page is free, and every sequence that holds some comes first"
    else:
        reason = (
            f"request {taker.handle} (priority {taker.priority}) found no free page, and this "
            f"sequence (priority {victim.priority}) is the first to give its own"
        )
    preempt(state, victim, reason)


def take_slots(state: SchedulerState, taker: Sequence, rank: Rank) -> bool:
    """Free the slots that ``taker`` needs, from strictly less urgent sequences only.

    False, and nothing has changed, when all of theirs would not do. Needs a plan that has
    scheduled nothing yet.
    """
    short = taker.slots_needed - len(state.slots)
    victims: list[Sequence] = []
    lower = [sequence for sequence in state.running if sequence.priority > taker.priority]
    for victim in sorted(lower, key=rank):
        if short <= 0:
            break
        victims.append(victim)
        short -= 1 + len(victim.group.reserved)
    if short > 0:
        return False
    for victim in victims:
        reason = (
            f"request {taker.handle} (priority {taker.priority}) is more urgent than this one "
            f"(priority {victim.priority}), and no slot was free"
        )
        preempt(state, victim, reason)
    return True
