"""Stop strings over a text that arrives in pieces.

The rule does not depend on how the text was cut: the text ends at the first character that
completes a stop string. If that character completes several, the longest counts, so that no part
of any of them is left before the cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


class Found(NamedTuple):
    """``text`` may be shown now; ``stop`` is the stop string that ended it, else None."""

    text: str
    stop: str | None


class StopStrings:
    """Stop strings of a request, prepared once for all its choices. None of them is empty."""

    def __init__(self, stops: Iterable[str]) -> None:
        self.stops = tuple(dict.fromkeys(stops))
        assert all(self.stops), "an empty stop string would end every text before it begins"
        self.tables = tuple(_borders(stop) for stop in self.stops)


@lru_cache(maxsize=16)
def prepared(stops: tuple[str, ...]) -> StopStrings:
    """The same for requests that come together with the same ones."""
    return StopStrings(stops)


class StopMatcher:
    """Finds the first stop string of one choice and holds back what could still become one.

    Knuth, Morris, Pratt 1977: ``matched[i]`` is the length of the longest prefix of stop string i
    that the text ends with, so the longest of these is exactly what must be held back.
    """

    def __init__(self, stops: StopStrings, *, include_stop: bool = False) -> None:
        self._stops = stops
        self._include_stop = include_stop
        self._matched = [0] * len(stops.stops)
        self._held = ""
        self._ended = False

    def push(self, text: str, *, armed: bool = True) -> Found:
        """Take the next piece. After a match nothing may be pushed.

        With ``armed`` false (before ``min_tokens``) a stop string that this piece completes does
        not count; one that begins here and is completed later does.
        """
        assert not self._ended
        if not self._stops.stops or not text:
            return Found(text, None)
        end, stop = len(text) + 1, -1
        for index in range(len(self._matched)):
            at = self._advance(index, text, armed)
            if at and (at < end or (at == end and self._length(index) > self._length(stop))):
                end, stop = at, index
        whole = self._held + text
        if stop >= 0:
            self._ended = True
            cut = len(self._held) + end - (0 if self._include_stop else self._length(stop))
            self._held = ""
            return Found(whole[:cut], self._stops.stops[stop])
        keep = len(whole) - max(self._matched)
        self._held = whole[keep:]
        return Found(whole[:keep], None)

    def flush(self) -> str:
        """The text held back, when no more will come; nothing after a match."""
        held, self._held = self._held, ""
        self._matched = [0] * len(self._matched)
        return held

    def _length(self, index: int) -> int:
        return len(self._stops.stops[index])

    def _advance(self, index: int, text: str, armed: bool) -> int:
        """Read ``text`` for one stop string: the count of characters that complete it, or 0."""
        stop, borders = self._stops.stops[index], self._stops.tables[index]
        matched = self._matched[index]
        at = 0 if matched else text.find(stop[0])  # nothing begun: skip to where it can begin
        if at < 0:
            return 0
        for position in range(at, len(text)):
            character = text[position]
            while matched and stop[matched] != character:
                matched = borders[matched - 1]
            if stop[matched] == character:
                matched += 1
            if matched == len(stop):
                if armed:
                    return position + 1
                matched = borders[matched - 1]
        self._matched[index] = matched
        return 0


def _borders(stop: str) -> list[int]:
    """For each prefix of ``stop`` the length of its longest proper prefix that is its suffix."""
    borders = [0] * len(stop)
    length = 0
    for at in range(1, len(stop)):
        while length and stop[at] != stop[length]:
            length = borders[length - 1]
        if stop[at] == stop[length]:
            length += 1
        borders[at] = length
    return borders
