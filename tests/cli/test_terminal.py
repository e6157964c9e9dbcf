"""No control byte of a model's text reaches a terminal, however it is split."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd.cli.terminal import can_show, is_fancy, one_line, visible, write_json

CONTROL = st.sampled_from([chr(c) for c in (*range(0x20), *range(0x7F, 0xA0))])
TEXT = st.text(st.one_of(CONTROL, st.characters()))


@given(TEXT)
def test_what_is_visible_holds_no_control_but_tab_and_newline(text: str) -> None:
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\t\n"]


@given(TEXT)
def test_everything_else_stays_in_order(text: str) -> None:
    kept = [c for c in text if unicodedata.category(c) != "Cc" or c in "\t\n"]
    assert visible(text) == "".join(kept)


@given(st.lists(TEXT))
def test_it_makes_no_difference_how_a_text_is_split(parts: list[str]) -> None:
    assert "".join(map(visible, parts)) == visible("".join(parts))


@given(TEXT)
def test_a_message_is_one_line(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert visible(line) == line


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("no_colour", "term", "fancy"),
    [
        (None, "xterm-256color", True),
        ("", "xterm", True),
        ("1", "xterm", False),
        (None, "dumb", False),
        (None, None, False),
    ],
)
def test_no_colour_and_dumb_terminals_are_plain(
    monkeypatch: pytest.MonkeyPatch, no_colour: str | None, term: str | None, fancy: bool
) -> None:
    for name, value in (("NO_COLOR", no_colour), ("TERM", term)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert is_fancy(Terminal(io.BytesIO())) is fancy
    assert not is_fancy(io.StringIO())


def test_what_an_encoding_can_show() -> None:
    assert can_show(io.TextIOWrapper(io.BytesIO(), "utf-8"), "█●")
    assert not can_show(io.TextIOWrapper(io.BytesIO(), "cp1252"), "█●")


@pytest.mark.parametrize(
    ("encoding", "written"), [("utf-8", '{"a":"é"}\n'), ("ascii", '{"a": "\\u00e9"}\n')]
)
def test_json_is_escaped_where_the_encoding_needs_it(
    monkeypatch: pytest.MonkeyPatch, encoding: str, written: str
) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding))
    write_json('{"a":"é"}'.encode())
    assert buffer.getvalue().decode(encoding) == written
