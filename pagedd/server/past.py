"""What a request went through, with engines that died before this one too."""

from __future__ import annotations

from dataclasses import dataclass

from pagedd.core import events
from pagedd.protocol import Ledger

RESTARTED = "The engine was started anew, and the request begins again."


@dataclass(slots=True)
class Past:
    """What its client has been told, so that nothing is told twice; and time that was lost."""

    accepted: bool = False
    started: bool = False
    away: int = 0  # sequences that gave way and have not come back
    preemptions: int = 0  # in all
    queued_ms: float = 0.0  # with engines that died
    restarts: int = 0  # engines that got it again
    _before: int = 0  # preemptions with those

    def lost(self, ms: float) -> None:
        """Engines had the request for so long in all, and died; another gets it."""
        self.queued_ms = ms
        self.restarts += 1
        self._before = self.preemptions

    def ledger(self, last: events.Ledger) -> Ledger:
        """That of the last engine, and what went before: as if it had waited all that time."""
        counted = last._replace(
            queued_ms=last.queued_ms + self.queued_ms, preemptions=last.preemptions + self._before
        )
        return Ledger(*counted)
