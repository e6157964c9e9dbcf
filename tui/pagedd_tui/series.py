"""What the counters were in the last ten minutes, twice a second. Plain data, bounded.

``times[i]`` is in slots of half a second. A sample that follows a gap is the start of something
else: no line leads to it and no rate is taken over it. Without a gap nothing has changed between
two samples, so the first of them holds until the second.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pagedd.protocol import Counters

SLOT_S = 0.5
MINUTES = 10.0
PHASES = ("plan", "build", "swap", "execute", "sample", "commit", "send")
_MOST_PHASES = 12  # a daemon's word, so bounded
_STEP_BACK_S = 2.0  # a clock that goes back further has begun anew


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters in one slot; ``preemptions``: a second since the sample before."""

    slot: int
    at: float
    total: int  # of preemptions
    gap: bool
    tokens: float
    running: int
    waiting: int
    swapped: int
    device: float
    host: float
    preemptions: float
    step_ms: Mapping[str, float]


Pick = Callable[[Sample], float]


class Series:
    """The samples, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=round(MINUTES * 60 / SLOT_S))

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def last(self) -> Sample | None:
        """The newest sample."""
        return self._samples[-1] if self._samples else None

    @property
    def span_s(self) -> float:
        """From the oldest to the newest."""
        samples = self._samples
        return (samples[-1].slot - samples[0].slot + 1) * SLOT_S if samples else 0.0

    def add(self, at: float, counters: Counters, gap: bool) -> bool:
        """Counters at a time; ``gap``: something was missed since those before, or is another's.

        Those that come in the same slot take the place of the ones before. Returns whether they
        began a new one.
        """
        if not math.isfinite(at):
            return False
        slot, last = math.floor(at / SLOT_S), self.last
        if last is not None and slot < last.slot - _STEP_BACK_S / SLOT_S:
            self._samples.clear()
            last = None
        if last is not None and slot <= last.slot and not gap:
            self._samples.pop()
            self._append(last.slot, at, counters, last.gap)
            return False
        if gap and last is not None:
            slot = max(slot, last.slot + 1)
        self._append(slot, at, counters, gap or last is None)
        return True

    def columns(self, pick: Pick, count: int, slots: int) -> list[float | None]:
        """The means of the last ``count`` columns of ``slots`` slots each; None: nothing is known.

        Columns begin at multiples of ``slots``, so that they do not change when time goes on.
        """
        sums, weights = [0.0] * count, [0] * count
        if not self._samples or count < 1:
            return [None] * count
        first = self._samples[-1].slot // slots - count + 1
        begin, before = first * slots, 0
        held = 0.0
        for sample in self._since(begin):
            if sample.slot >= begin and not sample.gap:
                for slot in range(max(before + 1, begin), sample.slot):
                    sums[slot // slots - first] += held
                    weights[slot // slots - first] += 1
            held, before = _finite(pick(sample)), sample.slot
            if sample.slot >= begin:
                sums[sample.slot // slots - first] += held
                weights[sample.slot // slots - first] += 1
        return [total / n if n else None for total, n in zip(sums, weights, strict=True)]

    def recent(self, pick: Pick, slots: int) -> float:
        """The mean of what was sampled in the last ``slots``, since the last gap."""
        values: list[float] = []
        for sample in reversed(self._samples):
            if sample.slot <= self._samples[-1].slot - slots:
                break
            values.append(_finite(pick(sample)))
            if sample.gap:
                break
        return sum(values) / len(values) if values else 0.0

    def phases(self) -> Sequence[str]:
        """The phases of a step that were seen, in the order in which they happen."""
        seen = {name for sample in self._samples for name in sample.step_ms}
        known = [name for name in PHASES if name in seen]
        return [*known, *sorted(seen - set(known) - {"total"})][:_MOST_PHASES]

    def _since(self, slot: int) -> list[Sample]:
        """The samples from ``slot`` on, and the one before."""
        found = []
        for sample in reversed(self._samples):
            found.append(sample)
            if sample.slot < slot:
                break
        return found[::-1]

    def _append(self, slot: int, at: float, counters: Counters, gap: bool) -> None:
        total, rate = counters.preemptions_total, 0.0
        if not gap and self._samples:
            before = self._samples[-1]
            rate = max(total - before.total, 0) / max(at - before.at, SLOT_S)
        self._samples.append(
            Sample(
                slot=slot,
                at=at,
                total=total,
                gap=gap,
                tokens=_finite(counters.tokens_per_second),
                running=max(counters.num_requests_running, 0),
                waiting=max(counters.num_requests_waiting, 0),
                swapped=max(counters.num_requests_swapped, 0),
                device=min(_finite(counters.gpu_cache_usage), 1.0),
                host=min(_finite(counters.host_cache_usage), 1.0),
                preemptions=rate,
                step_ms=dict(counters.step_ms),
            )
        )


def _finite(value: float) -> float:
    return max(float(value), 0.0) if math.isfinite(value) else 0.0
