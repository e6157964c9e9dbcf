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


def preempt(state: SchedulerState, victim: Sequence, taker: Sequence, lack: str) -> None:
    """Put ``victim`` back into the queue.

    Nobody hears of one whose first chunk is to come, or of one that ends with a step under way: it
    gives back what it does not need any more.

    ``lack`` is what the ``taker``, which may be the victim itself, found none of.
    """
    if not victim.joined or victim in state.closing:
        state.put_back(victim)
        return
    pages, choice = len(victim.table), state.costs.choose(victim)
    if choice.mode == "swap":
        state.save(victim)
        state.totals.preemptions_swap += 1
    else:
        state.totals.preemptions_recompute += 1
    state.put_back(victim)
    victim.preemptions += 1
    victim.group.book.preemptions += 1
    state.events.preempted.append(
        Preempted(
            handle=victim.handle,
            choice=victim.index,
            mode=choice.mode,
            pages=pages,
            policy=state.config.preemption_policy,
            priority=victim.priority,
            lack=lack,
            taker=taker.handle,
            taker_priority=taker.priority,
            choice_of_mode=choice.reason,
            swap_ms=choice.swap_s * 1e3,
            recompute_ms=choice.recompute_s * 1e3,
            host_needed=choice.host_needed,
            host_available=choice.host_available,
        )
    )


def take_slots(state: SchedulerState, taker: Sequence, rank: Rank) -> None:
    """Free the slots that ``taker`` needs, from what is less urgent than it was asked to be.

    Needs enough of theirs (``need.displaces``), and a plan that has scheduled nothing yet.
    """
    lower = [sequence for sequence in state.running if sequence.priority > taker.asked]
    for victim in sorted(lower, key=lambda each: (each not in state.closing, rank(each))):
        if len(state.slots) >= taker.slots_needed:
            return
        preempt(state, victim, taker, "slots")
    assert len(state.slots) >= taker.slots_needed, "all that is less urgent holds too few slots"
