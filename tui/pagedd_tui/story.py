"""All about one request, as lines: how it stands, why, its time, its pages, its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagedd.protocol import Event, Explanation, Holder, Record, SequenceRow
from pagedd_tui import tones
from pagedd_tui.clock import brief, time_of_day
from pagedd_tui.columns import cached_share
from pagedd_tui.model import Model
from pagedd_tui.page_table import sharing_lines, table_lines
from pagedd_tui.palette import Palette
from pagedd_tui.plain import Line, fold, line, pad, plain
from pagedd_tui.timeline import spans, timeline_lines

_PRESENT = ("waiting", "running")
_ENDS = ("finished", "failed")
_MOST_PAST = 30
_TEXT_LINES = 12


@dataclass(frozen=True, slots=True)
class Subject:
    """A request that is looked at, and what is known of it. ``rows``: its choices, if it is open.

    ``seen``: its states with their times. ``note``: why there is no newer explanation.
    """

    handle: int
    name: str
    rows: tuple[SequenceRow, ...]
    waited: float
    explanation: Explanation | None
    events: tuple[Event, ...]
    seen: tuple[tuple[float, str], ...]
    now: float
    note: str = ""


def story_lines(subject: Subject, model: Model, palette: Palette, width: int) -> list[Line]:
    """Everything, for a width; the panel scrolls."""
    records = _records(subject)
    past = [each for each in records if each.kind not in _PRESENT]
    lines = [_head(subject), *_facts(subject, width)]
    if subject.note:
        lines += [line((text, tones.BAD)) for text in fold(plain(subject.note, 400), width)]
    lines += _standing(subject, width)
    ends = [each for each in past if each.kind in _ENDS]
    if ends:
        lines += [(), _title("ledger"), *_folded(ends[-1].text, width)]
    lines += [(), _title("timeline")]
    lines += timeline_lines(spans(past, subject.seen, subject.now), width, palette.ascii)
    lines += _pages(subject, model, palette, width)
    lines += _texts(subject, width)
    lines += _past(past, width)
    return lines


def present_of(explanation: Explanation) -> list[Record]:
    """How it stands: the last records, all of the same moment. What is before them is past."""
    reasons = explanation.reasons
    found: list[Record] = []
    for record in reversed(reasons):
        if record.kind not in _PRESENT or record.at != reasons[-1].at:
            break
        found.insert(0, record)
    return found


def _records(subject: Subject) -> list[Record]:
    """Those of the explanation, and events that came since; each once, the oldest first."""
    known: list[Record] = []
    if subject.explanation is not None:
        present = len(present_of(subject.explanation))
        reasons = subject.explanation.reasons
        known = list(reasons[: len(reasons) - present])
    told = {(round(each.at, 3), each.kind, each.index) for each in known}
    known += [
        each for each in subject.events if (round(each.at, 3), each.kind, each.index) not in told
    ]
    known.sort(key=_when)
    return known


def _head(subject: Subject) -> Line:
    explanation = subject.explanation
    state = subject.rows[0].state if subject.rows else "ended"
    parts = [
        (f"{subject.name} (#{subject.handle})", tones.STRONG),
        (f"  {plain(state, 20)}", tones.STATES.get(state, tones.TEXT)),
    ]
    if subject.rows and explanation is not None and isinstance(explanation.eta_ms, tuple):
        low, high = (brief(max(ms, 0.0) / 1000) for ms in explanation.eta_ms)
        verb = {"waiting": "begins", "swapped": "goes on", "preempted": "goes on"}.get(
            state, "ends"
        )
        when = f"in {low}" if low == high else f"in {low} to {high}"
        parts.append((f"  {verb} {when}", tones.TEXT))
    return line(*parts)


def _facts(subject: Subject, width: int) -> list[Line]:
    if not subject.rows:
        return []
    row = subject.rows[0]
    generated = "+".join(str(each.generated) for each in subject.rows)
    pages = "+".join(str(each.pages) for each in subject.rows)
    text = (
        f"prompt {row.prompt_tokens} tokens, {row.cached_tokens} found in the cache "
        f"({cached_share(row):.0%}); generated {generated}; pages {pages}; "
        f"priority {row.priority}; waited {brief(subject.waited)}"
    )
    return _folded(text, width)


def _standing(subject: Subject, width: int) -> list[Line]:
    """Why it waits, or how it runs."""
    present = [] if subject.explanation is None else present_of(subject.explanation)
    if not present or not subject.rows:
        return []
    waits = any(each.kind == "waiting" for each in present)
    lines: list[Line] = [(), _title("why it waits" if waits else "how it runs")]
    for record in present:
        lines += _folded(record.text, width)
        if isinstance(record.holders, list) and record.holders:
            lines += [_holder(holder) for holder in record.holders]
            if isinstance(record.others, int) and record.others:
                lines.append(line((f"  and {record.others} more", tones.DIM)))
    return lines


def _holder(holder: Holder) -> Line:
    name = f"{plain(holder.request, 30)} (#{holder.handle})"
    return line(
        (f"  {pad(name, 24)} ", tones.STRONG),
        (f"holds {holder.pages} pages, {holder.alone} alone, ", tones.TEXT),
        (f"priority {holder.priority}", tones.TEXT),
    )


def _pages(subject: Subject, model: Model, palette: Palette, width: int) -> list[Line]:
    explanation = subject.explanation
    if explanation is None or not isinstance(explanation.tables, list) or not explanation.tables:
        return []
    tables = explanation.tables
    lines: list[Line] = [(), _title("page table: logical→physical")]
    for table in tables:
        lines += table_lines(table, palette, width, len(tables) > 1)
    lines += [(), _title("who shares its pages")]
    return [*lines, *sharing_lines(tables, subject.handle, model, width)]


def _texts(subject: Subject, width: int) -> list[Line]:
    explanation = subject.explanation
    if explanation is None or not isinstance(explanation.text, list):
        return []
    lines: list[Line] = []
    for i, text in enumerate(explanation.text):
        name = f", choice {i}" if len(explanation.text) > 1 else ""
        folded = fold(plain(text[-4000:]), width)[-_TEXT_LINES:]
        lines += [(), _title(f"its text{name}"), *(line((each, tones.TEXT)) for each in folded)]
    return lines


def _past(past: Sequence[Record], width: int) -> list[Line]:
    if not past:
        return []
    lines: list[Line] = [(), _title("how it came there")]
    for record in past[-_MOST_PAST:]:
        kind = plain(record.kind, 13)
        head = line(
            (f"{time_of_day(record.at)}  ", tones.DIM),
            (pad(kind, 15), tones.KINDS.get(record.kind, tones.TEXT)),
        )
        first, *more = fold(plain(record.text, 1200), max(width - 27, 16))
        lines.append((*head, *line((first, tones.TEXT))))
        lines += [line((" " * 27 + text, tones.TEXT)) for text in more]
    return lines


def _title(text: str) -> Line:
    return line((text, tones.HEAD))


def _folded(text: str, width: int) -> list[Line]:
    return [line((each, tones.TEXT)) for each in fold(plain(text, 2000), width)]


def _when(record: Record) -> float:
    return record.at


def subject_name(rows: Sequence[SequenceRow], handle: int) -> str:
    """The client's name for a request, whichever of its choices are left."""
    return plain(rows[0].id, 40) if rows else f"#{handle}"
