"""The dashboard as an SVG, from a recording or the simulation: no terminal, and no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from pagedd.errors import PageddError
from pagedd.protocol import Explanation
from pagedd_tui.app import Dashboard
from pagedd_tui.pace import Pace
from pagedd_tui.palette import Palette
from pagedd_tui.source import Ended, Item, Source

_TICK_S = 0.25  # of the source's time
_SETTLE = 8  # ticks at the end, for what is asked about the last frame
_BASE = 1_750_000_000.0  # seconds since 1970 when the source's time is 0


class Lapse:
    """A time that passes as fast as it can, up to ``until``, where whoever sleeps sleeps on."""

    def __init__(self, until: float) -> None:
        self._now = 0.0
        self._until = until
        self.tick: Callable[[], None] | None = None
        self.over = asyncio.Event()

    def pace(self) -> Pace:
        """For a source."""
        return Pace(now=self.now, sleep=self.sleep, wall=self.wall)

    def now(self) -> float:
        """Seconds since the beginning."""
        return self._now

    def wall(self) -> float:
        """Seconds since 1970, the same in every run."""
        return _BASE + self._now

    async def sleep(self, seconds: float) -> None:
        """Pass the time."""
        end = self._now + max(seconds, 0.0)
        while self._now < min(end, self._until):
            await self.pass_by(min(_TICK_S, end - self._now, self._until - self._now))
        if end > self._until:
            self.over.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    async def pass_by(self, seconds: float) -> None:
        """Let the clock go on, also beyond the end, and the dashboard look at it."""
        before, self._now = self._now, self._now + seconds
        if self.tick is not None and before // _TICK_S != self._now // _TICK_S:
            self.tick()
        await asyncio.sleep(0)


class _Noticed:
    """A source whose end is noticed."""

    def __init__(self, source: Source, over: asyncio.Event) -> None:
        self._source, self._over = source, over

    @property
    def title(self) -> str:
        return self._source.title

    @property
    def can_command(self) -> bool:
        return self._source.can_command

    async def items(self) -> AsyncIterator[Item]:
        try:
            async for item in self._source.items():
                if isinstance(item, Ended):
                    break  # a picture of a moment within the recording, without a note on its end
                yield item
        finally:
            self._over.set()
        await asyncio.Event().wait()

    async def explain(self, handle: int) -> Explanation:
        return await self._source.explain(handle)

    async def cancel(self, handle: int) -> None:
        await self._source.cancel(handle)

    async def reprioritize(self, handle: int, priority: int) -> None:
        await self._source.reprioritize(handle, priority)


async def take_screenshot(
    make: Callable[[Pace], Source],
    path: Path,
    *,
    palette: Palette,
    size: tuple[int, int],
    at: float,
    keys: Sequence[str] = (),
) -> None:
    """Write what the dashboard shows ``at`` seconds after the beginning, or at the end.

    ``keys`` are pressed before, as Textual names them. Raises OSError, PageddError.
    """
    lapse = Lapse(at)
    source = _Noticed(make(lapse.pace()), lapse.over)
    app = Dashboard(source, palette=palette, map_hz=1 / _TICK_S, clock=lapse.now)
    pictures: list[str] = []

    async def pilot(pilot: Pilot[Any]) -> None:
        lapse.tick = app.tick
        await lapse.over.wait()
        await pilot.press(*keys)
        for _ in range(_SETTLE):
            await lapse.pass_by(_TICK_S)
            await pilot.pause()
        if app.return_code is None:  # or it has failed, and ends by itself
            pictures.append(app.export_screenshot(title=app.TITLE))
            app.exit()

    await app.run_async(headless=True, size=size, auto_pilot=pilot)
    if not pictures:
        raise PageddError("the dashboard failed, so there is no picture")
    if app.feed.model.frame == 0:
        raise PageddError(f"{source.title}: not one frame has come, so there is no picture")
    path.write_text(pictures[0], encoding="utf-8")
