"""Three answers in words: who holds the most pages, why the next waits, whether sharing works."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style

from pagedd.protocol import CACHED, FREE, SHARED, Record, SequenceRow
from pagedd_tui import tones
from pagedd_tui.columns import name_of
from pagedd_tui.holders import Holder, holders
from pagedd_tui.model import Model
from pagedd_tui.plain import Line, clip, fold, line, pad, plain

_LABEL = 12
_MOST = 3  # holders that are named


def glance_lines(
    model: Model,
    next_row: SequenceRow | None,
    reason: Record | None,
    mark: str,
    width: int,
    height: int,
) -> list[Line]:
    """At most ``height`` lines; ``reason``: why ``next_row`` waits, if that is known."""
    found = holders(model)  # of a large cache this takes milliseconds
    told_next = why_next(model, next_row, reason, found)
    answers = [
        ("most pages", most_pages(model, found), tones.TEXT),
        (f"{mark} next", told_next, tones.WARN if next_row else tones.TEXT),
        ("sharing", sharing(model), tones.TEXT),
    ]
    spare = max(height - len(answers), 0)
    told: dict[int, list[str]] = {}
    for place in (1, 0, 2):  # why the next waits is the longest, and is asked most
        told[place] = _folded(answers[place][1], max(width - _LABEL, 8), spare)
        spare -= len(told[place]) - 1
    lines: list[Line] = []
    for place, (label, _, style) in enumerate(answers):
        lines += _answer(label, told[place], style)
    return lines[:height]


def _folded(text: str, room: int, spare: int) -> list[str]:
    """Lines of the text: one, and at most ``spare`` more; what goes beyond them is cut."""
    folded = fold(text, room, spare + 2)
    if len(folded) <= spare + 1:
        return folded
    rest = " ".join(folded[spare:])
    return [*folded[:spare], clip(f"{rest} {text[len(rest) :]}", room)]


def most_pages(model: Model, found: Sequence[Holder] | None = None) -> str:
    """Which request holds the most pages of the device; ``found``: ``holders(model)``, if known."""
    found = holders(model) if found is None else found
    if not found:
        return "no request holds a page of the device"
    first, *others = found
    total = len(model.pages)
    share = f", {first.pages / total:.0%}" if total else ""
    several = f", in {len(first.rows)} choices" if len(first.rows) > 1 else ""
    equal = [other.name(24) for other in others if other.pages == first.pages]
    also = f"; {equal[0]} as many" if len(equal) == 1 else f"; {len(equal)} others as many"
    return (
        f"{first.name(40)} holds {first.pages} of {total} pages{share}{several}; "
        f"it is {first.state}{also if equal else ''}"
    )


def why_next(
    model: Model,
    row: SequenceRow | None,
    reason: Record | None,
    found: Sequence[Holder] | None = None,
) -> str:
    """Why the first of those that wait does; ``found``: ``holders(model)``, if known.

    What it needs is known from the last answer of the daemon; what there is, and who has it, is
    that of the picture, so that the sentence and the maps say the same.
    """
    if row is None:
        return "nobody waits"
    who = f"{name_of(row, 40)} ({plain(row.state, 20)})"
    if reason is None:
        return f"{who} is the first that waits"
    needed, headroom = reason.needed, reason.headroom
    if reason.limit != "pages" or not isinstance(needed, int):
        return plain(reason.text, 400)
    spare = headroom if isinstance(headroom, int) else 0
    free, cached = model.pages.counts[FREE], model.pages.counts[CACHED]
    most = holders(model) if found is None else found
    kept = f", and {spare} more are to stay available" if spare else ""
    return (
        f"{who} waits for pages: it needs {needed - spare}{kept}; {free + cached} are available "
        f"({free} free, {cached} cached). Most are held by {_named(most)}"
    )


def sharing(model: Model) -> str:
    """Whether prompts find their beginnings in the cache."""
    rate, shared = model.counters.prefix_hit_rate, model.pages.counts[SHARED]
    kept = model.pages.counts[CACHED]
    verdict = "works" if rate > 0 or shared else "nothing is shared yet"
    return (
        f"{verdict}: {rate:.0%} of prompt tokens came from the cache, {shared} pages shared; "
        f"{kept} cached for later"
    )


def reason_of(records: Sequence[Record], handle: int, index: object) -> Record | None:
    """The one of ``records`` that says why a sequence waits, if there is one."""
    own = [each for each in records if each.kind == "waiting" and each.handle == handle]
    exact = [each for each in own if each.index == index]
    found = exact or own
    return found[-1] if found else None


def _named(most: Sequence[Holder]) -> str:
    """The first of them, and how many pages each holds."""
    return ", ".join(f"{each.name(24)} ({each.pages})" for each in most[:_MOST]) or "nobody"


def _answer(label: str, folded: list[str], style: Style) -> list[Line]:
    head = line((pad(label, _LABEL), tones.KEY), (folded[0], style))
    return [head, *(line((" " * _LABEL, tones.TEXT), (text, style)) for text in folded[1:])]
