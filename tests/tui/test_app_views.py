"""What each view shows of a picture with everything in it."""

from __future__ import annotations

import pytest
from textual.widget import Widget

from pagedd.protocol import Explanation
from pagedd_tui.palette import choose
from tests.tui.fake_source import (
    BASE,
    START,
    WHY,
    Bench,
    FakeSource,
    change,
    dashboard,
    event,
    keyframe,
    row,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def shown(bench: Bench) -> set[str]:
    names = ("device", "host", "requests", "glance", "strip", "history", "events", "detail")
    return {name for name in names if bench.app.query_one(f"#{name}").display}


async def test_the_header_says_which_daemon_and_how_much_it_does() -> None:
    async with dashboard(*START) as bench:
        head = bench.screen()[0]
        for said in (
            *("pagedd ● ready", "smollm2-135m-instruct", "up 2h00", "run 12", "wait 5", "swap 2"),
            *("KV 78%", "412 tok/s", "hits 40%"),
        ):
            assert said in head


async def test_the_header_drops_what_matters_least() -> None:
    async with dashboard(*START, size=(60, 20)) as bench:
        head = bench.screen()[0]
        assert "ready" in head
        assert "run 12" in head
        assert "up 2h" not in head


async def test_the_overview_has_everything() -> None:
    async with dashboard(*START) as bench:
        assert shown(bench) == {"device", "host", "requests", "glance", "strip"}
        text = bench.text()
        assert "device pages 64" in text
        assert "host pages 16" in text
        assert "owned" in text  # the legend
        assert "1 overview" in text


@pytest.mark.parametrize(
    ("key", "panels"),
    [
        ("1", {"device", "host", "requests", "glance", "strip"}),
        ("2", {"device", "host"}),
        ("3", {"requests", "glance"}),
        ("4", {"history"}),
        ("5", {"events"}),
    ],
)
async def test_numbers_are_views(key: str, panels: set[str]) -> None:
    async with dashboard(*START) as bench:
        await bench.press("3", key)
        assert shown(bench) == panels


async def test_the_table_has_all_columns() -> None:
    async with dashboard(*START) as bench:
        head, *rows = bench.app.panels.requests.text
        assert head.split() == [
            *("REQUEST", "STATE▼", "PROMPT→GEN", "PAGES", "PRI", "WAITED", "CACHED"),
        ]
        assert rows[0].split() == ["▶", "r1", "decoding", "128→100", "30p", "0", "-", "25%"]
        assert [line[2:].split()[0] for line in rows] == ["r1", "r2", "r3/1", "r4", "r5"]


async def test_a_wide_table_draws_who_has_how_many_pages() -> None:
    async with dashboard(*START) as bench:
        await bench.press("3")
        head, *rows = bench.app.panels.requests.text
        assert "PAGES BESIDE THE MOST" in head
        bars = [line.count("█") for line in rows]
        assert bars[0] > 30
        assert bars[1] == bars[0] * 4 // 30
        assert bars[3] == 0
        assert len({len(line) for line in (head, *rows)}) == 1


async def test_the_first_that_waits_is_marked() -> None:
    async with dashboard(*START) as bench:
        marked = [line for line in bench.app.panels.requests.text if "»" in line]
        assert len(marked) == 1
        assert "r4" in marked[0]


async def test_the_first_that_waits_is_seen_where_its_place_is_not() -> None:
    rows = [row(handle, pages=handle) for handle in range(10, 60)]
    first = keyframe(1, [0] * 64, [*rows, row(60, "waiting", pages=0)])
    async with dashboard(*START[:2], first) as bench:
        assert "»r60" in bench.app.panels.requests.text[-1]


async def test_waiting_times_go_on_between_frames() -> None:
    async with dashboard(*START) as bench:
        await bench.settle(9.0)
        (line,) = [line for line in bench.app.panels.requests.text if "r4" in line]
        assert line.split()[-2] == "11s"  # 1.2 s when it was sent, and ten since
        (ran,) = [line for line in bench.app.panels.requests.text if "r2" in line]
        assert ran.split()[-2] == "-"


async def test_a_glance_says_who_holds_most() -> None:
    async with dashboard(*START) as bench:
        first = bench.app.panels.glance.text[0]
        assert "r1 holds 30 of 64 pages, 47%" in first


async def test_a_glance_says_why_the_first_waits_as_the_last_event_said() -> None:
    async with dashboard(*START, event("waiting", WHY, 4)) as bench:
        assert "r4 (#4) waits for pages: it needs 8, 2 are free" in bench.text()


async def test_a_glance_says_why_the_first_waits_as_the_daemon_explains() -> None:
    source = FakeSource()
    said = event("waiting", "r5 (#5) waits for slots: it needs 1, 0 free, 1 short.", 5, ahead=0)
    source.explanations[4] = Explanation("r4", "waiting", [said])
    async with dashboard(*START, source=source) as bench:
        await bench.settle()
        assert "r5 (#5) waits for slots" in bench.text()  # it is the first, says the daemon
        marked = next(line for line in bench.app.panels.requests.text if "»" in line)
        assert marked[2:4] == "r5"


async def test_a_glance_says_whether_sharing_works() -> None:
    async with dashboard(*START) as bench:
        assert "works: 40% of prompt tokens came from the cache, 4 pages shared" in bench.text()
        await bench.put(keyframe(2, [0] * 64, prefix_hit_rate=0.0))
        assert "nothing is shared yet" in bench.text()
        assert "nobody waits" in bench.text()
        assert "no request holds a page" in bench.text()


async def test_a_change_reaches_the_map_and_the_table() -> None:
    async with dashboard(*START) as bench:
        before = bench.screen()
        await bench.put(change(2, {63: 1}, [row(6, pages=1)]))
        assert "r6" in bench.text()
        assert bench.screen() != before
        await bench.put(change(3, {63: 0}, gone=[6]))
        assert "r6" not in bench.text()


async def test_events_have_their_reasons() -> None:
    async with dashboard(*START, event("waiting", WHY, 4), event("evicted", "9 made room.")) as b:
        await b.press("5")
        text = b.text()
        assert "waiting" in text
        assert "it needs 8, 2 are free" in text
        assert "9 made room." in text


async def test_the_last_events_are_seen_and_scrolling_up_stays() -> None:
    many = [event("accepted", f"number {i:03}.", i, BASE + i) for i in range(200)]
    async with dashboard(*START, *many) as bench:
        await bench.press("5")
        assert "number 199." in bench.text()
        await bench.press("pageup", "pageup")
        assert "number 199." not in bench.text()
        before = bench.app.panels.events.text
        await bench.put(event("accepted", "number 200.", 200))
        assert bench.app.panels.events.text == before
        await bench.press("slash", *"number", "enter")  # a filter that lets all through
        assert bench.app.panels.events.text == before
        await bench.press("pagedown", "pagedown", "down")
        assert "number 200." in bench.text()
        await bench.press("home")
        assert "number 000." in bench.text()


async def test_an_endless_sentence_is_kept_in_part() -> None:
    async with dashboard(*START, event("failed", "x" * 1_000_000, 4)) as bench:
        await bench.press("5")
        assert "failed" in bench.text()
        assert len(bench.app.feed.events[-1].text) == 4000


async def test_history_goes_on_over_a_gap() -> None:
    async with dashboard(*START) as bench:
        await bench.press("4")
        for frame in range(2, 8):
            await bench.put(change(frame, {}, at=BASE + frame))
        assert "tok/s 412" in bench.text()


async def test_nothing_is_drawn_when_nothing_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard(*START[:2], keyframe(1, [1] * 64, [row(1)])) as bench:
        panels = bench.app.panels
        drawn: list[str] = []

        def note(self: Widget, *regions: object, **_: object) -> None:
            drawn.append(self.id or "")

        for panel in (panels.header, panels.requests, panels.glance, panels.footer, panels.device):
            monkeypatch.setattr(type(panel), "refresh", note)
        for _ in range(20):
            bench.clock.now += 0.2
            bench.app.feed.status_at = bench.clock.now  # it goes on telling that it is well
            bench.app.tick()
        assert drawn == []


async def test_ids_and_reasons_are_data() -> None:
    nasty = "[bold red]x[/] \x1b[2J\n\x9b31m\u202etxt"
    rows = [row(1, id=nasty), row(4, "waiting", id=nasty)]
    bad = event("waiting", f"{nasty} waits", 4)
    async with dashboard(START[0], START[1], keyframe(1, [1] * 9, rows), bad) as bench:
        for key in ("1", "3", "5", "1", "enter"):
            await bench.press(key)
            text = bench.text()
            assert "[bold red]x[/]" in text
            assert not any(control in text for control in "\x1b\x9b\r\x07")
            assert "\u202e" not in text


async def test_ascii_alone_where_nothing_else_can_be_shown() -> None:
    palette = choose(None, ascii=True, no_color=False)
    rows = [row(1, id="日本→…"), row(4, "waiting")]
    async with dashboard(*START[:2], keyframe(1, [1, 2, 3], rows), palette=palette) as bench:
        for key in ("1", "2", "3", "5", "1", "question_mark", "escape", "enter"):
            await bench.press(key)
            assert bench.text().isascii(), key


async def test_no_colour_means_none() -> None:
    palette = choose(None, ascii=False, no_color=True)
    async with dashboard(*START, palette=palette) as bench:
        assert "NoColor" in {type(each).__name__ for each in bench.app.get_line_filters()}
        assert "█" in bench.text()


@pytest.mark.parametrize(
    ("title", "tag"), [("live", "LIVE"), ("replay a b", "REPLAY"), ("demo", "DEMO")]
)
async def test_the_footer_says_what_plays(title: str, tag: str) -> None:
    async with dashboard(*START, source=FakeSource(title=title)) as bench:
        assert bench.app.panels.footer.text[0].startswith(f" {tag} ")
        await bench.press("space")
        assert bench.app.panels.footer.text[0].startswith(" FROZEN ")
