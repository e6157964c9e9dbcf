"""Timers of time limits: none is kept longer than its request."""

from __future__ import annotations

import asyncio
import time

import pytest

from pagedd.server.deadlines import Deadlines

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def passed(expired: list[tuple[int, float]], count: int) -> None:
    async with asyncio.timeout(10):
        while len(expired) < count:
            await asyncio.sleep(0.005)


async def test_what_has_passed_is_told_once_in_the_order_of_the_limits() -> None:
    expired: list[tuple[int, float]] = []
    deadlines = Deadlines(0.03, lambda *args: expired.append(args))
    now = time.monotonic()
    deadlines.arm(1, now, None)
    deadlines.arm(2, now, 0.01)
    deadlines.arm(2, now, 60.0)  # armed already: the first limit holds
    deadlines.arm(3, now - 100, 50.0)  # it has passed on the way
    deadlines.arm(4, now, 60.0)
    deadlines.arm(5, now, 0.02)
    deadlines.disarm(5)
    deadlines.disarm(99)
    await passed(expired, 3)
    assert expired == [(3, 50.0), (2, 0.01), (1, 0.03)]
    assert set(deadlines._timers) == {4}
    deadlines.disarm(4)
    assert not deadlines._timers


async def test_without_a_limit_there_is_no_timer() -> None:
    deadlines = Deadlines(None, lambda *_: pytest.fail("nothing has a limit"))
    deadlines.arm(1, time.monotonic(), None)
    assert not deadlines._timers
