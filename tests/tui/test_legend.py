"""The legend names what can be seen, for every colouring and palette."""

from __future__ import annotations

import pytest

from pagedd_tui.colouring import WAYS, ColourBy
from pagedd_tui.legend import legend_line
from pagedd_tui.palette import PALETTES, choose
from pagedd_tui.plain import words

PLAIN = choose(None, ascii=False, no_color=False)


def test_states_and_heights_are_named() -> None:
    text = words(legend_line(PLAIN, "state", several=True))
    assert text.startswith(" █ owned  ▓ shared  ▒ cached  ░ swapped (host)  · free")
    assert "height ▁▂▄█: how full" in text
    assert "height" not in words(legend_line(PLAIN, "state", several=False))
    assert "changed now, or of the chosen request" in text


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("name", PALETTES)
def test_every_colouring_is_told(by: ColourBy, name: str) -> None:
    palette = choose(name, ascii=False, no_color=False)
    text = words(legend_line(palette, by, several=False))
    said = {
        "state": "cached",
        "owner": "a colour for each request",
        "age": "changed in the last 1 s",
        "refs": "by several",
    }
    assert said[by] in text
    ascii = choose(name, ascii=True, no_color=False)
    assert words(legend_line(ascii, by, several=True)).isascii()


def test_without_colours_marks_tell() -> None:
    mono = choose(None, ascii=True, no_color=True)
    assert "abcdef a colour for each request" in words(legend_line(mono, "owner", several=True))
    assert words(legend_line(mono, "age", several=True)).count("0 changed in the last") == 1
