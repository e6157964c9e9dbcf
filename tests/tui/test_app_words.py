"""What is made of text, times, filters and columns before it is drawn. No terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pagedd_tui.ascii import to_ascii
from pagedd_tui.clock import Rate, brief, time_of_day
from pagedd_tui.columns import COLUMNS, Entry, first_waiting, fitting, ordered, widths
from pagedd_tui.feed import Feed, Waits
from pagedd_tui.filter import Filter
from pagedd_tui.footer import footer_line
from pagedd_tui.keys import KEYS
from pagedd_tui.looking import Looking
from pagedd_tui.plain import clip, fold, pad, plain, words
from tests.tui.fake_source import BASE, PLAIN, event, keyframe, row


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("r41", "r41"),
        ("a\x1b[2Jb", "a\ufffd[2Jb"),
        ("one\ntwo\tthree\r", "one two three "),
        ("\x9b31m\x07\x00", "\ufffd31m\ufffd\ufffd"),
        ("a\u202eb\u200bc\ufeff", "abc"),
        ("half \ud800 a character", "half  a character"),
        ("[bold]x[/]", "[bold]x[/]"),
        ("日本", "日本"),
        (17, "17"),
    ],
)
def test_text_from_outside_is_one_harmless_line(text: object, shown: str) -> None:
    assert plain(text) == shown


@given(st.text(), st.integers(-2, 30))
def test_text_is_never_wider_than_it_may_be(text: str, width: int) -> None:
    shown = plain(text, width)
    assert cell_len(shown) <= max(width, 0)
    assert not any(ord(each) < 32 or 0x7F <= ord(each) < 0xA0 for each in shown)


def test_what_is_cut_off_leaves_an_ellipsis() -> None:
    assert clip("a long word", 6) == "a lon…"
    assert clip("日本語", 4) == "日…"
    assert clip("日本語", 1) == "…"
    assert pad("日", 4) == "日  "
    assert pad("ab", 4, right=True) == "  ab"


def test_a_megabyte_is_not_looked_at_whole() -> None:
    assert plain("x\x1b" * 500_000, 10) == "x\ufffdx\ufffdx\ufffdx\ufffdx…"


@given(st.text(), st.integers(1, 40))
def test_folded_text_fits_and_loses_no_word(text: str, width: int) -> None:
    clean = plain(text)
    lines = fold(clean, width)
    assert lines
    assert all(cell_len(each) <= max(width, 2) for each in lines)
    assert "".join("".join(lines).split()) == "".join(clean.split())


@given(st.text())
def test_ascii_is_as_wide_as_what_it_stands_for(text: str) -> None:
    clean = plain(text)
    assert to_ascii(clean).isascii()
    assert len(to_ascii(clean)) == sum(cell_len(each) for each in clean)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0ms"),
        (0.34, "340ms"),
        (4.21, "4.2s"),
        (12.4, "12s"),
        (59.7, "1m00"),
        (185.0, "3m05"),
        (7800.0, "2h10"),
        (200_000.0, "2d07h"),
        (-1.0, "-"),
        (float("nan"), "-"),
    ],
)
def test_times_in_few_cells(seconds: float, said: str) -> None:
    assert brief(seconds) == said


def test_a_time_that_is_none_is_no_error() -> None:
    assert time_of_day(float("inf")) == "--:--:--.-"
    assert time_of_day(1e30) == "--:--:--.-"


def test_a_rate_is_kept() -> None:
    rate = Rate(4.0)
    assert [rate.due(now) for now in (0.0, 0.1, 0.2, 0.25, 0.3, 0.5)] == [
        *(True, False, False, True, False, True),
    ]
    assert rate.due(0.0)  # a clock that was set back
    rate.hurry()
    assert rate.due(0.01)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", ["r1", "r2", "x3"]),
        ("r", ["r1", "r2"]),
        ("R1", ["r1"]),
        ("#3", ["x3"]),
        ("state:swapped", ["r2"]),
        ("state:dec", ["r1", "x3"]),
        ("owner:r1", ["r1"]),
        ("id:#2", ["r2"]),
        ("owner:r", []),
        ("pages:>5", ["r2"]),
        ("pages:<=5 state:decoding", ["r1", "x3"]),
        ("priority:-1", ["x3"]),
        ("prompt:128 generated:>=54", ["r1", "r2", "x3"]),
        ("r state:swapped", ["r2"]),
        ("pages:many", ["r1", "r2", "x3"]),
        ("colour:red", ["r1", "r2", "x3"]),
        (":", ["r1", "r2", "x3"]),
        ("state:", ["r1", "r2", "x3"]),
    ],
)
def test_filters(text: str, ids: list[str]) -> None:
    rows = [row(1), row(2, "swapped", pages=9), row(3, id="x3", priority=-1)]
    assert [each.id for each in rows if Filter.parse(text).matches(each)] == ids


def test_a_filter_says_what_it_does_not_know() -> None:
    assert Filter.parse("colour:red").problem.startswith("no field colour")
    assert "wants a number" in Filter.parse("pages:many").problem
    assert not Filter.parse("state:waiting r4").problem


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("", ["preempted", "evicted"]),
        ("kind:pre", ["preempted"]),
        ("owner:r4", ["preempted"]),
        ("made", ["evicted"]),
        ("#4", ["preempted"]),
    ],
)
def test_filters_of_events(text: str, kinds: list[str]) -> None:
    told = [event("preempted", "gave way.", 4), event("evicted", "2 pages made room.")]
    assert [each.kind for each in told if Filter.parse(text).tells(each)] == kinds


@given(st.text(), st.integers(0, 200))
def test_filters_never_fail(text: str, pages: int) -> None:
    Filter.parse(text).matches(row(1, pages=pages))
    Filter.parse(text).tells(event("waiting", text, 1))


@pytest.mark.parametrize("width", range(1, 140))
def test_columns_fit(width: int) -> None:
    columns = fitting(width)
    assert columns[0].name == "id"
    if width >= 12:
        assert widths(columns, width)[0] >= COLUMNS[0].width
    if width >= 59:
        assert len(columns) == len(COLUMNS)


def test_every_sort_is_of_all_rows() -> None:
    entries = [Entry(row(i, "waiting" if i % 2 else "decoding", pages=i), i / 7) for i in range(20)]
    for column in COLUMNS:
        for reverse in (False, True):
            found = ordered(entries, column.name, reverse)
            assert sorted(each.key for each in found) == [each.key for each in entries]
    assert ordered(entries, "nonsense", False)


def test_the_first_of_the_queue_is_the_one_that_the_daemon_names() -> None:
    rows = [row(1), row(2, "waiting"), row(3, "swapped", priority=-1), row(4, "preempted")]
    by_key = {(each.handle, each.index): each for each in rows}
    assert first_waiting(by_key, None) == (3, 0)
    assert first_waiting(by_key, 4) == (4, 0)
    assert first_waiting(by_key, 1) == (3, 0)  # it runs by now
    assert first_waiting({}, 4) is None


def test_waits_go_on_from_when_the_row_was_sent() -> None:
    waits, waiting = Waits(), row(1, "waiting", waiting_ms=500.0)
    waits.note(waiting, 10.0)
    waits.note(waiting, 40.0)  # the same again, in a keyframe
    assert waits.seconds(waiting, 12.0) == 2.5
    assert waits.seconds(row(1, waiting_ms=500.0), 12.0) == 0.5
    assert waits.seconds(row(2, "swapped", waiting_ms=100.0), 12.0) == 0.1


def test_memory_of_the_past_is_bounded() -> None:
    feed = Feed()
    for i in range(3000):
        state = ("waiting", "decoding")[i % 2]
        feed.take(keyframe(i + 1, [0], [row(i, state, waiting_ms=float(i))]), i)
    feed.take(event("waiting", "", 1, BASE), 0.0)
    assert len(feed.lives) == 2000
    assert feed.life(2999, BASE * 2) == [(BASE + 300.0, "decoding")]
    assert feed.life(1, BASE * 2) == []


@pytest.mark.parametrize("width", range(1, 160, 7))
def test_the_footer_fits(width: int) -> None:
    shown = words(footer_line(Looking(PLAIN), "live", True, width))
    assert shown.startswith(" LIVE ")
    assert width < 40 or cell_len(shown) <= width


def test_no_key_is_bound_twice_and_none_needs_shift() -> None:
    bound = [name for key in KEYS for name in key.keys.split(",") if name]
    assert len(bound) == len(set(bound))
    assert not any(name.isupper() for name in bound)
