"""How long answers have been, to tell how long others will be."""

from __future__ import annotations

WEIGHT = 0.05  # of the latest length, once there are enough of them


class Lengths:
    """Averages of the tokens drawn by choices that have ended, and of their distance from that."""

    __slots__ = ("_count", "mean", "spread")

    def __init__(self) -> None:
        self._count = 0
        self.mean = 0.0
        self.spread = 0.0  # mean absolute deviation

    def learn(self, generated: int) -> None:
        """A choice has ended with so many tokens."""
        self._count += 1
        weight = max(1 / self._count, WEIGHT)
        distance = abs(generated - self.mean) if self._count > 1 else 0.0
        self.mean += weight * (generated - self.mean)
        self.spread += weight * (distance - self.spread)

    @property
    def short(self) -> float:
        """What most choices reach; 0 as long as none has ended."""
        return max(self.mean - self.spread, 0.0)
