"""For terminals that show ASCII alone: every other character becomes one that is as wide."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_LIKE: Mapping[str, str] = MappingProxyType(
    {
        "→": ">",
        "↑": "^",
        "↓": "v",
        "…": "~",
        "·": ".",
        "×": "x",
        "●": "*",
        "»": "*",
        "▶": ">",
        **dict.fromkeys("╭╮╰╯┌┐└┘├┤", "+"),
        "│": "|",
        "─": "-",
        "▔": "-",
        "▁": "_",
        "▎": "|",
        "▊": "|",
        "█": "#",
        "–": "-",
        "—": "-",
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
    }
)


class ToAscii(LineFilter):
    """The last filter of all: what it lets through can be written anywhere."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.text.isascii()
            else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


def to_ascii(text: str) -> str:
    """Something alike where there is, else question marks; as many cells as before."""
    return "".join(
        each if each.isascii() else _LIKE.get(each, "?" * cell_len(each)) for each in text
    )
