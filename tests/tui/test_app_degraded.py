"""Feeds that break, restart, end or flood."""

from __future__ import annotations

import asyncio
import itertools
import time
from statistics import median

import pytest

from pagedd_tui.source import Ended, Item, Lost
from tests.tui.fake_source import (
    BASE,
    CELLS,
    PICTURE,
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


async def test_a_flood_leaves_keys_their_turn() -> None:
    """2,000 events a second for 10 seconds; what a key press costs, against one with 20 a second.

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
        flooded = median([await tenth(bench, 200) for _ in range(100)])
        await bench.settle()
        assert flooded < 10 * calm
        assert len(bench.app.feed.events) == bench.app.feed.events.maxlen  # bounded
        assert f"{40 * 2 + 100 * 200} cached pages" in bench.text()


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
