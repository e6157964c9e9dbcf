"""Pictures without a terminal: time that passes at once, and a source that ends or breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pagedd.errors import BadRequest, PageddError
from pagedd.protocol import Explanation
from pagedd_tui.demo import DemoSource
from pagedd_tui.pace import Pace
from pagedd_tui.palette import choose
from pagedd_tui.screenshot import Lapse, take_screenshot
from pagedd_tui.source import Ended, Item, Source

pytestmark = pytest.mark.anyio

PLAIN = choose(None, ascii=False, no_color=False)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Short:
    """The beginning of the simulation, and then the end, or an error."""

    title = "short"
    can_command = False

    def __init__(self, pace: Pace, items: int, error: Exception | None = None) -> None:
        self._source, self._left, self._error = DemoSource(pace=pace), items, error

    async def items(self) -> AsyncIterator[Item]:
        async for item in self._source.items():
            if not self._left:
                break
            self._left -= 1
            yield item
        if self._error is not None:
            raise self._error
        yield Ended("that is all")

    async def explain(self, handle: int) -> Explanation:
        raise BadRequest("nobody answers")

    async def cancel(self, handle: int) -> None:
        raise BadRequest("nobody does it")

    async def reprioritize(self, handle: int, priority: int) -> None:
        raise BadRequest("nobody does it")


async def test_time_passes_at_once_and_stops_at_the_end() -> None:
    lapse, ticks = Lapse(10.0), 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    lapse.tick = tick
    pace = lapse.pace()
    await pace.sleep(7.0)
    assert (pace.now(), ticks) == (7.0, 28)
    await pace.sleep(-1.0)
    assert pace.now() == 7.0
    await pace.sleep(3.0)
    assert not lapse.over.is_set()
    await lapse.pass_by(1.0)
    assert pace.now() == 11.0


async def test_a_source_that_ends_before_is_shown_as_it_ended(tmp_path: Path) -> None:
    def make(pace: Pace) -> Source:
        return Short(pace, 60)

    path = tmp_path / "end.svg"
    await take_screenshot(make, path, palette=PLAIN, size=(120, 40), at=1e6)
    text = path.read_text()
    assert "device&#160;pages" in text
    assert "that&#160;is&#160;all" not in text


async def test_keys_are_pressed_before(tmp_path: Path) -> None:
    def make(pace: Pace) -> Source:
        return DemoSource(pace=pace)

    path = tmp_path / "history.svg"
    await take_screenshot(make, path, palette=PLAIN, size=(120, 40), at=5.0, keys=("4",))
    text = path.read_text()
    assert "step&#160;ms" in text
    assert "device&#160;pages" not in text


async def test_a_dashboard_that_fails_leaves_no_picture(tmp_path: Path) -> None:
    def make(pace: Pace) -> Source:
        return Short(pace, 3, RuntimeError("broken"))

    path = tmp_path / "none.svg"
    with pytest.raises(PageddError, match="no picture"):
        await take_screenshot(make, path, palette=PLAIN, size=(80, 24), at=5.0)
    assert not path.exists()


async def test_of_nothing_there_is_no_picture(tmp_path: Path) -> None:
    def make(pace: Pace) -> Source:
        return Short(pace, 0)

    path = tmp_path / "none.svg"
    with pytest.raises(PageddError, match="not one frame"):
        await take_screenshot(make, path, palette=PLAIN, size=(80, 24), at=5.0)
    assert not path.exists()
