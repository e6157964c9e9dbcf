"""What once went wrong: a restart under a question, keys typed at once, a daemon that hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.widgets import Input

from pagedd.errors import UsageError
from pagedd_tui.dialogs import Commands
from pagedd_tui.feed import SILENT_S
from pagedd_tui.recording import RecordingSource
from tests.tui.fake_source import START, Bench, dashboard, hello, keyframe, row, status

pytestmark = pytest.mark.anyio
NUMBER_1 = (hello("boot-2"), keyframe(1, [1] * 9, [row(1, id="innocent")]))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def answer_after_a_restart(bench: Bench, question: str, *answer: str) -> None:
    await bench.press("enter", question)
    assert len(bench.app.screen_stack) == 2
    await bench.put(*NUMBER_1)
    await bench.press(*answer)
    await bench.settle()


@pytest.mark.parametrize(("question", "answer"), [("x", ["y"]), ("p", ["7", "enter"])])
async def test_a_question_is_not_about_the_request_of_another_daemon(
    question: str, answer: list[str]
) -> None:
    async with dashboard(*START) as bench:
        await answer_after_a_restart(bench, question, *answer)
        assert bench.source.cancelled == []
        assert bench.source.priorities == []
        assert len(bench.app.screen_stack) == 1


async def test_keys_typed_right_after_the_filter_key_are_its_text() -> None:
    async with dashboard(*START) as bench:
        await bench.press("slash", "x", "q")
        assert bench.app.query_one("#filter", Input).value == "xq"
        assert bench.source.cancelled == []


async def test_a_daemon_that_says_nothing_does_not_look_well() -> None:
    async with dashboard(*START, status()) as bench:
        await bench.settle()
        assert "no answer" not in bench.text()
        bench.clock.now += SILENT_S + 2
        await bench.settle()
        assert "no answer from the daemon for" in bench.text()
        await bench.put(status())
        await bench.settle()
        assert "no answer" not in bench.text()


@pytest.mark.parametrize("keys", [["slash"], ["x"], ["p"], ["question_mark"], ["ctrl+p"]])
async def test_ctrl_c_leaves_from_everywhere(keys: list[str]) -> None:
    async with dashboard(*START) as bench:
        await bench.press(*keys, "ctrl+c")
        await bench.settle()
        assert not bench.app.is_running or bench.app._exit


@pytest.mark.parametrize("size", [(120, 40), (80, 4), (5, 3)])
async def test_the_palette_bears_keys_before_it_has_a_list(size: tuple[int, int]) -> None:
    async with dashboard(*START, size=size) as bench:
        bench.app.action_command_palette()
        await bench.press("pageup", "pagedown", "pagedown")
        assert isinstance(bench.app.screen, Commands)
        await bench.press("escape")


async def test_what_is_no_regular_file_is_not_played(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="no regular file"):
        RecordingSource(tmp_path / "pipe")
