"""Calls of tools in what a model writes, as it writes it: the form of Hermes' and Qwen's templates.

``<tool_call>`` and ``</tool_call>`` enclose a JSON object with ``name`` and ``arguments``. The JSON
of the arguments is passed on as it comes, once the name is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pagedd.text.tools import CALL_BEGIN, CALL_END

_ARGUMENTS = ("arguments", "parameters")


@dataclass(frozen=True, slots=True)
class Said:
    """Text that is no part of a call."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call begins; its arguments follow."""

    name: str


@dataclass(frozen=True, slots=True)
class Argued:
    """More of the arguments' JSON."""

    text: str


Spoken = Said | Called | Argued


class ToolCalls:
    """The reader of one choice. What begins like a call and is none is passed on as text.

    White space before a call, and between calls, is nobody's text.
    """

    def __init__(self) -> None:
        self._held = ""  # white space, or what may be the beginning of a mark
        self._call: _Call | None = None
        self.count = 0  # calls so far

    def push(self, text: str) -> list[Spoken]:
        """More of what the model writes."""
        self._held += text
        return list(self._read())

    def finish(self, *, cut: bool = False) -> list[Spoken]:
        """The model writes no more. A call that was not closed counts if its name is known.

        ``cut``: it would have gone on, so the arguments are as far as they were written.
        """
        spoken = list(self._read())
        if self._call is not None:
            between, self._held = self._held, ""
            spoken += self._end_call(between, cut=cut)
        if self._held.strip() or (self._held and not self.count):
            spoken.append(Said(self._held))
        self._held = ""
        return spoken

    def _read(self) -> Iterator[Spoken]:
        while True:
            if self._call is None:
                before, mark, rest = self._held.partition(CALL_BEGIN)
                if not mark:
                    yield from self._say_what_is_sure()
                    return
                if before := before.rstrip():
                    yield Said(before)
                self._held, self._call = rest, _Call()
            # The closing mark may stand in a string of the arguments: the object ends first.
            taken = self._call.read(self._held)
            self._held = self._held[taken:]
            yield from self._call.spoken()
            at = self._held.find(CALL_END) if self._call.over else -1
            if at < 0:
                if self._call.over and self._call.name is not None:  # what lies between is nobody's
                    self._held = self._held[1 - len(CALL_END) :]
                return
            between = self._held[: at + len(CALL_END)]
            self._held = self._held[at + len(CALL_END) :]
            yield from self._end_call(between)

    def _say_what_is_sure(self) -> Iterator[Spoken]:
        sure = self._held[: len(self._held) - _overlap(self._held, CALL_BEGIN)].rstrip()
        if sure:
            yield Said(sure)
            self._held = self._held[len(sure) :]

    def _end_call(self, between: str, *, cut: bool = False) -> Iterator[Spoken]:
        """``between``: what stands from the end of the object to that of the closing mark."""
        call, self._call = self._call, None
        assert call is not None
        call.end(cut=cut)
        yield from call.spoken()
        if call.name is None:
            yield Said(CALL_BEGIN + call.seen + between)
        else:
            self.count += 1


class _Call:
    """Reads the object between the marks, one character after the other."""

    def __init__(self) -> None:
        self.seen = ""
        self.name: str | None = None
        self.over = False  # the object has ended, or cannot be one
        self._told = False  # the name
        self._depth = 0
        self._quote = -1  # where the string that is being read begins
        self._escaped = False
        self._key: str | None = None
        self._value = -1  # where the value of ``_key`` begins, at depth 1
        self._arguments: tuple[int, int] | None = None  # where they are in ``seen``, so far
        self._object = False  # they are an object, and not written as a string
        self._passed = 0  # up to here they have been passed on
        self._final = False
        self._cut = False  # before the object had ended

    def read(self, text: str) -> int:
        """Take what belongs to the object; the number of characters taken."""
        begin = len(self.seen)
        seen, self.seen = self.seen, ""  # held by one name alone it grows in place
        seen += text
        self.seen = seen
        for at, char in enumerate(text):
            if self.over or not self._take(char, begin + at):
                self.over = True
                self.seen = self.seen[: begin + at]
                return at
        return len(text)

    def end(self, *, cut: bool) -> None:
        """No more comes. ``cut``: though the model would have gone on."""
        self._cut = cut and not self.over
        if self._cut and self._value >= 0 and self._key == "name" and self.name is None:
            self.name = _string(self.seen[self._value :])
        self.over = True
        self._final = True

    def spoken(self) -> Iterator[Spoken]:
        """What can be passed on by now."""
        if self.name is None:
            return
        if not self._told:
            self._told = True
            yield Called(self.name)
        if self._arguments is not None and self._object:
            begin, end = self._arguments
            text = self.seen[max(begin, self._passed) : end]
            self._passed = end
            if text:
                yield Argued(text)
        elif self._final and (text := self._other_arguments()):
            yield Argued(text)

    def _other_arguments(self) -> str:
        """None at all, or JSON in a string, as some models write it."""
        if self._arguments is None:
            return "" if self._cut else "{}"
        begin, end = self._arguments
        text = self.seen[begin:end].strip()
        if self._cut and text.startswith('"'):
            return _begun_string(text)
        if self._cut and "null".startswith(text):
            return ""
        return _string(text) or ("{}" if text == "null" else text)

    def _take(self, char: str, here: int) -> bool:
        """False: no JSON object goes on like this. ``here``: where ``char`` is in ``seen``."""
        if self._quote >= 0:
            self._in_string(char, here)
        elif char == '"':
            self._quote = here
        elif char in "{[":
            if self._depth == 0 and char == "[":
                return False
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            if self._depth == 0:
                self._end_value(here)
                self.over = True
        elif self._depth == 0:
            return char.isspace()
        elif self._depth == 1 and char == ":":
            self._value = here + 1
        elif self._depth == 1 and char == ",":
            self._end_value(here)
        elif char == "<":
            return False
        self._follow_arguments(char, here)
        return True

    def _in_string(self, char: str, here: int) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            if self._depth == 1 and self._value < 0:
                self._key = _string(self.seen[self._quote : here + 1])
            self._quote = -1

    def _end_value(self, here: int) -> None:
        if self._value >= 0 and self._key == "name":
            self.name = _string(self.seen[self._value : here])
        self._key, self._value = None, -1

    def _follow_arguments(self, char: str, here: int) -> None:
        if self._key not in _ARGUMENTS or self._value < 0 or here < self._value:
            return
        if self._arguments is None:
            if not char.isspace():
                self._arguments, self._object = (here, here + 1), char == "{"
        elif self._arguments[1] == here:  # they go on up to here
            ended = self._object and self._depth == 1 and char != "}"
            if not ended:
                self._arguments = (self._arguments[0], here + 1)


def _overlap(text: str, mark: str) -> int:
    """Characters at the end of ``text`` that ``mark`` may begin with."""
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:size]):
            return size
    return 0


def _string(text: str) -> str | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def _begun_string(text: str) -> str:
    """What is in a string that may not have ended, half an escape left out."""
    whole = _string(text)
    if whole is not None:
        return whole
    for end in range(len(text), max(0, len(text) - 6), -1):
        begun = _string(text[:end] + '"')
        if begun is not None:
            return begun
    return ""
