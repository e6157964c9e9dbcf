"""Counts of values by size, cheap enough for every token."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

Bounds = tuple[float, ...]

# Upper bounds, in seconds: of one step's parts, of the gap between two tokens, of the wait for the
# first one, of whole requests. A small machine's answers are slower than a large one's, and a
# quantile is no better than the bounds around it.
PHASE_S: Bounds = (
    *(1e-05, 2.5e-05, 5e-05, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
GAP_S: Bounds = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15),
    *(0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
FIRST_S: Bounds = (
    *(0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
REQUEST_S: Bounds = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
TOKENS: Bounds = tuple(float(1 << power) for power in range(18))
CHOICES: Bounds = (1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0, 16.0, 20.0, 32.0, 64.0)
TIMES: Bounds = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 50.0)


class Histogram:
    """Values up to and including each of the ascending ``bounds``, and their sum."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """The same value so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """Of all values."""
        return sum(self._counts)

    def buckets(self) -> Sequence[tuple[str, float]]:
        """As Prometheus has them: the bound, and how many values do not exceed it."""
        result: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            result.append((bound, total))
        return result
