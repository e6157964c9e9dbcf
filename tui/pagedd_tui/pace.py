"""The times that a simulation and a recording are played by."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio


@dataclass(frozen=True, slots=True)
class Pace:
    """``now``: seconds that never go back; ``sleep``; ``wall``: seconds since 1970."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    wall: Callable[[], float] = time.time


REAL = Pace()
