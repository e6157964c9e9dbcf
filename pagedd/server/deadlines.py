"""Time limits of requests, from their arrival."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Deadlines:
    """Calls ``expire`` with a handle and its limit in seconds when that has passed.

    ``default`` holds for requests that bring no limit; None: they have none.
    """

    def __init__(self, default: float | None, expire: Callable[[int, float], None]) -> None:
        self.default = default
        self._expire = expire
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def arm(self, handle: int, arrived: float, limit: float | None) -> None:
        """From now on. ``arrived``: when, on the monotonic clock. Nothing if it is armed."""
        limit = self.default if limit is None else limit
        if limit is None or handle in self._timers:
            return
        left = max(0.0, arrived + limit - time.monotonic())
        loop = asyncio.get_running_loop()
        self._timers[handle] = loop.call_later(left, self._passed, handle, limit)

    def disarm(self, handle: int) -> None:
        """It has ended in time, or had no limit."""
        timer = self._timers.pop(handle, None)
        if timer is not None:
            timer.cancel()

    def _passed(self, handle: int, limit: float) -> None:
        self._timers.pop(handle, None)
        self._expire(handle, limit)
