"""The colours of words on a light background: the same hues, dark enough to be read there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from pagedd_tui import tones


def _darker() -> dict[RichColor, RichColor]:
    pairs = (
        (tones.GOOD, "#006b4d"),
        (tones.WARN, "#8a5200"),
        (tones.BAD, "#a33c00"),
        (tones.ACCENT, "#00567f"),
    )
    return {style.color: RichColor.parse(dark) for style, dark in pairs if style.color}


_DARKER: Mapping[RichColor, RichColor] = MappingProxyType(_darker())


class Darker(LineFilter):
    """For light themes. What has a background of its own is left as it is."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(segment.text, _darkened(segment.style), segment.control)
            if segment.style is not None and segment.style.color in _DARKER
            else segment
            for segment in segments
        ]


@lru_cache(maxsize=256)
def _darkened(style: Style) -> Style:
    if style.bgcolor == tones.CHOSEN.bgcolor or style.color is None:
        return style
    return style + Style(color=_DARKER[style.color])
