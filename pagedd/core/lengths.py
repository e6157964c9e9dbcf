"""How long answers have been, to tell how long others will be."""

from __future__ import annotations

from math import sqrt

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

    def least(self, count: int) -> float:
        """What ``count`` choices reach at least, in the mean, nearly always; 0 if none has ended.

        The more there are, the less their mean is off.
        """
        return max(self.mean - 2 * self.spread / sqrt(count), 0.0)
