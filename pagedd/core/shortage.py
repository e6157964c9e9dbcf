"""Shortage: a device that has no memory to compute a step gets a smaller one.

Pages are not what is short: they were all allocated at the start. What a step needs besides grows
with its rows, and whoever else uses the device may have taken it.
"""

from __future__ import annotations

from pagedd.core.events import Failed, Shrunk
from pagedd.core.plan import StepPlan
from pagedd.core.policies import Rank, most_protected_first
from pagedd.core.preemption import preempt
from pagedd.core.sequence import Sequence
from pagedd.core.state import SchedulerState
from pagedd.errors import OutOfDeviceMemory

RECOVERY = 64  # steps that go well before a step may have twice as many rows again


class Allowance:
    """Rows that a step may have: ``most``, unless steps of that size found no memory lately."""

    def __init__(self, most: int) -> None:
        self.rows = most
        self._most = most
        self._well = 0

    def cut(self, rows: int) -> None:
        """A step of ``rows`` found no memory."""
        self.rows = max(rows // 2, 1)
        self._well = 0

    def went_well(self) -> None:
        """A step was computed."""
        if self.rows == self._most:
            return
        self._well += 1
        if self._well == RECOVERY:
            self._well = 0
            self.rows = min(2 * self.rows, self._most)


def give_up(state: SchedulerState, plan: StepPlan, allowance: Allowance) -> None:
    """``plan`` was carried out but for its chunks, for which there was no memory.

    The next steps have at most half of its rows. A single row that finds no memory fails its
    request, so that this ends.
    """
    state.memory.arrive()
    for child in _forked(state, plan):
        state.memory.register(child)  # what the step before has computed
    rows = plan.num_tokens
    allowance.cut(rows)
    state.events.shrunk.append(Shrunk(rows, allowance.rows))
    sequence = state.by_slot[plan.chunks[0].slot]
    if rows == 1 and sequence is not None:
        message = "the device has no memory to compute a single token"
        detail = {"index": sequence.index, "position": sequence.num_computed}
        failed = Failed(sequence.handle, OutOfDeviceMemory.code, message, detail)
        state.fail(sequence.group, failed)


def make_smaller(state: SchedulerState, plan: StepPlan, rank: Rank, rows: int) -> None:
    """Who has no row in a step of ``rows`` gives way, the least protected first.

    ``plan`` was given up. Choices that were to fork with it wait for a prompt that was not computed
    and give way too: they come back when it was.
    """
    for child in _forked(state, plan):
        preempt(state, child, child, "memory")
    order = most_protected_first(state.running, rank) if state.running else []
    for victim in reversed(order[rows:]):
        preempt(state, victim, order[0], "memory")


def _forked(state: SchedulerState, plan: StepPlan) -> list[Sequence]:
    """The choices that forked with ``plan`` and have not ended, but for the first of each."""
    slots = [slot for chunk in plan.chunks for slot in chunk.samples[1:]]
    return [each for slot in slots if (each := state.by_slot[slot]) is not None]
