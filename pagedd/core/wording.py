"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str, *, do: str = "", does: str = "") -> str:
    """``1 page``, ``2 pages``, with the verb that belongs to it: ``1 request waits``."""
    words = (noun, does) if number == 1 else (f"{noun}s", do)
    return " ".join((f"{number:,}", *filter(None, words)))
