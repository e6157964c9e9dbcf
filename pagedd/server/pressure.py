"""Is the cache full, and who gives way? Measured over the last seconds of steps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pagedd.engine.messages import Step
from pagedd.server.advice import FULL, Pressure

WINDOW_S = 10.0
ENDED = 64  # requests whose size is remembered


@dataclass(slots=True)
class _Second:
    """Sums over the steps of one second."""

    second: int
    steps: int = 0
    full: int = 0
    usage: float = 0.0
    preemptions: int = 0
    sequences: int = 0
    largest: int = 0


class PressureGauge:
    """Takes every step in. Times are seconds of any clock that never goes back."""

    def __init__(self) -> None:
        self._seconds: deque[_Second] = deque()
        self._busy_since: float | None = None
        self._wanted = 0
        self._ended: deque[tuple[float, int]] = deque(maxlen=ENDED)  # pages a sequence, choices

    def reset(self) -> None:
        """Another engine: what was measured says nothing about it."""
        self._seconds.clear()
        self._ended.clear()
        self._busy_since = None

    def step(self, step: Step, now: float) -> None:
        """What one step did."""
        stats = step.stats
        self._wanted = stats.running + stats.waiting
        if not self._wanted:
            self._busy_since = None
            self._seconds.clear()
            return
        if self._busy_since is None:
            self._busy_since = now
        self._forget(now)
        if not self._seconds or self._seconds[-1].second != int(now):
            self._seconds.append(_Second(int(now)))
        last = self._seconds[-1]
        last.steps += 1
        used, total = stats.pages.owned + stats.pages.shared, max(stats.pages.total, 1)
        usage = used / total
        # The scheduler lets nobody back in while there is not a page left for each that runs.
        last.full += usage > FULL or total - used <= stats.sequences
        last.usage += usage
        last.preemptions += len(step.events.preempted)
        last.sequences += stats.sequences
        last.largest += stats.most_pages

    def ended(self, pages_peak: int, choices: int) -> None:
        """A request ended that held at most so many pages."""
        self._ended.append((pages_peak / choices, choices))

    def pressure(self, now: float) -> Pressure | None:
        """None until there was work for WINDOW_S without a pause, or when no step has come."""
        self._forget(now)
        steps = sum(each.steps for each in self._seconds)
        if not steps or self._busy_since is None or now - self._busy_since < WINDOW_S:
            return None
        sizes = [size for size, _ in self._ended]
        return Pressure(
            seconds=WINDOW_S,
            full=sum(each.full for each in self._seconds) / steps,
            usage=sum(each.usage for each in self._seconds) / steps,
            preemptions=sum(each.preemptions for each in self._seconds),
            sequences=sum(each.sequences for each in self._seconds) / steps,
            largest=sum(each.largest for each in self._seconds) / steps,
            pages_at_end=sum(sizes) / len(sizes) if sizes else 0.0,
            wanted=self._wanted,
            choices=max((choices for _, choices in self._ended), default=1),
        )

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0].second < int(now - WINDOW_S):
            self._seconds.popleft()
