"""Feeds that break, restart, end or flood, and terminals that are small or change."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from functools import partial
from io import StringIO
from statistics import median

import pytest

from pagedd.errors import UsageError
from pagedd_tui import app as app_module
from pagedd_tui.app import Dashboard, run_top
from pagedd_tui.source import Ended, Item, Lost
from tests.tui.fake_source import (
    BASE,
    CELLS,
    PICTURE,
    PLAIN,
    ROWS,
    START,
    WHY,
    Bench,
    FakeSource,
    change,
    dashboard,
    event,
    hello,
    keyframe,
    row,
    status,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_before_anything_has_come() -> None:
    async with dashboard() as bench:
        assert "connecting" in bench.text()
        for key in ("2", "3", "4", "5", "1", "enter", "space", "comma", "x", "c", "plus", "end"):
            await bench.press(key)
        assert len(bench.app.screen_stack) == 1


async def test_a_lost_connection_is_told_and_the_last_picture_stays() -> None:
    async with dashboard(*START) as bench:
        bright = bench.brightness("r1 ")
        await bench.put(Lost("the daemon closed the connection", 3.0))
        banner = bench.screen()[1]
        assert "disconnected 1 s, retry in 2 s" in banner
        assert "the daemon closed the connection" in banner
        assert bench.app.has_class("lost")
        assert bench.brightness("r1 ") < bright
        asked = len(bench.source.asked)
        await bench.settle(3.0)
        assert "disconnected 4 s, trying again" in bench.screen()[1]
        await bench.put(Lost("still nobody", 5.0))
        assert "disconnected 5 s, retry in 4 s" in bench.screen()[1]
        assert len(bench.source.asked) == asked


async def test_the_past_can_be_seen_without_a_connection() -> None:
    async with dashboard(*START) as bench:
        await bench.put(change(2, {}, [row(9, pages=1)]))
        await bench.put(Lost("gone", 1.0))
        await bench.press("left_square_bracket")
        assert "FROZEN" in bench.screen()[1]
        assert "r9" not in bench.text()


async def test_waiting_times_stand_still_without_a_connection() -> None:
    async with dashboard(*START) as bench:
        await bench.put(Lost("gone", 1.0))
        (before,) = [line for line in bench.app.panels.requests.text if "r4" in line]
        await bench.settle(60.0)
        assert before in bench.app.panels.requests.text


async def test_the_same_daemon_comes_back() -> None:
    async with dashboard(*START) as bench:
        await bench.put(Lost("gone", 1.0))
        await bench.put(hello(), keyframe(7, CELLS, ROWS))
        assert not bench.app.has_class("lost")
        assert "disconnected" not in bench.text()
        assert "restarted" not in bench.text()
        assert bench.app.feed.num_breaks == 1  # the charts have a gap


async def test_another_daemon_leaves_nothing_of_the_old_one() -> None:
    async with dashboard(*START, event("waiting", WHY, 4)) as bench:
        await bench.put(Lost("gone", 1.0))
        await bench.put(hello("boot-2"))
        assert "restarted" in bench.screen()[1]
        assert bench.app.panels.requests.count == 0
        assert bench.app.feed.model.frame == 0
        assert "r4 (#4) waits" not in bench.text()
        await bench.put(keyframe(1, [1, 0], [row(1, id="new")]))
        assert "new" in bench.text()
        assert "r2" not in "\n".join(bench.app.panels.requests.text)
        await bench.settle(12.0)
        assert "restarted" not in bench.text()


async def test_the_charts_have_a_gap_where_the_daemon_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with dashboard(*START) as bench:
        gaps: list[bool] = []

        def add(at: float, counters: object, gap: bool = False) -> None:
            gaps.append(gap)

        monkeypatch.setattr(bench.app.panels.history, "add", add)
        await bench.put(change(2, {}))
        await bench.put(Lost("gone", 1.0))
        await bench.put(hello("boot-2"), keyframe(1, [0]))
        await bench.put(change(2, {}))
        assert gaps == [False, True, False]


async def test_a_missing_frame_changes_nothing() -> None:
    async with dashboard(*START) as bench:
        await bench.put(change(5, {0: 0}, [row(9)]))
        assert bench.app.feed.model.frame == 1
        await bench.put(keyframe(6, CELLS, [row(9)]))
        assert "r9" in bench.text()


async def test_a_daemon_that_is_not_well_is_told() -> None:
    async with dashboard(*START) as bench:
        await bench.put(status(state="stalled", reason="no step for 31 s"))
        assert "stalled" in bench.screen()[0]
        assert "the daemon is stalled: no step for 31 s" in bench.screen()[1]


async def test_the_end_of_a_recording_is_told() -> None:
    source = FakeSource(can_command=False, title="replay run.feed")
    async with dashboard(*START, Ended("the file is cut short"), source=source) as bench:
        assert "replay run.feed" in bench.screen()[0]
        assert "the recording has ended: the file is cut short" in bench.screen()[1]
        await bench.settle(60.0)
        (line,) = [line for line in bench.app.panels.requests.text if "r4" in line]
        assert "1.2s" in line  # time does not go on


async def test_host_memory_that_there_is_not_has_no_panel() -> None:
    async with dashboard(*START[:2], keyframe(1, [0] * 8)) as bench:
        assert not bench.app.panels.host.display
        await bench.press("2", "tab")
        assert bench.app.panels.device.display


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


async def test_a_flood_leaves_keys_their_turn() -> None:
    """2,000 events a second for 20 seconds; what a key press costs, against one with 20 a second.

    In CPU time of this process: others may have the cores meanwhile.
    """
    source = FakeSource()
    numbers, frames = itertools.count(1), itertools.count(2)

    async def tenth(bench: Bench, events: int) -> float:
        for told in itertools.islice(numbers, events):
            text = f"{told} cached pages made room."
            source.put(event("evicted", text, told % 50, BASE + told / 2000))
        frame = next(frames)
        source.put(change(frame, {frame % 64: frame % 4}))
        bench.clock.now += 0.1
        began = time.process_time()
        bench.app.tick()
        await bench.pilot.press("s")
        while source.pending:
            await asyncio.sleep(0)
        return time.process_time() - began

    async with dashboard(*START, source=source) as bench:
        await bench.press("5")
        calm = median([await tenth(bench, 2) for _ in range(40)])
        flooded = median([await tenth(bench, 200) for _ in range(200)])
        await bench.settle()
        assert flooded < 10 * calm
        assert len(bench.app.feed.events) == bench.app.feed.events.maxlen  # bounded
        assert f"{40 * 2 + 200 * 200} cached pages" in bench.text()


async def test_what_cannot_be_recorded_is_told_once() -> None:
    class Full:
        problem = ""
        written = 0

        def write(self, item: Item) -> None:
            self.written += 1
            if self.written == 2:
                self.problem = "the recording stops: the disk is full"

    recorder = Full()
    async with dashboard(*START, recorder=recorder) as bench:
        assert [each.message for each in bench.app._notifications] == [recorder.problem]
        assert recorder.written == 2
        assert bench.app.feed.model.frame == PICTURE.frame


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


async def test_more_pages_while_the_maps_are_out_of_sight() -> None:
    async with dashboard(*START) as bench:
        await bench.press("3")
        await bench.put(hello("boot-2"), keyframe(1, [1] * 500, [row(1)], owners=[1] * 500))
        bench.app.panels.requests.action_move(1)
        await bench.put(keyframe(2, [1] * 900, [row(1), row(2)], owners=[2] * 900))
        await bench.press("1")
        assert "device pages 900" in bench.text()
        await bench.press("left_square_bracket", "left_square_bracket", "left_square_bracket")
        assert "device pages 64" in bench.text()
        await bench.press("end")
        assert "device pages 900" in bench.text()
