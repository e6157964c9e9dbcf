"""Stop strings against a search of the whole text, for any cut into pieces (case B20)."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pagedd.text.stops import Found, StopMatcher, StopStrings

PIECES = ["one", " tw", "o th", "ree", " four"]


def run(
    pieces: list[str], stops: list[str], *, include: bool = False, armed_from: int = 0
) -> tuple[list[str], str | None]:
    matcher = StopMatcher(StopStrings(stops), include_stop=include)
    shown = []
    for at, piece in enumerate(pieces):
        found = matcher.push(piece, armed=at >= armed_from)
        shown.append(found.text)
        if found.stop is not None:
            assert matcher.flush() == ""
            return shown, found.stop
    return [*shown, matcher.flush()], None


def expected(text: str, stops: list[str], *, include: bool, unarmed: int) -> tuple[str, str | None]:
    """By definition: the first end of any stop string beyond ``unarmed``; the longest there."""
    for end in range(unarmed + 1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


letters = st.text("ab", max_size=5)


@settings(max_examples=1500, deadline=None)
@given(
    pieces=st.lists(letters, max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=6), max_size=4),
    include=st.booleans(),
    armed_from=st.integers(0, 4),
)
@example(pieces=["ab", "cd"], stops=["abcde", "bcd"], include=False, armed_from=0)
def test_any_pieces(pieces: list[str], stops: list[str], include: bool, armed_from: int) -> None:
    text = "".join(pieces)
    unarmed = len("".join(pieces[:armed_from]))
    shown, stop = run(pieces, stops, include=include, armed_from=armed_from)
    assert ("".join(shown), stop) == expected(text, stops, include=include, unarmed=unarmed)


@settings(max_examples=500, deadline=None)
@given(
    pieces=st.lists(letters, max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=4),
)
def test_held_back_exactly_as_long_as_needed(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(StopStrings(stops))
    text = shown = ""
    for piece in pieces:
        found = matcher.push(piece)
        text, shown = text + piece, shown + found.text
        if found.stop is not None:
            return
        could_become = max(
            length for stop in stops for length in range(len(stop)) if text.endswith(stop[:length])
        )
        assert shown == text[: len(text) - could_become]


def test_a_stop_over_several_pieces_is_not_shown() -> None:
    shown, stop = run(PIECES, ["two three"])
    assert shown == ["one", " ", "", ""]
    assert stop == "two three"


def test_included_the_text_ends_with_it() -> None:
    shown, _ = run(PIECES, ["two three"], include=True)
    assert "".join(shown) == "one two three"


def test_a_whole_piece() -> None:
    assert run(["a", "STOP", "b"], ["STOP"]) == (["a", ""], "STOP")


@pytest.mark.parametrize("stops", [["two", "two three"], ["two three", "two"]])
def test_of_a_stop_and_its_prefix_the_prefix_is_complete_first(stops: list[str]) -> None:
    assert run(PIECES, stops)[1] == "two"


def test_ended_by_one_character_the_longest_counts() -> None:
    shown, stop = run(["xab"], ["b", "ab"])
    assert (shown, stop) == (["x"], "ab")


def test_without_stops_nothing_is_held() -> None:
    assert StopMatcher(StopStrings([])).push("abc") == Found("abc", None)


def test_an_unfinished_stop_is_text() -> None:
    assert run(["one tw"], ["two"]) == (["one ", "tw"], None)


def test_an_early_completion_does_not_count_but_its_tail_can() -> None:
    """ "aa" is complete before it may count; its second "a" begins one that does."""
    assert run(["aa", "a", "b"], ["aa"], armed_from=1) == (["a", ""], "aa")
