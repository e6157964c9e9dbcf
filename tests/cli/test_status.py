"""``pagedd status``: the page bar, the lines, JSON, and watching."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd import protocol
from pagedd.cli.status_view import ASCII, BAR_CELLS, RICH, bar, duration, lines_of
from tests.cli.fake_daemon import FakeDaemon, status
from tests.cli.terminal import PAGEDD, on_terminal, run

COUNT = st.integers(0, 10_000)


@given(owned=COUNT, shared=COUNT, cached=COUNT, free=COUNT)
def test_the_bar_is_full_and_shows_whatever_exists(
    owned: int, shared: int, cached: int, free: int
) -> None:
    total = owned + shared + cached + free
    if not total:
        return
    drawn = bar(protocol.PageCounts(total, free, cached, owned, shared), RICH)
    assert len(drawn) == BAR_CELLS
    for count, glyph in ((owned, RICH.owned), (shared, RICH.shared), (cached, RICH.cached)):
        assert (glyph in drawn) == (count > 0)
    if not free:
        # rounding leaves at most a cell for each kind
        assert drawn.count(RICH.free) <= 3


def test_the_lines_say_what_a_person_asks() -> None:
    text = "\n".join(lines_of(status(), io.TextIOWrapper(io.BytesIO(), "utf-8")))
    for part in (
        "ready",
        "fake-model (cpu, bfloat16)",
        "up 1 h 2 min",
        "pid 4242",
        "3 running · 2 waiting",
        "40% in use",
        "30 owned · 10 shared · 20 cached · 40 free of 100 × 16 tokens",
        "123.4 tokens/s",
        "25% from the prefix cache",
        "1 preemptions",
        "plan 0.10 · execute 10.00",
        "unix:/run/fake.sock",
    ):
        assert part in text


def test_a_narrow_terminal_cuts_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    wide = " ".join(" ".join(lines_of(status(), io.TextIOWrapper(io.BytesIO(), "utf-8"))).split())
    for columns in (100, 80, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines_of(status(), Terminal())]
        assert max(map(len, lines)) <= columns
        shown = " ".join(" ".join(lines[1:]).split())
        assert wide.endswith(shown)


def test_an_encoding_without_blocks_gets_ascii() -> None:
    text = "\n".join(lines_of(status(), io.TextIOWrapper(io.BytesIO(), "ascii")))
    assert text.isascii()
    assert ASCII.owned * 12 in text


def test_a_daemon_that_is_loading_has_no_pages_yet() -> None:
    loading = status(
        state="loading", pages=protocol.PageCounts(0, 0, 0, 0, 0), step_ms={}, reason="weights"
    )
    text = "\n".join(lines_of(loading, io.TextIOWrapper(io.BytesIO(), "utf-8")))
    assert "loading" in text
    assert "weights" in text
    assert "pages" not in text


def test_what_the_daemon_says_is_data() -> None:
    hostile = status(model="m\x1b[2J", endpoints=["unix:/\x07x"], reason="a\nb", advice="\x9b1m")
    for line in lines_of(hostile, io.TextIOWrapper(io.BytesIO(), "utf-8")):
        assert line.isprintable()


def test_durations() -> None:
    shown = [duration(s) for s in (0.4, 59, 60, 3599, 3600, 86399, 90000)]
    assert shown[:3] == ["0 s", "59 s", "1 min 0 s"]
    assert shown[3:] == ["59 min 59 s", "1 h 0 min", "23 h 59 min", "1 d 1 h"]


def test_json_is_the_frame(env: dict[str, str], daemon: FakeDaemon) -> None:
    done = run("status", "--json", env=env)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["pages"] == {"total": 100, "free": 40, "cached": 20, "owned": 30, "shared": 10}
    assert done.stdout.count(b"\n") == 1


def test_watching_as_json_is_a_line_each_time_until_ctrl_c(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    command = [*PAGEDD, "status", "--watch", "--json", "--interval", "0.05"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert json.loads(process.stdout.readline())["state"] == "ready"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_watching_ends_with_3_when_the_daemon_goes(env: dict[str, str], daemon: FakeDaemon) -> None:
    command = [*PAGEDD, "status", "--watch", "--interval", "0.05"]
    answers = iter([status(), status()])

    def now() -> protocol.Status:
        found = next(answers, None)
        if found is None:
            raise ConnectionResetError
        return found

    daemon.now = now
    done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stdout.count(b"fake-model") == 2
    assert b"\x1b" not in done.stdout
    assert done.stderr.count(b"\n") == 1


def test_a_terminal_is_redrawn_and_a_dumb_one_is_not(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    arguments = ("status", "--watch", "--interval", "0.05")
    for term, escapes in (("xterm-256color", True), ("dumb", False)):
        with on_terminal(*arguments, env={**env, "TERM": term}) as screen:
            screen.expect("fake-model")
            screen.expect("fake-model")
            screen.type("\x03")
            assert screen.wait() == 130
        assert (b"\x1b[" in screen.output) is escapes
