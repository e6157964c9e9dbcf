"""The map on a screen: text of its lines, what is drawn again, zoom, cursor, tiny terminals."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.geometry import Region

from pagedd.protocol import CACHED, FREE, OWNED, SHARED, SWAPPED, SequenceRow
from pagedd_tui.cells import Cells, Owner, RowKey
from pagedd_tui.page_map import PageMap
from pagedd_tui.page_words import describe
from pagedd_tui.palette import Palette, choose

pytestmark = pytest.mark.anyio

PLAIN = choose(None, ascii=False, no_color=False)
A, B = (17, 0), (5, 1)


def row(key: RowKey, id: str) -> SequenceRow:
    return SequenceRow(key[0], id, key[1], "decoding", 0, 10, 5, 15, 2, 0, 0.0)


ROWS = {A: row(A, "r41"), B: row(B, "r3")}


def memory(states: Iterable[int], owners: list[Owner] | None = None) -> Cells:
    cells = Cells()
    cells.replace(bytes(states), owners)
    return cells


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Screen(App[None]):
    """One map that fills the screen."""

    AUTO_FOCUS = None

    def __init__(self, palette: Palette = PLAIN, *, host: bool = False) -> None:
        super().__init__()
        self.map = PageMap(host=host, palette=palette, id="map")

    def compose(self) -> ComposeResult:
        yield self.map

    def lines(self) -> list[str]:
        return [self.map.render_line(y).text for y in range(self.map.size.height)]

    def segments(self, y: int) -> list[Segment]:
        return list(self.map.render_line(y))

    def reversed_text(self) -> str:
        return "".join(
            text
            for y in range(self.map.size.height)
            for text, style, _ in self.segments(y)
            if style is not None and style.reverse
        )


async def test_a_page_is_a_cell_where_there_is_room() -> None:
    app = Screen()
    async with app.run_test(size=(6, 3)):
        states = [OWNED] * 4 + [SHARED] * 3 + [CACHED] * 2 + [FREE] * 4
        app.map.show(memory(states), {}, None, 0.0)
        assert app.lines() == ["████▓▓", "▓▒▒···", "·     "]
        assert app.map.title == "device pages 13"
        assert [len(segment.text) for segment in app.segments(0)] == [4, 2]  # one a run


async def test_a_cell_stands_for_several_pages_where_there_is_not() -> None:
    app = Screen()
    async with app.run_test(size=(4, 1)):
        states = [OWNED] * 5 + [SHARED, FREE, FREE, FREE, FREE] + [CACHED] * 3 + [FREE] * 7
        app.map.show(memory(states), {}, None, 0.0)
        assert app.map.title == "device pages 20 · 1 cell = 5 pages"
        assert app.lines() == ["█▂▄·"]


async def test_the_host_has_glyphs_and_a_title_of_its_own() -> None:
    app = Screen(host=True)
    async with app.run_test(size=(4, 1)):
        app.map.show(memory([SWAPPED, SWAPPED, CACHED, FREE]), {}, None, 0.0)
        assert app.lines() == ["░░▒·"]
        assert app.map.title == "host pages 4"
        assert (
            app.map.describe_cursor() == "host page 0: swapped, it waits to go back to the device"
        )


@pytest.mark.parametrize("no_color", [False, True])
async def test_ascii_and_no_colour_show_the_commonest_state(no_color: bool) -> None:
    palette = choose(None, ascii=True, no_color=no_color)
    app = Screen(palette)
    async with app.run_test(size=(4, 1)):
        app.map.show(memory([OWNED, SHARED, CACHED, FREE]), {}, None, 0.0)
        assert app.lines() == ["#=+."]
        app.map.show(memory([OWNED, FREE, SHARED, SHARED, CACHED, CACHED, FREE, FREE]), {}, None, 1)
        assert app.lines() == ["#=+."]
        assert app.map.title == "device pages 8 | 1 cell = 2 pages"
        for _ in range(4):
            app.map.cycle_colour()
            assert "".join(app.lines()).isascii()
            coloured = any(style is not None and style.color for _, style, _ in app.segments(0))
            assert coloured is not no_color


async def test_only_rows_that_differ_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Screen()
    async with app.run_test(size=(10, 10)) as pilot:
        cells = memory([FREE] * 100)
        app.map.show(cells, {}, None, 0.0)
        await pilot.pause()
        calls: list[tuple[Region, ...]] = []
        monkeypatch.setattr(app.map, "refresh", lambda *regions, **_: calls.append(regions))
        cells.change([3, 5, 71], bytes([OWNED] * 3))
        app.map.show(cells, {}, (3, 5, 71), 1.0)
        app.map.show(cells, {}, (), 2.0)
        app.map.show(cells, {}, (), 3.0)
        expected = {Region(0, 0, 10, 1), Region(0, 7, 10, 1)}
        assert [set(regions) for regions in calls] == [expected, expected]


async def test_changed_pages_and_those_of_the_selected_request_are_reversed() -> None:
    app = Screen()
    async with app.run_test(size=(8, 1)):
        cells = memory([OWNED, OWNED, SHARED, FREE, FREE, FREE, FREE, FREE], [A, B, A] + [None] * 5)
        app.map.show(cells, ROWS, None, 0.0)
        assert app.reversed_text() == ""
        cells.change([4], bytes([CACHED]))
        app.map.show(cells, ROWS, (4,), 1.0)
        assert app.reversed_text() == "░"  # a medium shade reversed would look as before
        app.map.select(A)
        app.map.show(cells, ROWS, (), 2.0)
        assert app.reversed_text() == "▞▓"


async def test_zoom_down_to_a_page_a_cell_and_scroll_to_the_cursor() -> None:
    app = Screen()
    async with app.run_test(size=(10, 4)) as pilot:
        app.map.show(memory([OWNED] * 200 + [FREE] * 199 + [SHARED]), ROWS, None, 0.0)
        assert app.map.pages_per_cell == 10
        for k in (5, 3, 2, 1, 1):
            app.map.zoom(1)
            assert app.map.pages_per_cell == k
        assert app.map.title == "device pages 400 · rows 1-4 of 40"
        app.map.focus()
        for _ in range(20):
            await pilot.press("pagedown")
        assert app.map.cursor == 399
        assert app.map.describe_cursor().startswith("page 399: shared, a request that is not known")
        assert app.map.title == "device pages 400 · rows 37-40 of 40"
        assert app.lines()[-1] == "·········▓"
        app.map.zoom(-99)
        assert app.map.pages_per_cell == 10
        assert app.map.cursor == 399
        assert app.lines()[0] == "██████████"


async def test_the_cursor_goes_by_keys_and_mouse_and_tells_what_is_there() -> None:
    app = Screen()
    async with app.run_test(size=(4, 2)) as pilot:
        cells = memory([OWNED, SHARED, CACHED, FREE, OWNED, FREE], [A, A, None, None, B, None])
        app.map.show(cells, ROWS, None, 0.0)
        app.map.focus()
        said = [app.map.describe_cursor()]
        for key in ("right", "l", "right", "right", "h", "up"):
            await pilot.press(key)
            said.append(app.map.describe_cursor())
        assert said[0] == "page 0: owned by r41 (#17)"
        assert said[1] == "page 1: shared, r41 (#17) first of its holders"
        assert said[2].startswith("page 2: cached")
        assert said[3:5] == ["page 3: free", "page 4: owned by r3 (#5) choice 1"]
        assert app.map.cursor == 3  # up from the first row stays
        await pilot.click(app.map, offset=(1, 0))
        assert app.map.cursor == 1
        assert app.map.owner_at_cursor() == A
        await pilot.click(app.map, offset=(3, 1))  # beside the cells
        assert app.map.cursor == 1
        assert app.map.page_at(0, 1) == 4
        assert app.map.page_at(3, 1) is None
        assert app.map.page_at(-1, 0) is None


def test_the_pages_of_a_cell_are_described_together() -> None:
    cells = memory([OWNED, OWNED, SHARED, CACHED, FREE, FREE], [A, B, A, None, None, None])
    line = describe(cells, ROWS, range(6), host=False)
    assert line == (
        "pages 0 to 5: 2 owned, 1 shared, 1 cached, 2 free; 2 held by r41 (#17) and 1 more"
    )
    assert describe(cells, ROWS, range(4, 9), host=False) == "pages 4 to 5: 2 free"
    assert describe(cells, ROWS, range(9, 12), host=False) == "no pages"


def test_names_from_outside_are_shown_as_data() -> None:
    cells = memory([OWNED], [A])
    rows = {A: row(A, "\x1b[2J[bold]x[/]\n" + "y" * 500)}
    line = describe(cells, rows, range(1), host=False)
    assert line.isprintable()
    assert "[bold]x[/]" in line
    assert len(line) < 100
    assert describe(cells, {}, range(1), host=False) == "page 0: owned by #17"


async def test_colours_say_something_else_and_the_title_tells() -> None:
    app = Screen()
    async with app.run_test(size=(4, 1)):
        app.map.show(memory([OWNED, OWNED, SHARED, FREE], [A, (6, 0), A, None]), ROWS, None, 0.0)
        titles, colours = [], []
        for _ in range(4):
            app.map.cycle_colour()
            titles.append(app.map.title)
            shown = [s.color.name for _, s, _ in app.segments(0) if s is not None and s.color]
            colours.append(shown)
        assert [title.partition("· ")[2] for title in titles] == [
            "by owner",
            "by age",
            "by refs",
            "",
        ]
        assert colours[0][0] == colours[0][2] != colours[0][1]
        before = colours[3]
        app.map.palette = choose("bright", ascii=False, no_color=False)
        assert [s.color.name for _, s, _ in app.segments(0) if s and s.color] != before


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 5), (300, 100)])
async def test_any_size_of_terminal_and_memory(size: tuple[int, int]) -> None:
    app = Screen()
    async with app.run_test(size=size) as pilot:
        app.map.focus()
        for pages in (0, 1, 7, 5000, 0):
            app.map.show(memory([OWNED] * pages, [A] * pages), ROWS, None, 0.0)
            app.map.select(A)
            app.map.zoom(1)
            await pilot.press("down", "right", "pageup")
            assert {len(line) for line in app.lines()} == {size[0]}
            assert app.map.describe_cursor()
            await pilot.resize_terminal(max(size[0] - 1, 1), size[1] + 3)
            await pilot.resize_terminal(*size)
