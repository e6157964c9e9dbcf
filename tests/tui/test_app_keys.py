"""Every key does what the help says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from pagedd_tui import keys
from pagedd_tui.help import Help
from tests.tui.fake_source import START, Bench, change, dashboard, keyframe, row

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def order(bench: Bench) -> list[str]:
    return [line[2:].split()[0] for line in bench.app.panels.requests.text[1:]]


def chosen(bench: Bench) -> str:
    return next(line for line in bench.app.panels.requests.text if "▶" in line)[2:].split()[0]


async def frozen_at(bench: Bench, frames: int) -> None:
    """So many frames more, a second apart, then frozen at the last but the newest."""
    for frame in range(2, 2 + frames):
        bench.clock.now += 1.0
        await bench.put(change(frame, {}, [row(100 + frame, pages=1)]))


async def test_every_key_has_a_test() -> None:
    files = Path(__file__).parent.glob("test_app_*.py")
    tested = "".join(file.read_text(encoding="utf-8") for file in files)
    for key in keys.KEYS:
        assert f"# {key.id}\n" in tested, f"no test says that it is of {key.id}"


async def test_help_explains_the_pages_and_every_key() -> None:
    # help
    async with dashboard(*START, size=(120, 40)) as bench:
        await bench.press("question_mark")
        panel = bench.app.screen.query_one("#help")
        assert isinstance(bench.app.screen, Help)
        seen = list(panel.text)
        for _ in range(8):
            await bench.press("pagedown")
            seen += panel.text
        said = "\n".join(seen)
        assert "shared: several requests hold it" in said
        for key in keys.KEYS:
            assert f"{key.shown} " in said
        await bench.press("escape")
        assert not isinstance(bench.app.screen, Help)
        await bench.press("f1", "j", "k", "q")
        assert not isinstance(bench.app.screen, Help)
        assert bench.app.is_running


async def test_slash_filters_while_it_is_typed() -> None:
    # filter
    # back
    async with dashboard(*START) as bench:
        await bench.press("slash", *"state", "colon", *"wait")
        assert order(bench) == ["r4"]
        await bench.press("enter")
        assert not bench.app.query_one("#filter", Input).display
        assert "/state:wait" in bench.text()
        await bench.press("s")  # a key again, not a letter of the filter
        assert bench.app.panels.requests.sort == "id"
        await bench.press("escape")
        assert len(order(bench)) == 5


async def test_escape_while_typing_drops_the_filter() -> None:
    async with dashboard(*START) as bench:
        await bench.press("slash", "r", "5")
        assert order(bench) == ["r5"]
        await bench.press("escape")
        assert len(order(bench)) == 5
        assert bench.app.focused is bench.app.panels.requests


async def test_a_filter_that_is_not_understood_is_explained() -> None:
    async with dashboard(*START) as bench:
        await bench.press("slash", *"wher", "colon", "x", "enter")
        assert any("no field wher" in each.message for each in bench.app._notifications)
        assert len(order(bench)) == 5


async def test_s_sorts_by_the_next_column_and_r_turns() -> None:
    # sort
    # reverse
    async with dashboard(*START) as bench:
        await bench.press("s", "s", "s")
        assert bench.app.panels.requests.sort == "pages"
        assert order(bench) == ["r1", "r5", "r2", "r3/1", "r4"]
        assert "by pages" in bench.text()
        await bench.press("r")
        assert order(bench)[0] == "r4"
        assert "reversed" in bench.text()
        await bench.press(*"ssss")
        assert bench.app.panels.requests.sort == "state"


async def test_a_click_on_a_title_sorts_by_it() -> None:
    async with dashboard(*START) as bench:
        head = bench.app.panels.requests.text[0]
        place = (head.index("PAGES") + 3, 1)
        await bench.pilot.click("#requests", offset=place)
        await bench.settle()
        assert bench.app.panels.requests.sort == "pages"
        await bench.pilot.click("#requests", offset=place)
        await bench.settle()
        assert bench.app.panels.requests.reverse


async def test_arrows_and_letters_choose_a_request() -> None:
    # move
    # page
    async with dashboard(*START) as bench:
        assert chosen(bench) == "r1"
        await bench.press("down", "j")
        assert chosen(bench) == "r3/1"
        await bench.press("k")
        assert chosen(bench) == "r2"
        await bench.press("pagedown")
        assert chosen(bench) == "r5"
        await bench.press("home")
        assert chosen(bench) == "r1"


async def test_the_chosen_one_stays_chosen_and_its_neighbour_follows_when_it_goes() -> None:
    async with dashboard(*START) as bench:
        await bench.press("down")
        await bench.press("s", "r")
        assert chosen(bench) == "r2"
        await bench.press("s", "s", "s", "s", "s", "s")
        await bench.put(change(2, {}, gone=[2]))
        assert chosen(bench) == "r3/1"


async def test_a_click_chooses_and_two_open() -> None:
    async with dashboard(*START) as bench:
        await bench.pilot.click("#requests", offset=(5, 5))
        await bench.settle()
        assert chosen(bench) == "r4"
        await bench.pilot.click("#requests", offset=(5, 5), times=2)
        await bench.settle()
        assert bench.app.looking.subject == 4


async def test_enter_opens_and_escape_leaves() -> None:
    # open
    async with dashboard(*START) as bench:
        await bench.press("down", "enter")
        assert bench.app.looking.subject == 2
        assert "r2 (#2)" in bench.text()
        await bench.press("escape")
        assert bench.app.looking.subject is None


async def test_space_freezes_while_frames_are_recorded() -> None:
    # freeze
    # live
    async with dashboard(*START) as bench:
        await bench.press("space")
        assert "FROZEN" in bench.screen()[1]
        await bench.put(change(2, {}, [row(9, pages=1)]))
        assert "r9" not in bench.text()
        await bench.press("down")  # one can still move
        assert chosen(bench) == "r2"
        await bench.press("space")
        assert "FROZEN" not in bench.screen()[1]
        assert "r9" in bench.text()
        await bench.press("space", "end")
        assert bench.app.ring.live


async def test_brackets_step_a_frame() -> None:
    # step_back
    # step_on
    async with dashboard(*START) as bench:
        await frozen_at(bench, 3)
        assert "r104" in bench.text()
        await bench.press("left_square_bracket")
        assert "r103" in bench.text()
        assert "r104" not in bench.text()
        assert "frame 3" in bench.screen()[1]
        await bench.press("left_square_bracket")
        assert "r103" not in bench.text()
        await bench.press("right_square_bracket")
        assert "r103" in bench.text()


async def test_comma_and_full_stop_go_ten_seconds() -> None:
    # seek_back
    # seek_on
    async with dashboard(*START) as bench:
        await frozen_at(bench, 30)
        await bench.press("comma")
        first = bench.app.painter.model().frame
        assert first < 31
        await bench.press("comma")
        assert bench.app.painter.model().frame < first
        second = bench.app.painter.model().frame
        await bench.press("full_stop")
        assert second < bench.app.painter.model().frame <= first


async def test_c_colours_pages_by_something_else() -> None:
    # colour
    async with dashboard(*START) as bench:
        ways = []
        for _ in range(4):
            ways.append(bench.app.panels.device.colour_by)
            await bench.press("c")
        assert ways == ["state", "owner", "age", "refs"]
        assert bench.app.panels.host.colour_by == "state"


async def test_plus_and_minus_zoom_the_map() -> None:
    # zoom_in
    # zoom_out
    async with dashboard(*START, size=(60, 15)) as bench:
        many = keyframe(5, [0] * 9000)
        await bench.put(many)
        await bench.press("2")
        before = bench.app.panels.device.pages_per_cell
        assert before > 1
        await bench.press("plus")
        assert bench.app.panels.device.pages_per_cell < before
        await bench.press("minus")
        assert bench.app.panels.device.pages_per_cell == before


async def test_m_shows_one_panel_alone() -> None:
    # maximise
    async with dashboard(*START) as bench:
        await bench.press("m")
        assert not bench.app.panels.device.display
        assert bench.app.panels.requests.display
        await bench.press("m")
        assert bench.app.panels.device.display
        await bench.press("m", "escape")
        assert bench.app.panels.device.display


async def test_tab_goes_to_the_next_panel() -> None:
    # next_panel
    # last_panel
    async with dashboard(*START) as bench:
        assert bench.app.focused is bench.app.panels.requests
        await bench.press("tab")
        assert bench.app.focused is bench.app.panels.device
        await bench.press("tab")
        assert bench.app.focused is bench.app.panels.host
        await bench.press("shift+tab", "shift+tab")
        assert bench.app.focused is bench.app.panels.requests


async def test_numbers_change_the_view() -> None:
    # view_1
    # view_2
    # view_3
    # view_4
    # view_5
    async with dashboard(*START) as bench:
        for number in (5, 4, 3, 2, 1):
            await bench.press(str(number))
            assert bench.app.looking.view == number


async def test_what_is_under_the_cursor_of_a_map_is_said() -> None:
    async with dashboard(*START) as bench:
        await bench.press("tab", "right", "l", "down")
        assert "page" in str(bench.app.panels.device.border_subtitle)
        await bench.press("enter")
        assert bench.app.looking.subject == 1  # who holds that page


async def test_t_takes_the_next_palette() -> None:
    # theme
    async with dashboard(*START) as bench:
        first = bench.app.looking.palette.name
        names = set()
        for _ in range(4):
            await bench.press("t")
            names.add(bench.app.looking.palette.name)
        assert len(names) == 4
        assert bench.app.looking.palette.name == first
