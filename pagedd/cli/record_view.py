"""A record of what happened, and of how things stand, as lines for a person."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from types import MappingProxyType
from typing import TextIO

from pagedd.cli.terminal import Style, clip, columns_of, is_terminal, one_line
from pagedd.cli.times import clock
from pagedd.protocol import Record

NAME_CELLS = 24
_KIND_CELLS = len("reprioritized")
LEAST_CELLS = 20  # for a text beside a column, however narrow the terminal is
# of kinds and of states
COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "admitted": "32",
        "running": "32",
        "resumed": "32",
        "prefilling": "32",
        "decoding": "32",
        "waiting": "33",
        "preempted": "33",
        "swapped": "33",
        "evicted": "36",
        "reprioritized": "36",
        "shrunk": "31",
        "failed": "31",
        "missed": "31",
    }
)


class Paper:
    """Where lines are written for one stream: its width, its colours and its characters."""

    def __init__(self, stream: TextIO) -> None:
        self.style = Style(stream)
        self.columns = columns_of(stream)
        self.folds = is_terminal(stream)  # elsewhere one thing is one line
        self._stream = stream

    def clip(self, text: str, cells: int = NAME_CELLS) -> str:
        """``text`` on one line, without controls, no longer than ``cells``."""
        return clip(text, cells, self._stream)

    def beside(self, column: str, shown: str, text: str) -> list[str]:
        """``text`` to the right of ``column``, folded below itself.

        ``shown`` is the column with its colours.
        """
        text = one_line(text)
        if not self.folds:
            return [f"{shown}{text}".rstrip()]
        room = max(self.columns - len(column), LEAST_CELLS)
        first, *more = wrap(text, room) or [""]
        return [f"{shown}{first}".rstrip(), *(" " * len(column) + line for line in more)]


def request_name(handle: object, request: object, paper: Paper) -> str:
    """The daemon's number of a request, and its client's name for it, as far as they are known."""
    number = f"#{handle}" if isinstance(handle, int) else ""
    called = paper.clip(request) if isinstance(request, str) else ""
    return number if called == number else f"{number} {called}".strip()


def name_of(record: Record, paper: Paper) -> str:
    """The request that a record is about; empty for none."""
    return request_name(record.handle, record.request, paper)


def sentence_of(record: Record) -> str:
    """The record's text, less the request that it is about where it begins with that."""
    text = one_line(record.text)
    if not isinstance(record.handle, int):
        return text
    name, found, rest = text.partition(f"#{record.handle}")
    name = name.rstrip("( ")
    request = one_line(record.request) if isinstance(record.request, str) else ""
    if found and (not name or request.startswith(name.rstrip("…"))):
        return rest.lstrip(") ")
    return text


def event_lines(record: Record, paper: Paper) -> list[str]:
    """One event: the local time, what kind, which request, and the sentence."""
    at, kind, name = clock(record.at), paper.clip(record.kind), name_of(record, paper)
    column = f"{at}  {kind:<{_KIND_CELLS}}  {name:<5}  "
    dimmed = paper.style(at, "2")
    coloured = paper.style(f"{kind:<{_KIND_CELLS}}", COLOURS.get(record.kind, "0"))
    return paper.beside(column, f"{dimmed}  {coloured}  {name:<5}  ", sentence_of(record))
