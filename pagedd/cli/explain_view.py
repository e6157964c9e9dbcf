"""An explanation as lines for a person: how a request came there, and why it stands so."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pagedd.cli.record_view import COLOURS, LEAST_CELLS, Paper, name_of, request_name, sentence_of
from pagedd.cli.terminal import one_line
from pagedd.cli.times import ago, span
from pagedd.protocol import Explanation, Holder, Record

MOST_PAST = 20  # records of the past that are shown
_RUNS = ("prefilling", "decoding", "running")
_LIMITS = {
    "pages": "pages",
    "slots": "slots in the batch",
    "tokens": "tokens of the step: prefills before it use them up",
    "turn": "its turn: it would fit, but others come before it",
}


def explanation_lines(explanation: Explanation, paper: Paper) -> list[str]:
    """Lines without newline and without control characters of the data."""
    past, present = split(explanation)
    now = present[-1].at if present else time.time()
    lines = [_head(explanation, paper)]
    if past:
        lines += ["", paper.style("how it came there", "1"), *_past(past, now, paper)]
    if present:
        title = "how it runs" if explanation.state in _RUNS else "why it waits"
        lines += ["", paper.style(title, "1")]
        own = [record for record in present if record.handle == present[0].handle]
        listed: list[Holder] = []
        for record in present:
            if record in own or _want(record) != _want(own[-1]):
                lines += _present(record, own, listed, paper)
                listed = record.holders if isinstance(record.holders, list) else []
    return lines


def table_lines(explanations: Sequence[Explanation], paper: Paper) -> list[str]:
    """A line for each: name, state, when it goes on, and the sentence of how it stands."""
    rows = []
    for each in explanations:
        past, present = split(each)
        record = present[0] if present else past[-1] if past else None
        text = "" if record is None else sentence_of(record)
        name = each.id if record is None else name_of(record, paper)
        rows.append((paper.clip(name), one_line(each.state), eta(each), text))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    lines = []
    for name, state, when, text in rows:
        column = f"{name:<{widths[0]}}  {state:<{widths[1]}}  {when:<{widths[2]}}  "
        coloured = paper.style(f"{state:<{widths[1]}}", COLOURS.get(state, "0"))
        shown = f"{paper.style(f'{name:<{widths[0]}}', '1')}  {coloured}  {when:<{widths[2]}}  "
        room = max(paper.columns - len(column), LEAST_CELLS)
        lines.append(shown + (paper.clip(text, room) if paper.folds else one_line(text)))
    return lines


def split(explanation: Explanation) -> tuple[list[Record], list[Record]]:
    """What led there, and how it stands: the last records, all of the same moment."""
    reasons = explanation.reasons
    first = len(reasons)
    while (
        first
        and reasons[first - 1].kind in ("waiting", "running")
        and reasons[first - 1].at == reasons[-1].at
    ):
        first -= 1
    return reasons[:first], reasons[first:]


def eta(explanation: Explanation) -> str:
    """When it starts, goes on or ends; empty where that is not known."""
    if not isinstance(explanation.eta_ms, tuple):
        return ""
    verb = "starts" if explanation.state == "waiting" else "goes on"
    if explanation.state in _RUNS:
        verb = "ends"
    low, high = explanation.eta_ms
    if max(low, high) < 0.5:
        return f"{verb} at once"
    return f"{verb} in {span(low, high)}"


def _head(explanation: Explanation, paper: Paper) -> str:
    reasons, state = explanation.reasons, one_line(explanation.state)
    name = name_of(reasons[0], paper) if reasons else ""
    parts = [
        paper.style(name or paper.clip(explanation.id), "1"),
        paper.style(state, COLOURS.get(state, "0")),
        eta(explanation),
    ]
    return "  ".join(part for part in parts if part)


def _past(past: Sequence[Record], now: float, paper: Paper) -> list[str]:
    """What happened, the oldest first: how long ago, what, and the sentence."""
    lines = []
    if len(past) > MOST_PAST:
        lines.append(f"  ({len(past) - MOST_PAST} earlier ones: --json has all)")
        past = past[-MOST_PAST:]
    times = [ago(now - record.at) for record in past]
    kinds = [paper.clip(record.kind) for record in past]
    time_cells, kind_cells = max(map(len, times)), max(map(len, kinds))
    for record, when, kind in zip(past, times, kinds, strict=True):
        when, kind = f"{when:>{time_cells}}", f"{kind:<{kind_cells}}"
        coloured = paper.style(kind, COLOURS.get(record.kind, "0"))
        shown = f"  {paper.style(when, '2')}  {coloured}  "
        lines += paper.beside(f"  {when}  {kind}  ", shown, sentence_of(record))
    return lines


def _want(record: Record) -> tuple[object, ...]:
    """What it waits for: where that is the same for two, it is shown once."""
    return record.limit, record.needed, record.available, record.holders


def _present(
    record: Record, own: Sequence[Record], listed: Sequence[Holder], paper: Paper
) -> list[str]:
    """The numbers of one state, and who holds what is missing unless those were just ``listed``."""
    lines = []
    if record not in own:
        lines += ["", f"  {name_of(record, paper)} is the first in the queue, and waits itself"]
    elif len(own) > 1 and record.kind == "waiting" and isinstance(record.index, int):
        lines += [""] * (record is not own[0]) + [f"  choice {record.index}"]
    running = record.kind == "running"
    facts = _running(record) if running else _waiting(record, paper)
    if not facts or (running and len(own) > 1):
        return [*lines, *paper.beside("  ", "  ", sentence_of(record))]
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        column = f"  {name:<{width}}  "
        lines += paper.beside(column, paper.style(column, "2"), text)
    if isinstance(record.holders, list) and record.holders and record.holders != listed:
        lines += _holders(record.holders, record.others, paper)
    return lines


def _waiting(record: Record, paper: Paper) -> list[tuple[str, str]]:
    """Name and text of what a waiting sequence meets; empty when it is not said."""
    limit = record.limit
    if not isinstance(limit, str):
        return []
    if limit == "turn" and record.ahead == 0:
        return [("limit", "none: it begins with the next step")]
    facts = [("limit", _LIMITS.get(limit, limit))]
    if isinstance(record.needed, int) and limit != "turn":
        kept = record.headroom if isinstance(record.headroom, int) else 0
        more = f", with {kept:,} to be left free" if kept else ""
        facts.append(("needs", f"{record.needed:,}{more}"))
        facts += [("free", f"{record.available:,}"), ("short", f"{record.short:,}")]
    if isinstance(record.ahead, int) and record.ahead:
        first = request_name(record.first_handle, record.first, paper)
        behind = f"{record.ahead:,} in the queue"
        facts.append(("behind", f"{behind}, {first} first" if first else behind))
    return facts


def _running(record: Record) -> list[tuple[str, str]]:
    facts = []
    if isinstance(record.state, str):
        facts.append(("state", record.state))
    if isinstance(record.computed, int) and isinstance(record.tokens, int):
        drawn = f", {record.generated:,} generated" if isinstance(record.generated, int) else ""
        noun = "token" if record.tokens == 1 else "tokens"
        facts.append(("in the cache", f"{record.computed:,} of {record.tokens:,} {noun}{drawn}"))
    if isinstance(record.pages, int):
        common = f", {record.shared:,} of them shared" if record.shared else ""
        facts.append(("pages", f"{record.pages:,}{common}"))
    if isinstance(record.priority, int):
        facts.append(("priority", f"{record.priority}"))
    return facts


def _holders(holders: Sequence[Holder], others: object, paper: Paper) -> list[str]:
    """Who holds what is missing, in columns."""
    several = {each.handle for each in holders if each.index}
    names = [
        request_name(each.handle, each.request, paper)
        + (f" choice {each.index}" if each.handle in several else "")
        for each in holders
    ]
    rows = [("held by", "priority", "pages", "alone")]
    rows += [
        (name, str(each.priority), str(each.pages), str(each.alone))
        for name, each in zip(names, holders, strict=True)
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [""]
    for row in rows:
        cells = [f"{row[0]:<{widths[0]}}", *(f"{row[i]:>{widths[i]}}" for i in (1, 2, 3))]
        lines.append("  " + "  ".join(cells))
    lines[1] = paper.style(lines[1], "2")
    if isinstance(others, int) and others:
        lines.append(f"  and {others} more")
    return lines
