"""Keys that do something outside the dashboard, or may not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from pagedd.errors import PageddError
from pagedd_tui import keys
from pagedd_tui.dialogs import AskPriority, Confirm
from pagedd_tui.model import Model
from pagedd_tui.palette import Palette
from pagedd_tui.plain import Line
from pagedd_tui.story import Subject, story_lines
from tests.tui.fake_source import START, FakeSource, change, dashboard, row

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_e_writes_the_picture_as_json_and_svg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # export
    monkeypatch.chdir(tmp_path)
    async with dashboard(*START) as bench:
        await bench.press("e")
        await bench.press("e")
        said = " ".join(each.message for each in bench.app._notifications)
    (first, second) = sorted(tmp_path.glob("*.json"))
    assert f"{first.with_suffix('')}.json and .svg" in said
    assert first.stat().st_mode & 0o777 == 0o600
    assert first.with_suffix(".svg").read_text(encoding="utf-8").startswith("<svg")
    assert second.exists()
    assert "r4" in json.dumps(json.loads(first.read_text(encoding="utf-8")))


async def test_e_says_when_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    async with dashboard(*START) as bench:
        await bench.press("e")
        said = " ".join(each.message for each in bench.app._notifications)
    assert "could not be written here: No such file or directory" in said


async def test_x_cancels_when_it_is_confirmed() -> None:
    # cancel
    async with dashboard(*START) as bench:
        await bench.press("down", "x")
        assert isinstance(bench.app.screen, Confirm)
        assert "End r2 (#2)?" in bench.text()
        await bench.press("n")
        assert bench.source.cancelled == []
        await bench.press("x", "enter")  # enter alone ends nothing
        assert bench.source.cancelled == []
        await bench.press("x", "y")
        assert bench.source.cancelled == [2]
        assert any("is cancelled" in each.message for each in bench.app._notifications)


async def test_p_gives_another_priority() -> None:
    # priority
    async with dashboard(*START) as bench:
        await bench.press("down", "p")
        assert isinstance(bench.app.screen, AskPriority)
        await bench.press("backspace", "minus", "3", "enter")
        assert bench.source.priorities == [(2, -3)]
        await bench.press("p", "escape")
        await bench.press("p", "backspace", "enter")
        await bench.press("p", *"99999999999999", "enter")
        assert bench.source.priorities == [(2, -3), (2, 2**31 - 1)]


async def test_a_refusal_is_shown() -> None:
    async with dashboard(*START) as bench:
        bench.source.refusal = PageddError("[red]no\x1b such request")
        await bench.press("x", "y")
        assert any("[red]no" in each.message for each in bench.app._notifications)
        assert not any("\x1b" in each.message for each in bench.app._notifications)


@pytest.mark.parametrize("readonly", [True, False])
async def test_nothing_is_commanded_where_nothing_may_be(readonly: bool) -> None:
    source = FakeSource(can_command=readonly)  # read-only by wish, or by what is looked at
    async with dashboard(*START, source=source, readonly=readonly) as bench:
        await bench.press("x")
        await bench.press("p")
        assert len(bench.app.screen_stack) == 1
        assert {"key x", "key p"}.isdisjoint(
            each.help for each in bench.app.get_system_commands(bench.app.screen)
        )


async def test_q_quits() -> None:
    # quit
    async with dashboard(*START) as bench:
        await bench.pilot.press("q")
        await bench.pilot.pause()
        assert bench.app.return_code == 0


async def test_the_command_palette_has_every_key() -> None:
    # palette
    async with dashboard(*START) as bench:
        commands = {each.help for each in bench.app.get_system_commands(bench.app.screen)}
        assert {"key space", "key /", "key x", "key e", "key q"} <= commands
        await bench.press("ctrl+p")
        await bench.pilot.press(*"freeze")
        await bench.pilot.pause(0.3)
        await bench.pilot.press("enter")
        await bench.pilot.pause()
        assert not bench.app.ring.live


async def test_the_command_palette_can_be_asked_for_while_it_goes() -> None:
    async with dashboard(*START) as bench:
        bench.app.action_command_palette()
        await bench.pilot.pause()
        bench.app.screen.dismiss()
        bench.app.action_command_palette()
        await bench.pilot.pause()
        assert bench.app.is_running


async def test_a_request_is_told_in_lines_as_wide_as_its_panel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widths: list[int] = []

    def told(subject: Subject, model: Model, palette: Palette, width: int) -> list[Line]:
        widths.append(width)
        return story_lines(subject, model, palette, width)

    monkeypatch.setattr("pagedd_tui.painter.story_lines", told)
    async with dashboard(*START) as bench:
        bench.app.painter.yield_to_others(busy=True)
        await bench.pilot.press("enter")
        await bench.pilot.pause()
        assert widths
        assert set(widths) == {bench.app.panels.detail.size.width}


async def test_keys_can_be_others() -> None:
    async with dashboard(*START, key_map={"freeze": "z", "nonsense": "y"}) as bench:
        assert "z freeze" in bench.screen()[-1]
        await bench.press("z")
        assert not bench.app.ring.live
        assert "z: live" in bench.screen()[1]
        await bench.press("space")
        assert not bench.app.ring.live


async def test_any_keys_in_any_order_on_any_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = random.Random(5)
    known = [name for key in keys.KEYS for name in key.keys.split(",") if name not in ("", "q")]
    known += ["up", "down", "left", "right", "pageup", "pagedown", "home", "y", "n", "a"]
    async with dashboard(*START) as bench:
        for i in range(60):
            bench.source.put(change(i + 2, {i % 64: i % 4}, [row(i, pages=i)], gone=[i - 9]))
            bench.app.tick()
            await bench.pilot.press(draw.choice(known))
            if i % 9 == 0:
                await bench.pilot.resize_terminal(draw.randint(1, 150), draw.randint(1, 50))
        assert bench.app.is_running
