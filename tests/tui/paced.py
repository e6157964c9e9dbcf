"""A pace that takes no time: whoever sleeps has slept."""

from __future__ import annotations

import anyio.lowlevel

from pagedd_tui.pace import Pace


class Sleeper:
    """``naps``: how long was slept, each time."""

    def __init__(self) -> None:
        self.time = 100.0
        self.naps: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.time += max(seconds, 0.0)
        await anyio.lowlevel.checkpoint()

    def wall(self) -> float:
        return 1000.0 + self.time

    @property
    def pace(self) -> Pace:
        return Pace(self.now, self.sleep, self.wall)
