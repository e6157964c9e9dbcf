"""The ``state`` feed: what the engine changes, told at the rate that each subscriber asked for.

Subscribers of one rate get the same frames, which are made and encoded once. A subscriber that
does not keep up is passed over, and its next frame is a keyframe: latest wins, and nothing waits
for it. While nobody subscribes the engine collects nothing, and here nothing runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import anyio

from pagedd.core.watch import Changes
from pagedd.protocol import Counters
from pagedd.server.outbox import Outbox, Shared
from pagedd.server.state_mirror import Dirt, StateMirror

KEYFRAME_EVERY_S = 30.0
SETTLING_S = 0.5
LAG_BYTES = 64 * 1024  # a client that has so much to read gets nothing more to read


class _Rate:
    """Who gets frames at one rate, and what has changed since their last."""

    def __init__(self, hz: float) -> None:
        self.period = 1 / hz
        self.outboxes: dict[Outbox, bool] = {}  # whether its next frame must be a keyframe
        self.dirt = Dirt()
        self.frame = 0
        self.due = -math.inf
        self.key_due = -math.inf
        self.counters: Counters | None = None  # in the last frame

    def changed(self, counters: Counters) -> bool:
        """Something is another than in the last frame."""
        return bool(self.dirt) or counters != self.counters


class StateFeed:
    """Owns the subscriptions. ``watch`` tells the engine whether anybody looks.

    ``clock``: seconds since 1970; ``timer``: of the event loop, for the rates.
    """

    def __init__(
        self,
        id_of: Callable[[int], str],
        counters: Callable[[], Counters],
        watch: Callable[[bool], None],
        clock: Callable[[], float],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mirror = StateMirror(id_of)
        self._counters = counters
        self._watch = watch
        self._clock = clock
        self._timer = timer
        self._rates: dict[float, _Rate] = {}
        self._wake = anyio.Event()

    def subscribe(self, outbox: Outbox, hz: float) -> None:
        """A keyframe as soon as there is one, then changes. A second time: at another rate."""
        first = not self._rates
        self._leave(outbox)
        rate = self._rates.setdefault(hz, _Rate(hz))
        rate.outboxes[outbox] = True
        rate.due = min(rate.due, self._timer())
        if first:
            self._mirror.clear()
            self._watch(True)
        self._wake.set()

    def unsubscribe(self, outbox: Outbox) -> None:
        """Send no more; with the last one the engine collects no more."""
        if self._leave(outbox) and not self._rates:
            self._watch(False)
            self._mirror.clear()

    def engine_lost(self) -> None:
        """What was known is gone; the next frame is a keyframe, when there is another engine."""
        self._mirror.clear()
        for rate in self._rates.values():
            rate.dirt = Dirt()

    def engine_serves(self) -> None:
        """A new engine, which knows of no watch."""
        if self._rates:
            self._watch(True)

    def step(self, changes: Changes) -> None:
        """What a step of the engine has changed."""
        self._mirror.take(changes)
        for rate in self._rates.values():
            rate.dirt.add(changes)
        self._wake.set()

    def flush(self, outbox: Outbox) -> None:
        """Bring who subscribed here up to this moment, before its rate says so."""
        for rate in self._rates.values():
            if outbox in rate.outboxes:
                self._tell(rate)

    async def run(self) -> None:
        """Send frames when they are due, for ever."""
        while True:
            with anyio.move_on_after(self._rest()):
                await self._wake.wait()
            self._wake = anyio.Event()
            while (due := self._next_due()) is not None:
                await anyio.sleep(max(0.0, due - self._timer()))
                now = self._timer()
                for rate in list(self._rates.values()):
                    if rate.due <= now:
                        self._tell(rate)

    def _rest(self) -> float | None:
        """Seconds to wait for a step: rates go down, and keyframes are due, without any."""
        if not self._rates or not self._mirror.known:
            return None
        if any(_still_falls(rate.counters) for rate in self._rates.values()):
            return SETTLING_S
        soonest = min(rate.key_due for rate in self._rates.values())
        return max(soonest - self._timer(), SETTLING_S)

    def _next_due(self) -> float | None:
        """When somebody is to be told something; None while all that is known has been told."""
        if not self._mirror.known:
            return None
        rates = [rate for rate in self._rates.values() if self._has_news(rate)]
        return min((rate.due for rate in rates), default=None)

    def _has_news(self, rate: _Rate) -> bool:
        return rate.changed(self._counters()) or any(rate.outboxes.values())

    def _tell(self, rate: _Rate) -> None:
        """A frame to all of one rate; a keyframe to those who cannot go on from their last."""
        if not self._mirror.known or not self._has_news(rate):
            return
        now, at, counters = self._timer(), self._clock(), self._counters()
        all_anew = now >= rate.key_due or rate.dirt.everything or self._mirror.is_large(rate.dirt)
        news = rate.changed(counters) or all_anew
        rate.frame += news  # a keyframe for who was passed over is the last frame, whole
        rate.due, rate.counters = now + rate.period, counters
        keyframe, change = Shared(), Shared()
        for outbox, behind in rate.outboxes.items():
            if outbox.size > LAG_BYTES:
                rate.outboxes[outbox] = True
            elif all_anew or behind:
                if keyframe.frame is None:
                    keyframe.frame = self._mirror.keyframe(rate.frame, at, counters)
                outbox.put_shared(keyframe)
                rate.outboxes[outbox] = False
            elif news:
                if change.frame is None:
                    change.frame = self._mirror.change(rate.frame, at, rate.dirt, counters)
                outbox.put_shared(change)
        if all_anew:
            rate.key_due = now + KEYFRAME_EVERY_S
        rate.dirt = Dirt(everything=False)

    def _leave(self, outbox: Outbox) -> bool:
        """Whether it was subscribed."""
        for hz, rate in list(self._rates.items()):
            if rate.outboxes.pop(outbox, None) is not None:
                if not rate.outboxes:
                    del self._rates[hz]
                return True
        return False


def _still_falls(told: Counters | None) -> bool:
    """Whether what was told of the last seconds goes down by itself."""
    return told is None or bool(told.step_ms) or told.tokens_per_second > 0
