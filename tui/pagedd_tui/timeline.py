"""How a request spent its time: queued, prefill, decode, preempted. From records and the feed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from pagedd.protocol import Record
from pagedd_tui import tones
from pagedd_tui.clock import brief
from pagedd_tui.plain import Line, line

Span = tuple[float, float, str]  # from, to, phase

# The states of rows, and what records say, as phases.
_PHASES: Mapping[str, str] = MappingProxyType(
    {
        "waiting": "queued",
        "prefilling": "prefill",
        "decoding": "decode",
        "swapped": "preempted",
        "preempted": "preempted",
    }
)
_BEGINS: Mapping[str, str] = MappingProxyType(
    {
        "accepted": "queued",
        "admitted": "prefill",
        "resumed": "decode",
        "preempted": "preempted",
        "finished": "",
        "failed": "",
    }
)
_GLYPHS: Mapping[str, str] = MappingProxyType(
    {"queued": "░", "prefill": "▒", "decode": "█", "preempted": "▁"}
)
_ASCII: Mapping[str, str] = MappingProxyType(
    {"queued": "-", "prefill": "=", "decode": "#", "preempted": "_"}
)
_STYLES = MappingProxyType(
    {
        "queued": tones.WARN,
        "prefill": tones.ACCENT,
        "decode": tones.GOOD,
        "preempted": tones.BAD,
    }
)


def spans(records: Iterable[Record], seen: Sequence[tuple[float, str]], now: float) -> list[Span]:
    """One after the other until ``now``, or until it ended.

    Records tell what came before the dashboard looked; states that were ``seen`` are finer.
    """
    points = [(at, _PHASES.get(state, state)) for at, state in seen]
    first = points[0][0] if points else float("inf")
    for record in records:
        phase = _BEGINS.get(record.kind)
        if phase is not None and (record.at < first or not phase):
            points.append((record.at, phase))
    points.sort(key=_when)
    found: list[Span] = []
    for i, (at, phase) in enumerate(points):
        if not phase:
            break
        end = points[i + 1][0] if i + 1 < len(points) else max(now, at)
        if found and found[-1][2] == phase:
            found[-1] = (found[-1][0], end, phase)
        else:
            found.append((at, end, phase))
    return found


def timeline_lines(found: Sequence[Span], width: int, ascii: bool) -> list[Line]:
    """A bar to scale, and what each phase took together."""
    if not found:
        return [line(("nothing is known of it yet", tones.DIM))]
    start, end = found[0][0], found[-1][1]
    glyphs = _ASCII if ascii else _GLYPHS
    width = max(width, 8)
    bar: list[tuple[str, str]] = []
    for cell in range(width):
        at = start + (cell + 0.5) * (end - start) / width
        phase = next((each[2] for each in found if at < each[1]), found[-1][2])
        if bar and bar[-1][1] == phase:
            bar[-1] = (bar[-1][0] + glyphs.get(phase, "?"), phase)
        else:
            bar.append((glyphs.get(phase, "?"), phase))
    totals: dict[str, float] = {}
    for begin, until, phase in found:
        totals[phase] = totals.get(phase, 0.0) + until - begin
    times = sum(1 for each in found if each[2] == "preempted")
    parts = []
    for phase, seconds in totals.items():
        often = f" {times} times" if phase == "preempted" and times > 1 else ""
        parts.append((f"{glyphs.get(phase, '?')} ", _STYLES.get(phase, tones.TEXT)))
        parts.append((f"{phase}{often} {brief(seconds)}   ", tones.TEXT))
    return [line(*((text, _STYLES.get(phase, tones.TEXT)) for text, phase in bar)), line(*parts)]


def _when(point: tuple[float, str]) -> float:
    return point[0]
