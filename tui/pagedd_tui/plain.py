"""Text from outside, made fit for one line of a screen. Ids, reasons and answers are data."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

Line = tuple[Segment, ...]

_MOST = 20_000  # characters that are looked at where no width is given
_SPACES = frozenset(("Zl", "Zp", "Zs"))
# Controls, those that act without being seen (joiners, writing directions), and what is no text.
_UNSEEN = frozenset(("Cf", "Cs", "Co", "Cn"))


class _Shown(dict[int, str | None]):
    """What each character becomes, looked up when it is met."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        category = unicodedata.category(character)
        shown: str | None = character
        if character in "\t\n\r\v\f" or category in _SPACES:
            shown = " "
        elif category == "Cc":
            shown = "\ufffd"
        elif category in _UNSEEN:
            shown = None
        if code < 0x3000:
            self[code] = shown
        return shown


_SHOWN = _Shown()


def plain(text: object, width: int | None = None) -> str:
    """``text`` on one line without control characters, cut with an ellipsis at ``width`` cells."""
    raw = str(text)
    # No more is looked at than could be seen, however long it is; marks of no width take room too.
    seen = raw[: _MOST if width is None else 4 * max(width, 0) + 64]
    if not (seen.isascii() and seen.isprintable()):
        seen = seen.translate(_SHOWN)
    return seen if width is None else clip(seen, width)


def clip(text: str, width: int) -> str:
    """Clean text of at most ``width`` cells; what is cut off leaves an ellipsis."""
    if width <= 0:
        return ""
    if len(text) <= width and text.isascii():
        return text
    if cell_len(text) <= width:
        return text
    used = 0
    for i, character in enumerate(text):
        used += cell_len(character)
        if used > width - 1:
            return text[:i] + "…"
    return text


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Clean text in exactly ``width`` cells; ``right``: against the right edge."""
    text = clip(text, width)
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def fold(text: str, width: int, most: int = 1000) -> list[str]:
    """Clean text on as many lines as it takes, ``most`` at the most; words stay whole if they can.

    Cells are counted, not characters.
    """
    width = max(width, 1)
    lines: list[str] = []
    line, used = "", 0
    for word in text.split():
        for piece in _pieces(word, width):
            cells = cell_len(piece)
            if line and used + 1 + cells > width:
                lines.append(line)
                if len(lines) >= most:
                    return lines
                line, used = piece, cells
            else:
                line, used = (f"{line} {piece}", used + 1 + cells) if line else (piece, cells)
    return [*lines, line] if line or not lines else lines


def _pieces(word: str, width: int) -> Iterable[str]:
    """A word that is wider than a line, in parts that are not."""
    if cell_len(word) <= width:
        yield word
        return
    piece, used = "", 0
    for character in word:
        cells = cell_len(character)
        if piece and used + cells > width:
            yield piece
            piece, used = "", 0
        piece, used = piece + character, used + cells
    yield piece


@lru_cache(maxsize=4096)
def _segment(text: str, style: Style) -> Segment:
    return Segment(text, style)


def line(*parts: tuple[str, Style]) -> Line:
    """A line of clean texts with their styles."""
    return tuple(_segment(text, style) for text, style in parts if text)


def words(line: Line) -> str:
    """What is written on a line."""
    return "".join(segment.text for segment in line)
