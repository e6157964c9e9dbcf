"""The columns of the requests: what each says, how wide it is, and how it sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagedd.protocol import SequenceRow
from pagedd_tui.cells import RowKey
from pagedd_tui.clock import brief
from pagedd_tui.plain import plain

_ORDER = {"decoding": 0, "prefilling": 1, "swapped": 2, "preempted": 2, "waiting": 2}
_HOLDS = frozenset(("decoding", "prefilling"))


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the table: of the feed, and how long it has waited until now, in seconds."""

    row: SequenceRow
    waited: float

    @property
    def key(self) -> RowKey:
        """Its place in the model."""
        return self.row.handle, self.row.index


def name_of(row: SequenceRow, width: int | None = None) -> str:
    """The client's name for it, and which of its choices: r41, r41/2."""
    return plain(f"{row.id}/{row.index}" if row.index else row.id, width)


def is_held(row: SequenceRow) -> bool:
    """Whether its pages are of the device: a swapped sequence's are host pages."""
    return row.state in _HOLDS


def cached_share(row: SequenceRow) -> float:
    """How much of its prompt was found in the cache, 0 to 1."""
    return row.cached_tokens / row.prompt_tokens if row.prompt_tokens else 0.0


def _by_state(entry: Entry) -> tuple[int, ...]:
    row = entry.row
    group = _ORDER.get(row.state, 3)
    if group < 2:
        return (group, -row.pages, row.handle, row.index)
    return (group, row.priority, row.handle, row.index)  # as they wait


def _by_id(entry: Entry) -> tuple[str, int]:
    return entry.row.id, entry.row.index


def _by_tokens(entry: Entry) -> int:
    return -(entry.row.prompt_tokens + entry.row.generated)


def _by_pages(entry: Entry) -> int:
    return -entry.row.pages


def _by_priority(entry: Entry) -> int:
    return entry.row.priority


def _by_wait(entry: Entry) -> float:
    return -entry.waited


def _by_cached(entry: Entry) -> float:
    return -cached_share(entry.row)


def _state(entry: Entry) -> str:
    return plain(entry.row.state, 10)


def _tokens(entry: Entry) -> str:
    return f"{entry.row.prompt_tokens}→{entry.row.generated}"


def _pages(entry: Entry) -> str:
    return f"{entry.row.pages}p"


def _priority(entry: Entry) -> str:
    return str(entry.row.priority)


def _wait(entry: Entry) -> str:
    return brief(entry.waited) if entry.waited >= 0.0005 else "-"


def _cached(entry: Entry) -> str:
    return f"{cached_share(entry.row):.0%}"


def _id(entry: Entry) -> str:
    return name_of(entry.row)


@dataclass(frozen=True, slots=True)
class Column:
    """``keep``: in a narrow table the columns with the highest number go first."""

    name: str
    title: str
    width: int  # cells; the id takes what is left
    text: Callable[[Entry], str]
    key: Callable[[Entry], Any]
    keep: int
    right: bool = True


COLUMNS = (
    Column("id", "REQUEST", 9, _id, _by_id, 0, right=False),
    Column("state", "STATE", 10, _state, _by_state, 1, right=False),
    Column("tokens", "PROMPT→GEN", 11, _tokens, _by_tokens, 3),
    Column("pages", "PAGES", 5, _pages, _by_pages, 2),
    Column("priority", "PRI", 4, _priority, _by_priority, 6),
    Column("wait", "WAITED", 6, _wait, _by_wait, 4),
    Column("cached", "CACHED", 6, _cached, _by_cached, 5),
)
SORTS = ("state", "id", "tokens", "pages", "priority", "wait", "cached")
_LONGEST_ID, _SHORTEST_BARS = 28, 10
MARKS = 2  # cells before the id: the chosen one, and the next to be admitted


def fitting(width: int) -> list[Column]:
    """The columns that have room, in their order; the id's width grows."""
    chosen: list[Column] = []
    room = width - MARKS
    for column in sorted(COLUMNS, key=_keep):
        if not chosen or column.width + 1 <= room:
            chosen.append(column)
            room -= column.width + (1 if len(chosen) > 1 else 0)
    return [column for column in COLUMNS if column in chosen]


def widths(columns: Sequence[Column], width: int) -> tuple[int, int]:
    """Of the id's column, and of the bars at the right, which there are in wide tables."""
    room = width - MARKS - sum(each.width + 1 for each in columns if each.name != "id")
    bars = room - _LONGEST_ID - 2
    return (_LONGEST_ID, bars) if bars >= _SHORTEST_BARS else (room, 0)


def ordered(entries: Iterable[Entry], sort: str, reverse: bool) -> list[Entry]:
    """Sorted by a column; equals as by state."""
    column = next((each for each in COLUMNS if each.name == sort), COLUMNS[1])
    found = sorted(entries, key=_by_state)
    found.sort(key=column.key, reverse=reverse)
    return found


def first_waiting(rows: Mapping[RowKey, SequenceRow], named: int | None) -> RowKey | None:
    """The first of the queue: the one that the daemon has ``named``, if it still waits.

    Else, until the daemon says it again, the most urgent that came first.
    """
    waiting = [row for row in rows.values() if not is_held(row)]
    of_named = [row for row in waiting if row.handle == named]
    first = min(of_named or waiting, key=_urgency, default=None)
    return None if first is None else (first.handle, first.index)


def _urgency(row: SequenceRow) -> tuple[int, int, int]:
    return row.priority, row.handle, row.index


def _keep(column: Column) -> int:
    return column.keep
