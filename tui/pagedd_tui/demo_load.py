"""Who asks the simulated engine for what: conversations, documents, agents, urgent questions."""

from __future__ import annotations

from collections.abc import Iterable
from math import pi, sin
from random import Random
from typing import NamedTuple

from pagedd.core.request import Request, SamplingParams

FEWEST, MOST = 8, 40  # requests that are open at once
TIDE_S = 45.0  # from one crowd to the next
_SYLLABLES = ("ba", "do", "fen", "gri", "ka", "lum", "mi", "nor", "pel", "ra", "sil", "to", "vex")


class Kind(NamedTuple):
    """Requests of one sort. ``shared``: tokens of the beginning that several have in common."""

    name: str
    weight: int
    shared: int
    beginnings: int  # different ones
    own: tuple[int, int]  # tokens of the prompt that are its own, from and to
    answer: tuple[int, int]
    choices: int
    priority: int  # smaller is more urgent


_KINDS = (
    Kind("chat", 40, 192, 3, (20, 240), (60, 300), 1, 0),
    Kind("doc", 18, 0, 1, (500, 1100), (40, 160), 1, 0),
    Kind("draft", 16, 96, 2, (40, 200), (60, 220), 4, 0),
    Kind("agent", 14, 384, 2, (30, 120), (20, 90), 1, 0),
    Kind("urgent", 6, 0, 1, (20, 90), (30, 90), 1, -5),
    Kind("batch", 10, 128, 1, (100, 500), (150, 500), 1, 5),
)
_WEIGHTS = [kind.weight for kind in _KINDS]


class Load:
    """Lets requests come, now more and now fewer. Handles count from 1."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._handle = 0
        self._shared = {
            (kind.name, number): self._tokens(kind.shared)
            for kind in _KINDS
            for number in range(kind.beginnings)
        }

    def arrivals(self, now: float, open_requests: int) -> list[tuple[str, Request]]:
        """The id and the request of each that comes in this step."""
        middle, swing = (MOST + FEWEST) / 2, (MOST - FEWEST) / 2
        wanted = round(middle + swing * sin(2 * pi * now / TIDE_S))
        missing = min(wanted, MOST) - open_requests
        if missing <= 0 or self._random.random() > 0.4:
            return []
        return [self._one() for _ in range(min(missing, self._random.randint(1, 3)))]

    def _one(self) -> tuple[str, Request]:
        random = self._random
        kind = random.choices(_KINDS, _WEIGHTS)[0]
        self._handle += 1
        beginning = self._shared[kind.name, random.randrange(kind.beginnings)]
        prompt = beginning + self._tokens(random.randint(*kind.own))
        params = SamplingParams(max_tokens=random.randint(*kind.answer), n=kind.choices)
        request = Request(self._handle, prompt, params, kind.priority)
        return f"{kind.name}-{self._handle}", request

    def _tokens(self, number: int) -> tuple[int, ...]:
        return tuple(self._random.randrange(1, 4096) for _ in range(number))


def words(tokens: Iterable[int]) -> str:
    """Made-up words, always the same for a token."""
    size = len(_SYLLABLES)
    return " ".join(
        _SYLLABLES[token % size] + _SYLLABLES[token // size % size] * (token % 3 > 0)
        for token in tokens
    )
