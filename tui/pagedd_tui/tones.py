"""Styles of words: few, so that a colour means the same wherever it is. NO_COLOR drops the colours.

What matters is also said by a word, a mark or bold type.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rich.style import Style

TEXT = Style()
DIM = Style(dim=True)
STRONG = Style(bold=True)
GOOD = Style(color="#35b58a")
WARN = Style(color="#e69f00")
BAD = Style(color="#e0703a", bold=True)
ACCENT = Style(color="#56b4e9")
KEY = Style(color="#56b4e9", bold=True)
HEAD = Style(bold=True, underline=True)
CHOSEN = Style(bold=True, bgcolor="#274060", color="#ffffff")
BANNER = Style(bold=True, reverse=True)

STATES: Mapping[str, Style] = MappingProxyType(
    {
        "decoding": GOOD,
        "prefilling": ACCENT,
        "running": GOOD,
        "waiting": WARN,
        "swapped": BAD,
        "preempted": BAD,
    }
)
KINDS: Mapping[str, Style] = MappingProxyType(
    {
        "accepted": TEXT,
        "admitted": GOOD,
        "resumed": GOOD,
        "running": GOOD,
        "finished": DIM,
        "waiting": WARN,
        "preempted": BAD,
        "failed": BAD,
        "missed": BAD,
        "shrunk": BAD,
        "evicted": ACCENT,
        "reprioritized": ACCENT,
    }
)
