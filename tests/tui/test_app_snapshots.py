"""Two screens to the cell and the colour. After a change that is meant: ``--snapshot-update``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from pagedd_tui.app import Dashboard
from tests.tui.fake_source import PLAIN, START, WHY, Clock, FakeSource, event


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
def test_the_overview(snap_compare: Callable[..., bool], size: tuple[int, int]) -> None:
    source, clock = FakeSource(), Clock()
    app = Dashboard(source, palette=PLAIN, clock=clock)

    async def settle(pilot: Pilot[Any]) -> None:
        source.put(*START, event("waiting", WHY, 4))
        for _ in range(3):
            await pilot.pause()
            clock.now += 1.0
            app.tick()
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=settle)
