"""Charts of the last minutes: what is drawn for which values, sizes and palettes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult

from pagedd.protocol import Counters
from pagedd_tui.charts import Ink, chart, nice_top, spark
from pagedd_tui.history import History
from pagedd_tui.palette import Palette, choose

RED, BLUE = Style(color="#ff0000"), Style(color="#0000ff")
INK = Ink((RED, BLUE), coloured=True, ascii=False)
PLAIN = choose(None, ascii=False, no_color=False)
AT = 1000.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def text(segments: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in segments)


def counters(i: int) -> Counters:
    phases = {"plan": 0.5, "execute": 20.0, "commit": 1.0, "total": 21.5, "\x1b[2J\n": 1.0}
    return Counters(8, 3, 2, 0.78, 0.25, 0.5, 412.0 + i % 2, i, phases)


def test_a_line_of_blocks() -> None:
    assert text(spark([0, 1, 4, 8, None, 100], 8, INK)) == " ▁▄█ █"
    assert text(spark([0.001, 0], 100, INK)) == "▁ "  # anything can be seen
    assert text(spark([0, 1, 4, 8, None], 8, Ink((RED,), coloured=True, ascii=True))) == " .:# "


def test_a_chart_of_several_rows() -> None:
    lines = [text(line) for line in chart([(8,), (12,), (16,), None, (99,)], 16, 2, INK)]
    assert lines == [" ▄█ █", "███ █"]


def test_series_lie_on_top_of_each_other() -> None:
    (high, low) = chart([(4, 8)], 16, 2, INK)
    assert (text(high), text(low)) == ("▄", "▄")
    assert high[0].style == BLUE
    style = low[0].style
    assert style is not None
    assert (style.color, style.bgcolor) == (RED.color, BLUE.color)
    mono = Ink((Style(), Style()), coloured=False, ascii=False)
    assert [text(line) for line in chart([(8, 8)], 16, 2, mono)] == ["▒", "█"]


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (-1, 1), (math.nan, 1), (0.3, 0.3), (412, 500), (1000, 1000), (7, 8)]
)
def test_the_top_is_a_round_number(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)


class Screen(App[None]):
    """A history that fills the screen."""

    AUTO_FOCUS = None

    def __init__(self, palette: Palette = PLAIN, *, compact: bool = False) -> None:
        super().__init__()
        self.history = History(palette=palette, id="history", compact=compact)

    def compose(self) -> ComposeResult:
        yield self.history

    def lines(self) -> list[str]:
        return [self.history.render_line(y).text for y in range(self.history.size.height)]

    def fill(self, samples: int) -> None:
        for i in range(samples):
            self.history.add(AT + i / 2, counters(i))


@pytest.mark.anyio
async def test_the_strip_says_what_is_now_and_what_was_before() -> None:
    app = Screen(compact=True)
    async with app.run_test(size=(120, 1)) as pilot:
        app.fill(40)
        (line,) = app.lines()
        for said in ("tok/s", "413", "KV device", "78%", "step ms", "22.5", "preemptions/s", "2.0"):
            assert said in line
        await pilot.resize_terminal(30, 1)
        (line,) = app.lines()
        assert line.startswith(" tok/s ")
        assert "413" in line
        assert len(line) == 30


@pytest.mark.anyio
async def test_the_view_has_a_chart_for_each_thing() -> None:
    app = Screen()
    async with app.run_test(size=(118, 30)):
        app.fill(100)
        lines = app.lines()
        whole = "\n".join(lines)
        for said in (
            *("tok/s 413", "requests 11  █ running 8  █ waiting 3", "KV device 78%", "top 100%"),
            *("KV host 25%", "preemptions/s 2.0", "swapped 2", "step ms 22.5", "█ execute 20.0"),
            "last 60 s; every column ",
        ):
            assert said in whole
        assert "\x1b" not in whole
        app.history.zoom(-1)
        assert "last 60 s" in app.lines()[-1]  # all there is
        for _ in range(9):
            app.history.zoom(1)
        assert "last 60 s" in app.lines()[-1]
        app.history.zoom(-1)
        assert "last 2 min" in app.lines()[-1]


@pytest.mark.anyio
async def test_a_gap_is_blank() -> None:
    app = Screen()
    async with app.run_test(size=(60, 15)):
        app.fill(30)
        app.history.add(AT + 30, counters(5), gap=True)
        app.history.add(AT + 31, counters(6))
        chart_of_tokens = app.lines()[1].rstrip()
        before, gap, after = chart_of_tokens.strip().partition(" " * 10)
        assert before.strip()
        assert gap
        assert after.strip()


@pytest.mark.anyio
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (10, 2), (83, 5), (84, 4), (300, 90)])
@pytest.mark.parametrize("compact", [False, True])
async def test_any_size_and_any_palette(size: tuple[int, int], compact: bool) -> None:
    app = Screen(compact=compact)
    async with app.run_test(size=size):
        assert {len(line) for line in app.lines()} == {size[0]}
        app.fill(30)
        assert {len(line) for line in app.lines()} == {size[0]}
        app.history.palette = choose(None, ascii=True, no_color=True)
        assert {len(line) for line in app.lines()} == {size[0]}
        assert all(line.isascii() for line in app.lines())
