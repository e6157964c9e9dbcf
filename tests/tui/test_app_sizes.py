"""Terminals that are small, change their size, are far away, or are not there."""

from __future__ import annotations

import sys
from functools import partial
from io import StringIO

import pytest

from pagedd.errors import UsageError
from pagedd_tui import app as app_module
from pagedd_tui.app import Dashboard, run_top
from tests.tui.fake_source import (
    CELLS,
    PLAIN,
    ROWS,
    START,
    WHY,
    FakeSource,
    change,
    dashboard,
    event,
    keyframe,
    row,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_one_panel_at_a_time_on_80_columns() -> None:
    async with dashboard(*START, size=(80, 24)) as bench:
        seen = []
        for _ in range(4):
            names = ("device", "host", "requests", "history")
            seen += [name for name in names if bench.app.query_one(f"#{name}").display]
            await bench.press("tab")
        assert seen == ["requests", "history", "device", "host"]
        assert "r1 holds 30 of 64 pages" in bench.text()


@pytest.mark.parametrize("size", [(59, 15), (60, 14), (50, 12), (20, 5)])
async def test_words_where_there_is_no_room_for_panels(size: tuple[int, int]) -> None:
    async with dashboard(*START, event("waiting", WHY, 4), size=size) as bench:
        assert bench.app.panels.summary.display
        assert not bench.app.panels.requests.display
        assert "run 12" in bench.text()
        if size[1] > 10:
            assert "next: r4 (#4) waits for pages" in bench.text()
            assert "r1 holds 30 of 64 pages" in bench.text().replace("\n", " ")


@pytest.mark.parametrize("size", [(0, 0), (1, 1), (2, 1), (1, 40), (120, 1), (10, 3), (61, 15)])
async def test_no_terminal_is_too_small(size: tuple[int, int]) -> None:
    async with dashboard(*START, size=size) as bench:
        for key in ("2", "3", "4", "5", "enter", "escape", "question_mark", "escape", "slash"):
            await bench.press(key)
        await bench.press("escape")
        await bench.resize(120, 40)
        await bench.press("1")
        assert "device pages 64" in bench.text()


async def test_after_a_hundred_sizes_the_screen_is_as_if_there_had_been_one() -> None:
    rows = [row(1, id="日本語🙂" * 30), row(2, id="x" * 10_000), *ROWS[3:]]
    first, last = (keyframe(frame, CELLS, rows, host=[1] * 16) for frame in (1, 500))
    async with dashboard(*START[:2], first) as bench, dashboard(*START[:2], first) as still:
        for i in range(100):
            bench.source.put(change(i + 2, {i % 60: i % 4}, [row(1, id=rows[0].id, pages=i)]))
            await bench.pilot.resize_terminal(1 + i * 7 % 130, 1 + i * 5 % 45)
            if i % 10 == 0:
                await bench.press(str(i // 10 % 5 + 1))
        await bench.resize(120, 40)
        await bench.press("1")
        while bench.app.looking.panel != "requests":
            await bench.press("tab")
        for each in (bench, still):
            each.clock.now = 10_000.0
            await each.put(last)
            await each.press("home")
        charts = 38  # these have seen different things
        assert bench.screen()[:charts] == still.screen()[:charts]
        assert bench.screen()[charts + 1 :] == still.screen()[charts + 1 :]


def test_where_nobody_can_see_it_another_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", StringIO())
    with pytest.raises(UsageError, match="pagedd status --watch --json"):
        run_top(FakeSource(), palette=PLAIN)


@pytest.mark.parametrize(("ssh", "hz"), [("", 10.0), ("10.0.0.1 5 10.0.0.2 22", 4.0)])
def test_over_ssh_there_are_fewer_pictures(
    monkeypatch: pytest.MonkeyPatch, ssh: str, hz: float
) -> None:
    seen: list[Dashboard] = []
    nicer: list[int] = []

    def run(self: Dashboard) -> None:
        seen.append(self)

    monkeypatch.setattr(app_module, "_is_terminal", bool)
    monkeypatch.setattr(Dashboard, "run", run)
    monkeypatch.setattr(app_module, "step_back", partial(nicer.append, 1))
    monkeypatch.setenv("SSH_CONNECTION", ssh)
    assert run_top(FakeSource(), palette=PLAIN) == 0
    assert seen[0].map_hz == hz
    assert nicer == [1]
