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
from pagedd.cli.status_view import ASCII, BAR_CELLS, RICH, amount, bar, lines_of
from tests.cli.fake_daemon import FakeDaemon, status
from tests.cli.terminal import PAGEDD, on_terminal, run, running

COUNT = st.integers(0, 10_000)


@given(owned=COUNT, shared=COUNT, cached=COUNT, free=COUNT)
def test_the_bar_is_full_and_shows_whatever_exists(
    owned: int, shared: int, cached: int, free: int
) -> None:
    total = owned + shared + cached + free
    if not total:
        return
    held = ((owned, RICH.owned), (shared, RICH.shared), (cached, RICH.cached))
    drawn = bar(held, total, RICH.free)
    assert len(drawn) == BAR_CELLS
    for count, glyph in held:
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
        "3 running · 2 waiting · 0 swapped",
        "41% in use",
        "30 owned · 10 shared · 20 cached · 40 free of 100 × 16 tokens",
        "123.4 tokens/s",
        "25% from the prefix cache",
        "plan 0.10 · execute 10.00",
        "unix:/run/fake.sock",
        "preempted 0 by swap · 1 by recompute · 12 tokens recomputed · 0 B swapped",
    ):
        assert part in text
    assert "host" not in text
    calm = status(preemptions=protocol.PreemptionCounts(0, 0))
    assert "preempted" not in "\n".join(lines_of(calm, io.StringIO()))


SHORT = {
    "requests": protocol.RequestCounts(12, 5, 2, 10, 1, 0),
    "host_pages": protocol.HostPageCounts(100, 87, 9, 4),
    "host_cache_usage": 0.13,
    "preemptions": protocol.PreemptionCounts(12, 3),
    "recomputed_tokens": 1204,
    "swapped_bytes": 34 << 20,
    "host_hits": 20,
    "advice": "give it more memory",
}


def test_short_memory_shows_host_pages_and_preemptions() -> None:
    lines = lines_of(status(**SHORT), io.TextIOWrapper(io.BytesIO(), "utf-8"))
    assert lines[1] == "advice    give it more memory"
    assert "12 running · 5 waiting · 2 swapped" in lines[2]
    assert lines[4] == (
        "host      " + "░" * 4 + "▒" * 2 + "·" * 34 + " 13% in use   9 swapped · 4 cached · "
        "87 free of 100"
    )
    assert "25% from the prefix cache (20 tokens of it in host memory)" in lines[5]
    assert lines[6] == (
        "preempted 12 by swap · 3 by recompute · 1,204 tokens recomputed · 34.0 MiB swapped"
    )


def test_advice_stands_out_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    lines = lines_of(status(**SHORT), Terminal())
    assert lines[1].startswith("\x1b[1;33madvice")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_amounts() -> None:
    shown = [amount(size) for size in (0, 1023, 1024, 34 << 20, 3 << 30, 5 << 50)]
    assert shown == ["0 B", "1023 B", "1.0 KiB", "34.0 MiB", "3.0 GiB", "5120.0 TiB"]


def test_a_narrow_terminal_cuts_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    full = status(**SHORT)
    wide = " ".join(" ".join(lines_of(full, io.TextIOWrapper(io.BytesIO(), "utf-8"))).split())
    for columns in (100, 80, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines_of(full, Terminal())]
        assert max(map(len, lines)) <= columns
        shown = " ".join(" ".join(lines[1:]).split())
        assert wide.endswith(shown)


def test_an_encoding_without_blocks_gets_ascii() -> None:
    text = "\n".join(lines_of(status(**SHORT), io.TextIOWrapper(io.BytesIO(), "ascii")))
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


def test_watching_ends_when_who_reads_leaves(env: dict[str, str], daemon: FakeDaemon) -> None:
    with running("status", "--watch", "--json", "--interval", "3600", env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0


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
