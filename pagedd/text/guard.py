"""Text in a message that looks like a special token stays text.

A marker, which no valid text can hold (a lone surrogate), is put behind the first character of
every such occurrence before the template runs; the rendered prompt is tokenised in the parts
between markers, so no special token can be read across one. The template's own special tokens,
and everything else, are left as they are. Special tokens of a single character cannot be told
apart like this and keep their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pagedd.errors import BadRequest

_MARKER = "\udc80"
_STRIDE = 1 << 16  # characters searched at a time


class Guard:
    """Marks and splits. ``special``: the texts of the special tokens."""

    def __init__(self, special: Collection[str]) -> None:
        rests: dict[str, list[str]] = {}
        for text in special:
            if len(text) > 1:
                rests.setdefault(text[0], []).append(re.escape(text[1:]))
        # The first character stands alone, so that a search runs at memory speed; looking ahead
        # from it finds overlapping and nested occurrences as well.
        branches = [f"{re.escape(c)}(?={'|'.join(rest)})" for c, rest in sorted(rests.items())]
        self._starts = re.compile("|".join(branches) or "(?!)")
        self._reach = max(map(len, special), default=0)

    def mark(
        self, messages: Sequence[Mapping[str, Any]], field: str = "messages"
    ) -> list[dict[str, Any]]:
        """Copies of the messages with every string marked.

        Errors: ``BadRequest`` for a string that is no valid text.
        """
        return [
            {key: self._mark(value, f"{field}[{at}].{key}") for key, value in message.items()}
            for at, message in enumerate(messages)
        ]

    def split(self, rendered: str) -> list[str]:
        """The parts that must be tokenised each by itself; a single one, as a rule."""
        return rendered.split(_MARKER)

    def _mark(self, value: Any, field: str) -> Any:
        if isinstance(value, str):
            check_text(value, field)
            return self._mark_text(value)
        if isinstance(value, Mapping):
            return {key: self._mark(item, f"{field}.{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._mark(item, f"{field}[{at}]") for at, item in enumerate(value)]
        return value

    def _mark_text(self, text: str) -> str:
        parts, last = [], 0
        for begin in range(0, len(text), _STRIDE):  # other threads may run in between
            end = begin + _STRIDE
            for match in self._starts.finditer(text, begin, end + self._reach):
                if match.start() >= end:
                    break
                parts.append(text[last : match.end()])
                last = match.end()
        return _MARKER.join([*parts, text[last:]])


def check_text(text: str, field: str) -> bytes:
    """The text as UTF-8. Errors: ``BadRequest`` that names ``field``, for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"{field}: half of a surrogate pair at character {error.start} is no text"
        ) from error
