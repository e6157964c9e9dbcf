"""Palettes: the glyphs and colours of the manual, ASCII, no colour, and names that are none."""

from __future__ import annotations

import pytest

from pagedd.protocol import CACHED, FREE, OWNED, SHARED, SWAPPED
from pagedd_tui.palette import NUM_AGES, NUM_OWNERS, PALETTES, choose, following


def test_the_first_palette_is_that_of_the_manual() -> None:
    palette = choose(None, ascii=False, no_color=False)
    device = {FREE: "·", OWNED: "█", SHARED: "▓", CACHED: "▒"}
    assert {state: palette.glyph(state, host=False) for state in device} == device
    colours = [palette.style(state, host=False).color for state in (OWNED, SHARED, CACHED)]
    assert [colour.name for colour in colours if colour] == ["#0072b2", "#e69f00", "#009e73"]
    swapped = palette.style(SWAPPED, host=True).color
    assert swapped is not None
    assert (palette.glyph(SWAPPED, host=True), swapped.name) == ("░", "#d55e00")
    assert palette.levels == "▁▂▄█"


def test_ascii_is_ascii() -> None:
    palette = choose(None, ascii=True, no_color=False)
    assert "".join(palette.glyph(state, host=False) for state in range(4)) == ".#=+"
    assert palette.glyph(SWAPPED, host=True) == "s"
    assert palette.levels.isascii()
    assert palette.coloured
    assert not palette.heights


@pytest.mark.parametrize("name", [*PALETTES, None, "no such palette"])
def test_no_color_wins_over_a_name(name: str | None) -> None:
    palette = choose(name, ascii=False, no_color=True)
    styles = [*palette.styles[0], *palette.styles[1], *palette.owners, *palette.ages]
    assert palette.name == "mono"
    assert all(style.color is None and style.bgcolor is None for style in styles)


@pytest.mark.parametrize("name", PALETTES)
def test_every_palette_is_whole(name: str) -> None:
    palette = choose(name, ascii=False, no_color=False)
    assert palette.name == name
    assert (len(palette.owners), len(palette.ages)) == (NUM_OWNERS, NUM_AGES)
    assert len({palette.glyph(state, host=False) for state in range(4)}) == 4
    if palette.coloured:
        assert len(set(palette.owners)) == NUM_OWNERS
        assert len({palette.style(state, host=True) for state in (FREE, SWAPPED, CACHED)}) == 3


def test_what_is_not_known_looks_free_or_like_the_last() -> None:
    palette = choose(None, ascii=False, no_color=False)
    assert palette.glyph(200, host=False) == "·"
    assert palette.style(200, host=True) == palette.style(FREE, host=True)
    assert palette.age(99) == palette.age(NUM_AGES - 1)
    assert palette.refs(7) == palette.refs(2)
    assert palette.owner(5) == palette.owner(5 + NUM_OWNERS)


def test_reversed_glyphs_can_be_seen() -> None:
    palette = choose(None, ascii=False, no_color=False)
    assert palette.reversed_glyph("█") != "█"
    assert palette.reversed_glyph("▓") == "▓"


def test_themes_go_round() -> None:
    names = [PALETTES[0]]
    for _ in PALETTES:
        names.append(following(names[-1]))
    assert names == [*PALETTES, PALETTES[0]]
    assert following("no such palette") == PALETTES[0]
