"""Time, as a parameter: seconds that never go back, and how often something may happen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

Clock = Callable[[], float]

steady: Clock = time.monotonic


class Rate:
    """Says when the next time has come, ``hz`` times a second at the most. Sleeps never.

    ``least``: seconds that have to pass in any case.
    """

    def __init__(self, hz: float) -> None:
        self._period = 1 / hz
        self._last = -math.inf
        self.least = 0.0

    def due(self, now: float) -> bool:
        """Whether it is time; then the next is a period later. A clock set back starts anew."""
        # timers come a little early at times: a tenth of a period is no reason to skip a turn
        if self._last <= now < self._last + 0.9 * max(self._period, self.least):
            return False
        self._last = now
        return True

    def hurry(self) -> None:
        """It is time now."""
        self._last = -math.inf


def brief(seconds: float) -> str:
    """A time in few cells: 340ms, 4.2s, 12s, 3m05, 2h10."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def time_of_day(at: float) -> str:
    """Seconds since 1970 as the local time: HH:MM:SS.m; dashes for what is no time."""
    try:
        whole, tenths = divmod(round(at * 10), 10)
        return f"{time.strftime('%H:%M:%S', time.localtime(whole))}.{tenths}"
    except (ValueError, OverflowError, OSError):
        return "--:--:--.-"
