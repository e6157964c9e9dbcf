"""Three answers in words: who holds the most pages, why the next waits, whether sharing works."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style

from pagedd.protocol import CACHED, SHARED, Record, SequenceRow
from pagedd_tui import tones
from pagedd_tui.columns import is_held, name_of
from pagedd_tui.model import Model
from pagedd_tui.plain import Line, clip, fold, line, pad, plain

_LABEL = 12


def glance_lines(
    model: Model, next_row: SequenceRow | None, reason: str, mark: str, width: int, height: int
) -> list[Line]:
    """At most ``height`` lines; ``reason``: the sentence about ``next_row``, if there is one."""
    answers = [
        ("most pages", most_pages(model), tones.TEXT),
        (f"{mark} next", why_next(next_row, reason), tones.WARN if next_row else tones.TEXT),
        ("sharing", sharing(model), tones.TEXT),
    ]
    spare = max(height - len(answers), 0)
    lines: list[Line] = []
    for label, text, style in answers:
        room = max(width - _LABEL, 8)
        folded = fold(text, room, spare + 2)
        if len(folded) > spare + 1:
            rest = " ".join(folded[spare:])
            folded = [*folded[:spare], clip(f"{rest} {text[len(rest) :]}", room)]
        spare -= len(folded) - 1
        lines += _answer(label, folded, style)
    return lines[:height]


def most_pages(model: Model) -> str:
    """Which request holds the most pages of the device."""
    held = [row for row in model.rows.values() if is_held(row)]
    most = max(held, key=_pages, default=None)
    if most is None or not most.pages:
        return "no request holds a page of the device"
    total = len(model.pages)
    share = f", {most.pages / total:.0%}" if total else ""
    return f"{name_of(most, 40)} holds {most.pages} of {total} pages{share}; it is {most.state}"


def why_next(row: SequenceRow | None, reason: str) -> str:
    """Why the first of those that wait does."""
    if row is None:
        return "nobody waits"
    return reason or f"{name_of(row, 40)} is the first that waits ({plain(row.state, 20)})"


def sharing(model: Model) -> str:
    """Whether prompts find their beginnings in the cache."""
    rate, shared = model.counters.prefix_hit_rate, model.pages.counts[SHARED]
    kept = model.pages.counts[CACHED]
    verdict = "works" if rate > 0 or shared else "nothing is shared yet"
    return (
        f"{verdict}: {rate:.0%} of prompt tokens came from the cache, {shared} pages shared now; "
        f"{kept} cached for later"
    )


def reason_of(records: Sequence[Record], handle: int, index: object) -> str:
    """The sentence that says why a sequence waits, among records; empty if none does."""
    own = [each for each in records if each.kind == "waiting" and each.handle == handle]
    exact = [each for each in own if each.index == index]
    found = exact or own
    return plain(found[-1].text, 400) if found else ""


def _answer(label: str, folded: list[str], style: Style) -> list[Line]:
    head = line((pad(label, _LABEL), tones.KEY), (folded[0], style))
    return [head, *(line((" " * _LABEL, tones.TEXT), (text, style)) for text in folded[1:])]


def _pages(row: SequenceRow) -> tuple[int, int]:
    return row.pages, -row.handle
