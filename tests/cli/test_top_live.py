"""``pagedd top`` on a terminal, beside a real daemon that works."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio

from pagedd.protocol import Event, Hello, State
from pagedd_tui.model import Model
from pagedd_tui.pace import Pace
from pagedd_tui.recording import RecordingSource
from pagedd_tui.source import Ended, Item
from tests.cli.terminal import PATIENCE_S, environment, on_terminal
from tests.real_daemon import Stream, ask, wire
from tests.tiny_daemons import NUM_PAGES, Requests, Start, start, tight, victims

__all__ = ["start"]  # a fixture


def serve(url: str, requests: Requests, enough: threading.Event) -> dict[str, Stream]:
    """Again and again until ``enough``: on a busy machine few frames are drawn."""
    with wire(url) as client:
        served = ask(client, requests)
        while not enough.is_set():
            ask(client, requests)
        return served


async def no_time(seconds: float) -> None:
    await anyio.sleep(0)


async def played(feed: Path) -> list[Item]:
    return [item async for item in RecordingSource(feed, Pace(sleep=no_time)).items()]


def folded(items: list[Item]) -> Model:
    model = Model()
    for item in items:
        if isinstance(item, State):
            model.take(item)
    return model


def begun_anew(pid: int) -> bool:
    """Whether it began again with its memory in huge pages, where there are such."""
    if sys.platform != "linux":
        return True
    given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return b"GLIBC_TUNABLES=glibc.malloc.hugetlb=1" in given and b"PYTHONMALLOC=malloc" in given


def test_requests_are_seen_and_recorded(start: Start, home: Path) -> None:
    url, feed = tight(start), home / "live.feed"
    env = environment(home, PAGEDD_URL=url, TERM="xterm-256color", COLUMNS="120", LINES="40")
    requests, enough = victims(120), threading.Event()
    with (
        on_terminal("top", "--record", str(feed), "--hz", "30", env=env) as screen,
        ThreadPoolExecutor(1) as pool,
    ):
        screen.expect(f"device pages {NUM_PAGES}")
        assert begun_anew(screen.process.pid)
        served = pool.submit(serve, url, requests, enough)
        try:
            screen.expect("greedy")
        finally:
            enough.set()
        while not served.done():
            screen.expect("\x1b[")  # a terminal that is not read from would hold it up
        assert set(served.result()) == set(requests)
        deadline = time.monotonic() + PATIENCE_S
        while folded(anyio.run(played, feed)).rows:
            assert time.monotonic() < deadline
            screen.expect("\x1b[")  # the header tells the time
        screen.type("q")
        screen.expect("\x1b[?1049l")
        assert screen.wait() == 0
    items = anyio.run(played, feed)
    assert isinstance(items[0], Hello)
    assert items[-1] == Ended()
    model, seen = Model(), set[str]()
    for item in items:
        if isinstance(item, State):
            model.take(item)
            seen |= {row.id for row in model.rows.values()}
    assert seen >= set(requests)
    assert model.pages.counts[1] == model.pages.counts[2] == 0
    kinds = {item.kind for item in items if isinstance(item, Event)}
    assert kinds >= {"accepted", "admitted", "preempted", "finished"}
