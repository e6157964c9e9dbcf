"""``pagedd explain``: what it shows of an explanation, and on what terminal."""

from __future__ import annotations

import io
import re

import msgspec
import pytest

from pagedd import protocol
from pagedd.cli.explain_view import explanation_lines, split, table_lines
from pagedd.cli.record_view import Paper
from tests.cli.records import (
    ACCEPTED,
    BEHIND,
    HOSTILE,
    NOW,
    RUNNING,
    RUNS,
    TURN,
    WAITING,
    WAITS,
)

WIDE = """\
#17 r41  swapped  goes on in 2 to 9.4 s

how it came there
  1 min 15 s ago  accepted   joined the queue with 120 prompt tokens, behind 3 others, priority 0.
      12.4 s ago  admitted   was admitted after 62.9 s: it holds 8 pages, and 0 of its prompt tokens were in the cache.
      340 ms ago  preempted  gave way to r3 (#5), which lacked pages: priority -5 comes before 0, policy length; its 9
                             pages went to host memory (estimated: swap 2.1 ms, recompute 45 ms).

why it waits
  limit  pages
  needs  9, with 1 to be left free
  free   3
  short  6

  held by  priority  pages  alone
  #5 r3          -5     57     50
  #9 r7           0     12     12
  and 2 more"""  # noqa: E501
NARROW = """\
#18 r42  waiting  starts in 2.3 to 12 s

why it waits
  limit   its turn: it would fit, but others come before it
  behind  1 in the queue, #17 r41 first

  #17 r41 is the first in the queue, and waits itself
  limit  pages
  needs  9, with 1 to be left free
  free   3
  short  6

  held by  priority  pages  alone
  #5 r3          -5     57     50
  #9 r7           0     12     12
  and 2 more"""
TABLE = """\
#5 r3    decoding  ends in 1.9 to 2.1 s   is decoding: 300 tokens generated, on…
#17 r41  swapped   goes on in 2 to 9.4 s  waits for pages: it needs 9 (1 of the…
#18 r42  waiting   starts in 2.3 to 12 s  waits for its turn: it would fit, but…"""


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    return monkeypatch


def test_a_wide_terminal_gets_history_numbers_and_holders(plain: pytest.MonkeyPatch) -> None:
    plain.setenv("COLUMNS", "120")
    assert "\n".join(explanation_lines(WAITS, Paper(Terminal()))) == WIDE


def test_what_is_not_the_first_says_what_the_first_waits_for(plain: pytest.MonkeyPatch) -> None:
    assert "\n".join(explanation_lines(BEHIND, Paper(Terminal()))) == NARROW


def test_what_waits_for_the_same_as_the_first_is_told_once(plain: pytest.MonkeyPatch) -> None:
    second = msgspec.structs.replace(WAITING, request="r42", handle=18, ahead=1)
    explanation = protocol.Explanation("#18", "waiting", [second, WAITING])
    lines = explanation_lines(explanation, Paper(Terminal()))
    assert lines == [
        "#18 r42  waiting",
        "",
        "why it waits",
        "  limit   pages",
        "  needs   9, with 1 to be left free",
        "  free    3",
        "  short   6",
        "  behind  1 in the queue, #17 r41 first",
        *NARROW.splitlines()[-5:],
    ]
    # other numbers and the same holders: the numbers alone
    first = msgspec.structs.replace(WAITING, needed=10, short=7)
    explanation = protocol.Explanation("#18", "waiting", [second, first])
    assert explanation_lines(explanation, Paper(Terminal())) == [
        *lines,
        "",
        "  #17 r41 is the first in the queue, and waits itself",
        "  limit  pages",
        "  needs  10, with 1 to be left free",
        "  free   3",
        "  short  7",
    ]


def test_what_nothing_keeps_is_said_to_be_next(plain: pytest.MonkeyPatch) -> None:
    record = msgspec.structs.replace(TURN, ahead=0, first="r42", first_handle=18)
    explanation = protocol.Explanation("#18", "waiting", [record])
    lines = explanation_lines(explanation, Paper(Terminal()))
    assert lines[-1] == "  limit  none: it begins with the next step"


def test_what_runs_says_how_far_it_is(plain: pytest.MonkeyPatch) -> None:
    assert explanation_lines(RUNS, Paper(Terminal())) == [
        "#5 r3  decoding  ends in 1.9 to 2.1 s",
        "",
        "how it runs",
        "  state         decoding",
        "  in the cache  1,811 of 1,812 tokens, 300 generated",
        "  pages         57, 7 of them shared",
        "  priority      -5",
    ]


def test_the_table_has_one_line_a_request(plain: pytest.MonkeyPatch) -> None:
    lines = table_lines([RUNS, WAITS, BEHIND], Paper(Terminal()))
    assert "\n".join(lines) == TABLE
    piped = table_lines([RUNS, WAITS, BEHIND], Paper(io.StringIO()))
    assert len(piped) == 3
    assert piped[1].endswith("12 pages and 2 more.")


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(plain: pytest.MonkeyPatch, columns: int) -> None:
    plain.delenv("NO_COLOR")
    plain.setenv("TERM", "xterm")
    plain.setenv("COLUMNS", str(columns))
    for explanation in (WAITS, RUNS):
        lines = explanation_lines(explanation, Paper(Terminal()))
        assert any("\x1b[" in line for line in lines)
        bare = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
        assert max(map(len, bare)) <= max(columns, 50)
        plain.setenv("NO_COLOR", "1")
        assert explanation_lines(explanation, Paper(Terminal())) == bare
        plain.delenv("NO_COLOR")


def test_ascii_is_enough(plain: pytest.MonkeyPatch) -> None:
    paper = Paper(AsciiTerminal())
    lines = [*explanation_lines(WAITS, paper), *table_lines([WAITS], paper)]
    assert all(line.isascii() for line in lines)
    assert lines[-1].endswith("...")


def test_several_choices_are_told_apart(plain: pytest.MonkeyPatch) -> None:
    text = "choice 0 of r3 (#5) is decoding: 300 tokens generated."
    first = msgspec.structs.replace(RUNNING, text=text)
    second = msgspec.structs.replace(WAITING, request="r3", handle=5, index=1, others=0)
    third = msgspec.structs.replace(second, index=2)
    lines = explanation_lines(
        protocol.Explanation("#5", "decoding", [first, second, third]), Paper(Terminal())
    )
    numbers = ["  limit  pages", "  needs  9, with 1 to be left free", "  free   3", "  short  6"]
    assert lines[3:] == [
        f"  {text}",
        "",
        "  choice 1",
        *numbers,
        *NARROW.splitlines()[-5:-1],
        "",
        "  choice 2",
        *numbers,
    ]


def test_an_old_wait_is_past_and_the_wait_of_this_moment_is_not() -> None:
    old = msgspec.structs.replace(WAITING, at=NOW - 3)
    past, present = split(protocol.Explanation("#17", "waiting", [ACCEPTED, old, WAITING]))
    assert (past, present) == ([ACCEPTED, old], [WAITING])


def test_a_long_past_is_shortened_and_says_so(plain: pytest.MonkeyPatch) -> None:
    past = [msgspec.structs.replace(ACCEPTED, at=NOW - 100 + i) for i in range(50)]
    lines = explanation_lines(
        protocol.Explanation("#17", "waiting", [*past, WAITING]), Paper(Terminal())
    )
    assert "  (30 earlier ones: --json has all)" in lines
    assert sum("accepted" in line for line in lines) == 20


def test_what_has_ended_has_a_past_alone(plain: pytest.MonkeyPatch) -> None:
    lines = explanation_lines(protocol.Explanation("#17", "ended", [ACCEPTED]), Paper(Terminal()))
    assert lines[0] == "#17 r41  ended"
    assert lines[2] == "how it came there"
    assert not [line for line in lines if "why" in line or "how it runs" in line]


def test_a_reason_without_numbers_is_its_sentence(plain: pytest.MonkeyPatch) -> None:
    record = protocol.Record(at=NOW, kind="waiting", text="r1 (#3) waits for Godot.", handle=3)
    lines = explanation_lines(protocol.Explanation("#3", "waiting", [record]), Paper(Terminal()))
    assert lines == ["#3  waiting", "", "why it waits", "  r1 (#3) waits for Godot."]


def test_what_clients_chose_reaches_no_terminal_raw(plain: pytest.MonkeyPatch) -> None:
    holder = protocol.Holder(HOSTILE, 4, 0, 0, 1, 1)
    wild = msgspec.structs.replace(
        WAITING, request=HOSTILE, text=HOSTILE, holders=[holder], limit=HOSTILE
    )
    past = msgspec.structs.replace(ACCEPTED, request=HOSTILE, text=HOSTILE, kind=HOSTILE)
    for at in (float("nan"), float("inf"), -1e300, 1e300):
        past = msgspec.structs.replace(past, at=at)
        explanation = protocol.Explanation(HOSTILE, HOSTILE, [past, wild], (float("nan"), 1.0))
        paper = Paper(Terminal())
        for line in [*explanation_lines(explanation, paper), *table_lines([explanation], paper)]:
            assert not line or line.isprintable()
