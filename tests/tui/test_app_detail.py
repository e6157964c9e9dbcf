"""All about one request: why it waits, its time, its pages, who shares them, its text, its end."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pagedd.protocol import Event, Explanation, Holder, PageTable, Record, State
from pagedd_tui.plain import words
from pagedd_tui.timeline import spans, timeline_lines
from tests.tui.fake_source import (
    BASE,
    START,
    Bench,
    FakeSource,
    change,
    dashboard,
    event,
    hello,
    row,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def record(kind: str, text: str, handle: int, at: float, **more: Any) -> Record:
    return Record(at=at, kind=kind, text=text, handle=handle, request=f"r{handle}", **more)


WAITS = Explanation(
    "r4",
    "waiting",
    [
        record("accepted", "r4 (#4) joined the queue.", 4, BASE - 1.1),
        record(
            "waiting",
            "r4 (#4) waits for pages: it needs 8, 2 are free, 6 short.",
            4,
            BASE,
            holders=[Holder("r1", 1, 0, 0, 30, 26), Holder("[b]r2", 2, 0, 1, 4, 0)],
            others=3,
        ),
    ],
    eta_ms=(2000.0, 9400.0),
)
RUNS = Explanation(
    "r2",
    "decoding",
    [
        record("accepted", "r2 (#2) joined the queue.", 2, BASE - 10),
        record("admitted", "r2 (#2) was admitted.", 2, BASE - 8),
        record("running", "r2 (#2) is decoding: 54 tokens generated, on 4 pages.", 2, BASE),
    ],
    tables=[
        PageTable(0, [30, 31, 40, 41], [3, 3, 1, 1], [], 0),
        PageTable(1, [30, 31, 42], [3, 3, 1], [7, 9], 3),
    ],
    text=["the first \x1b[2Jchoice", "[red]the second[/]"],
)


def detail(bench: Bench) -> str:
    return "\n".join(words(each) for each in bench.app.panels.detail.all_lines)


def knowing(handle: int, said: Explanation) -> FakeSource:
    source = FakeSource()
    source.explanations[handle] = said
    return source


async def test_why_it_waits_and_who_has_what_it_needs() -> None:
    source = knowing(4, WAITS)
    async with dashboard(*START, source=source) as bench:
        await bench.press("down", "down", "down", "enter")
        await bench.settle()
        said = detail(bench)
        assert "r4 (#4)  waiting  begins in 2.0s to 9.4s" in said
        assert "why it waits" in said
        assert "it needs 8, 2 are free, 6 short." in said
        assert "holds 30 pages, 26 alone, priority 0" in said
        assert "[b]r2 (#2)" in said
        assert "and 3 more" in said
        assert "░ queued" in said
        assert "accepted" in said


async def test_its_page_table_marks_what_is_shared() -> None:
    source = knowing(2, RUNS)
    async with dashboard(*START, source=source) as bench:
        await bench.press("down", "enter")
        await bench.settle()
        said = detail(bench)
        assert "choice 0: 4 pages of the device, 2 of them shared" in said
        assert "0→▓30×3" in said
        assert "2→█40" in said
        assert "choice 1: 3 pages of the device, 2 of them shared; 2 pages of host memory" in said
        assert "4→░9" in said  # the fifth page of the sequence lies in host page 9
        assert "how it runs" in said


async def test_who_shares_its_pages_is_named() -> None:
    source = knowing(2, RUNS)
    async with dashboard(*START, source=source) as bench:
        await bench.put(change_owner(30))
        await bench.press("down", "enter")
        await bench.settle()
        assert "2 pages are held by up to 3 sequences, its own 2 choices among them" in detail(
            bench
        )
        assert "with r1 (1 pages)" in detail(bench)


def change_owner(page: int) -> State:
    """Now r1 is the first of the holders of this page."""
    return msgspec.structs.replace(change(2, {page: 2}, [row(1, pages=30)]), owners=[1])


async def test_its_text_is_data() -> None:
    source = knowing(2, RUNS)
    async with dashboard(*START, source=source) as bench:
        await bench.press("down", "enter")
        await bench.settle()
        said = detail(bench)
        assert "[red]the second[/]" in said
        assert "the first \ufffd[2Jchoice" in said
        assert "\x1b" not in bench.text()


async def test_it_is_asked_about_once_a_second() -> None:
    source = knowing(2, RUNS)
    async with dashboard(*START, source=source) as bench:
        await bench.press("down", "enter")
        before = source.asked.count(2)
        for _ in range(40):
            bench.clock.now += 0.1
            bench.app.tick()
            await bench.pilot.pause()
        assert source.asked.count(2) - before in (4, 5)
        await bench.press("escape")
        await bench.settle()
        asked = source.asked.count(2)
        await bench.settle(3.0)
        assert source.asked.count(2) == asked


async def test_a_request_that_ends_keeps_its_ledger() -> None:
    source = knowing(2, RUNS)
    async with dashboard(*START, source=source) as bench:
        await bench.press("down", "enter")
        ledger = "r2 (#2) finished: queued 2.0 s, decode 9.0 s, at most 4 pages."
        end = record("finished", ledger, 2, BASE + 1)
        source.explanations[2] = Explanation("r2", "ended", [*RUNS.reasons[:2], end])
        await bench.put(change(2, {}, gone=[2]), event("finished", ledger, 2, BASE + 1))
        said = detail(bench)
        assert "r2 (#2)  ended" in said
        assert "ledger" in said
        assert said.count("at most 4 pages.") == 2  # once in how it came there
        assert "[red]the second[/]" in said
        assert "page table" not in said


async def test_one_that_nobody_remembers_is_told() -> None:
    async with dashboard(*START) as bench:
        await bench.press("enter")
        await bench.settle()
        assert "no request #1 is open" in detail(bench)
        assert "r1 (#1)  decoding" in detail(bench)


async def test_a_daemon_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedd_tui.inquiry._PATIENCE_S", 0.01)
    source = FakeSource()

    async def explain(handle: int) -> Explanation:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(source, "explain", explain)
    async with dashboard(*START, source=source) as bench:
        await bench.press("enter")
        for _ in range(100):
            await bench.settle()
            if "does not answer" in detail(bench):
                break
        assert "the daemon does not answer" in detail(bench)


async def test_in_the_past_there_is_what_was_recorded() -> None:
    source = knowing(2, RUNS)
    async with dashboard(*START, source=source) as bench:
        await bench.press("down", "enter", "space")
        said = detail(bench)
        assert "known for the present alone" in said
        assert "r2 (#2)  decoding" in said


async def test_another_daemon_knows_nothing_of_it() -> None:
    source = knowing(2, RUNS)
    async with dashboard(*START, source=source) as bench:
        await bench.press("down", "enter")
        source.explanations.clear()
        await bench.put(hello("boot-2"))
        assert bench.app.looking.subject is None
        assert not bench.app.panels.detail.display  # its request #2 is another


async def test_a_huge_table_is_cut() -> None:
    many = list(range(10_000))
    table = PageTable(0, many, [1] * 10_000, [], 0)
    said = Explanation("r2", "decoding", [], tables=[table], text=["x" * 10**6])
    source = knowing(2, said)
    async with dashboard(*START, source=source) as bench:
        await bench.press("down", "enter")
        await bench.settle()
        assert "and 8000 more" in detail(bench)
        await bench.press("pagedown", "pagedown", "j", "k", "home")
        assert "r2 (#2)" in bench.text()


def test_a_timeline_is_made_of_records_and_of_what_was_seen() -> None:
    records = [
        event("accepted", "", 1, 10.0),
        event("admitted", "", 1, 12.0),
        event("preempted", "", 1, 20.0),
        event("finished", "", 1, 25.0),
    ]
    seen = [(13.0, "decoding"), (20.0, "swapped"), (22.0, "decoding")]
    assert spans(records, seen, 30.0) == [
        (10.0, 12.0, "queued"),
        (12.0, 13.0, "prefill"),
        (13.0, 20.0, "decode"),
        (20.0, 22.0, "preempted"),
        (22.0, 25.0, "decode"),
    ]


def test_a_timeline_is_drawn_to_scale() -> None:
    found = [(0.0, 2.0, "queued"), (2.0, 4.0, "prefill"), (4.0, 8.0, "decode"), (8.0, 10.0, "new")]
    bar, said = timeline_lines(found, 20, False)
    assert words(bar) == "░░░░▒▒▒▒████████????"
    assert words(said).split() == [
        *("░", "queued", "2.0s", "▒", "prefill", "2.0s"),
        *("█", "decode", "4.0s", "?", "new", "2.0s"),
    ]
    bar, _ = timeline_lines(found, 10, True)
    assert words(bar).isascii()
    assert timeline_lines([], 10, False)
    assert len(words(timeline_lines([(1.0, 1.0, "queued")], 1, False)[0])) == 8


def test_a_timeline_without_records_or_with_too_many() -> None:
    assert spans([], [], 1.0) == []
    late: list[Event] = [event("finished", "", 1, 5.0)]
    assert spans(late, [(1.0, "decoding")], 9.0) == [(1.0, 5.0, "decode")]
