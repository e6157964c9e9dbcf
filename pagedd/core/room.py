"""When a full queue has room again: what a refused client is told to wait."""

from __future__ import annotations

from pagedd.core.eta import eta_ms
from pagedd.core.state import SchedulerState

LEAST_MS = 1_000
MOST_MS = 60_000
KEPT_S = 0.25  # an estimate holds so long: a flood of refusals must not cost a forecast each


class Room:
    """Keeps the last estimate."""

    def __init__(self) -> None:
        self._until = 0.0
        self._wait_ms = 0

    def wait_ms(self, state: SchedulerState) -> int:
        """Until the first of the queue begins, the middle of the forecast's range.

        At least LEAST_MS and at most MOST_MS: others wait for the same place, and what is farther
        off is not foreseen well. Some request waits.
        """
        if state.now >= self._until:
            self._wait_ms = int(min(max(_first_begins_ms(state), LEAST_MS), MOST_MS))
            self._until = state.now + KEPT_S
        return self._wait_ms


def _first_begins_ms(state: SchedulerState) -> float:
    for place, sequence in enumerate(state.waiting):
        group = sequence.group
        if len(group.remaining) == 1:  # or else another choice of it runs, perhaps
            return sum(eta_ms(state, group, [place])) / 2
    return LEAST_MS
