"""Where a request's time and memory go."""

from __future__ import annotations

from enum import IntEnum

from pagedd.core.events import Ledger


class Phase(IntEnum):
    """What a request's time is spent on. One at a time: the phases add up to its life."""

    QUEUED = 0  # its first chunk was not scheduled yet
    PREFILL = 1  # it runs, and none of its sequences decodes
    DECODE = 2  # at least one of its sequences decodes
    PREEMPTED = 3  # it had begun, and none of its sequences runs


class Book:
    """The running account of one request. Times in seconds, as the scheduler is told them.

    A page that several sequences of the request share counts once.
    """

    __slots__ = (
        "_changed",
        "_entered",
        "_holds",
        "_seconds",
        "page_seconds",
        "pages_peak",
        "phase",
        "preemptions",
        "recomputed_tokens",
        "swapped_bytes",
    )

    def __init__(self, now: float) -> None:
        self.phase = Phase.QUEUED
        self.preemptions = 0
        self.recomputed_tokens = 0
        self.swapped_bytes = 0
        self.page_seconds = 0.0
        self.pages_peak = 0
        self._entered = now  # when the phase began
        self._changed = now  # up to when page_seconds is counted
        self._seconds = [0.0] * len(Phase)
        self._holds: dict[int, int] = {}  # page → sequences of the request that name it

    @property
    def waits(self) -> bool:
        """Nothing of the request runs: the time counts for ageing."""
        return self.phase in (Phase.QUEUED, Phase.PREEMPTED)

    @property
    def pages(self) -> int:
        """Different pages held now."""
        return len(self._holds)

    def elapsed_ms(self, phase: Phase, now: float) -> float:
        """Milliseconds spent on ``phase`` up to ``now``."""
        running = now - self._entered if phase is self.phase else 0.0
        return (self._seconds[phase] + running) * 1e3

    def waited_ms(self, now: float) -> float:
        """Milliseconds up to ``now`` before it began and while it was preempted, together."""
        return self.elapsed_ms(Phase.QUEUED, now) + self.elapsed_ms(Phase.PREEMPTED, now)

    def enter(self, phase: Phase, now: float) -> None:
        """From ``now`` on, time counts for ``phase``."""
        if phase is not self.phase:
            self._seconds[self.phase] += now - self._entered
            self._entered = now
            self.phase = phase

    def hold(self, page: int, now: float) -> None:
        """One more sequence of the request names ``page``."""
        count = self._holds.get(page, 0)
        if count == 0:
            self._count(now)
        self._holds[page] = count + 1

    def drop(self, page: int, now: float) -> None:
        """One sequence of the request less names ``page``."""
        count = self._holds[page] - 1
        if count:
            self._holds[page] = count
        else:
            self._count(now)
            del self._holds[page]

    def peak(self) -> None:
        """A plan is complete: what is held now counts for the peak.

        Not before, because one choice may give pages back in the plan in which another gets some.
        """
        self.pages_peak = max(self.pages_peak, len(self._holds))

    def close(self, now: float) -> Ledger:
        """The account at the end of the request."""
        self._count(now)
        return Ledger(
            queued_ms=self.elapsed_ms(Phase.QUEUED, now),
            prefill_ms=self.elapsed_ms(Phase.PREFILL, now),
            decode_ms=self.elapsed_ms(Phase.DECODE, now),
            preempted_ms=self.elapsed_ms(Phase.PREEMPTED, now),
            preemptions=self.preemptions,
            pages_peak=self.pages_peak,
            page_seconds=self.page_seconds,
            recomputed_tokens=self.recomputed_tokens,
            swapped_bytes=self.swapped_bytes,
        )

    def _count(self, now: float) -> None:
        self.page_seconds += len(self._holds) * (now - self._changed)
        self._changed = now
