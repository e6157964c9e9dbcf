"""What the simulated scheduler tells, as the records that a daemon would send of it.

The sentences say the same as a daemon's, in short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pagedd.core.events import (
    Accepted,
    Evicted,
    Failed,
    Finished,
    Preempted,
    Reprioritized,
    Resumed,
    Running,
    Started,
    StepEvents,
    Waiting,
)
from pagedd.core.wording import counted
from pagedd.protocol import Holder

Told = (
    Accepted
    | Evicted
    | Failed
    | Finished
    | Preempted
    | Reprioritized
    | Resumed
    | Running
    | Started
    | Waiting
)
EVICTIONS_EVERY_S = 1.0
_NAMED_HOLDERS = 3  # that a sentence names; the record has more


class Who(NamedTuple):
    """A request as its client would know it."""

    id: str
    prompt_tokens: int
    choices: int


Names = Mapping[int, Who]  # by handle


class Evictions:
    """A full cache evicts in nearly every step; what it evicts is told together, once a second."""

    def __init__(self) -> None:
        self._untold = Evicted(0, 0, 0)
        self._told = 0.0  # when

    def due(self, evicted: list[Evicted], now: float) -> list[Evicted]:
        """Count ``evicted``; all of them in one, if it is time to tell."""
        for each in evicted:
            self._untold = Evicted(*(a + b for a, b in zip(self._untold, each, strict=True)))
        if not any(self._untold) or now - self._told < EVICTIONS_EVERY_S:
            return []
        told, self._untold, self._told = self._untold, Evicted(0, 0, 0), now
        return [told]


def in_order(events: StepEvents, evicted: list[Evicted]) -> list[Told]:
    """What is told of a step, in the daemon's order; ``evicted`` for the evictions."""
    return [
        *events.accepted,
        *events.reprioritized,
        *events.preempted,
        *evicted,
        *events.started,
        *events.resumed,
        *events.waiting,
        *events.finished,
        *events.failed,
    ]


def fields_of(event: Told, names: Names) -> dict[str, Any]:
    """The fields of its record but for the time."""
    match event:
        case Evicted():
            return {"kind": "evicted", "text": _evicted(event), **event._asdict()}
        case Accepted(handle, place):
            who = _name(names, handle)
            where = f"behind {counted(place, 'other')}" if place else "first in the queue"
            text = f"{who} joined the queue, {where}."
            more: dict[str, Any] = {"queue_position": place}
            if handle in names:
                more["prompt_tokens"] = names[handle].prompt_tokens
            return _about(event.handle, names, "accepted", text, more)
        case Started():
            return _started(event, names)
        case Reprioritized(handle, before, priority, aged):
            why = " because it waited for long" if aged else ""
            text = f"{_name(names, handle)} goes from priority {before} to {priority}{why}."
            more = {"before": before, "priority": priority, "aged": aged}
            return _about(handle, names, "reprioritized", text, more)
        case Waiting():
            return _waiting(event, names)
        case Running():
            return _running(event, names)
        case Preempted():
            return _preempted(event, names)
        case Resumed():
            return _resumed(event, names)
        case Finished():
            return _finished(event, names)
        case Failed(handle, code, message):
            text = f"{_name(names, handle)} failed ({code}): {message}."
            return _about(handle, names, "failed", text, {"reason": code})


def _about(
    handle: int, names: Names, kind: str, text: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    who = {"request": names[handle].id} if handle in names else {}
    return {"kind": kind, "text": text, "handle": handle, **who, **more}


def _id(names: Names, handle: int) -> str:
    return names[handle].id if handle in names else ""


def _name(names: Names, handle: int, choice: int | None = None) -> str:
    id = _id(names, handle)
    name = f"{id} (#{handle})" if id else f"#{handle}"
    several = handle in names and names[handle].choices > 1
    return f"choice {choice} of {name}" if choice is not None and several else name


def _started(event: Started, names: Names) -> dict[str, Any]:
    text = (
        f"{_name(names, event.handle)} was admitted after {event.queued_ms / 1e3:.1f} s with "
        f"{counted(event.pages, 'page')}; {event.cached_tokens:,} of its prompt tokens were in "
        f"the cache."
    )
    more = {name: getattr(event, name) for name in ("cached_tokens", "queued_ms", "pages")}
    return _about(event.handle, names, "admitted", text, more)


def _waiting(event: Waiting, names: Names) -> dict[str, Any]:
    who = _name(names, event.handle, event.choice)
    if event.limit == "turn":
        text = f"{who} waits for its turn" if event.ahead else f"{who} is next"
    else:
        text = (
            f"{who} waits for {event.limit}: it needs {event.needed:,}, {event.available:,} free, "
            f"{event.short:,} short"
        )
    if event.holders:
        named = event.holders[:_NAMED_HOLDERS]
        held = [f"{_name(names, each.handle)} with {each.pages:,}" for each in named]
        text += f"; most are held by {', '.join(held)}"
    if event.ahead:
        first = _name(names, event.first)
        text += f"; {counted(event.ahead, 'sequence')} before it, first {first}"
    same = ("limit", "needed", "available", "short", "headroom", "ahead", "others")
    more: dict[str, Any] = {name: getattr(event, name) for name in same}
    more |= {"index": event.choice, "first": _id(names, event.first), "first_handle": event.first}
    more["holders"] = [
        Holder(
            request=_id(names, each.handle),
            handle=each.handle,
            index=each.choice,
            priority=each.priority,
            pages=each.pages,
            alone=each.alone,
        )
        for each in event.holders
    ]
    return _about(event.handle, names, "waiting", text + ".", more)


def _running(event: Running, names: Names) -> dict[str, Any]:
    who = _name(names, event.handle, event.choice)
    if event.state == "decoding":
        does = f"is decoding, {counted(event.generated, 'token')} so far"
    else:
        does = f"computes what it has, {event.computed:,} of {event.tokens:,} tokens so far"
    held = f"{counted(event.pages, 'page')}, {event.shared:,} of them shared"
    more = event._asdict()
    more["index"] = more.pop("choice")
    return _about(event.handle, names, "running", f"{who} {does}, on {held}.", more)


def _preempted(event: Preempted, names: Names) -> dict[str, Any]:
    who = _name(names, event.handle, event.choice)
    taker = _name(names, event.taker)
    cause = (
        f"gave way because {event.lack} were short"
        if event.taker == event.handle
        else f"gave way to {taker}, which lacked {event.lack}"
    )
    pages = counted(event.pages, "page")
    went = "went to host memory" if event.mode == "swap" else "are to be computed again"
    if event.choice_of_mode == "swap_space_full":
        why = f"host memory is full, {event.host_available:,} of {event.host_needed:,} pages free"
    else:
        why = f"estimated: swap {event.swap_ms:.0f} ms, recompute {event.recompute_ms:.0f} ms"
    text = f"{who} {cause}: its {pages} {went} ({why}; policy {event.policy})."
    more = event._asdict()
    more |= {
        "index": more.pop("choice"),
        "taker": _id(names, event.taker),
        "taker_handle": event.taker,
    }
    return _about(event.handle, names, "preempted", text, more)


def _resumed(event: Resumed, names: Names) -> dict[str, Any]:
    who = _name(names, event.handle, event.choice)
    way = "is back from host memory" if event.mode == "swap" else "is back to compute again"
    text = f"{who} {way}: {event.kept:,} of {counted(event.tokens, 'token')} are still there."
    more = event._asdict()
    more |= {"index": more.pop("choice"), "kept_tokens": more.pop("kept")}
    return _about(event.handle, names, "resumed", text, more)


def _evicted(event: Evicted) -> str:
    pages = counted(event.pages, "cached page")
    kept = f", {event.saved:,} kept in host memory" if event.saved else ""
    forgot = f"; host memory forgot {event.host_pages:,}" if event.host_pages else ""
    return f"{pages} made room for others{kept}{forgot}."


def _finished(event: Finished, names: Names) -> dict[str, Any]:
    ledger = event.ledger
    ended = "was cancelled" if event.cancelled else "finished"
    text = (
        f"{_name(names, event.handle)} {ended}: queued {ledger.queued_ms / 1e3:.1f} s, decoded for "
        f"{ledger.decode_ms / 1e3:.1f} s, at most {counted(ledger.pages_peak, 'page')}"
    )
    if ledger.preemptions:
        times = counted(ledger.preemptions, "time")
        text += f", preempted {times} for {ledger.preempted_ms / 1e3:.1f} s"
    more = {
        "reason": "cancelled" if event.cancelled else "finished",
        "cached_tokens": event.cached_tokens,
    }
    return _about(event.handle, names, "finished", text + ".", more)
