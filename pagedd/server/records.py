"""Entries of the journal → records of the protocol."""

from __future__ import annotations

from typing import Any, assert_never

from pagedd.core.events import (
    Accepted,
    Evicted,
    Failed,
    Finished,
    Preempted,
    Reprioritized,
    Resumed,
    Running,
    Shrunk,
    Started,
    Waiting,
)
from pagedd.core.wording import counted
from pagedd.protocol import Event, Holder, Record
from pagedd.server.journal import Entry, Told, Who
from pagedd.server.sentences import named, sentence

# Fields that an event and its record have under the same name.
_SAME = {
    Accepted: ("queue_position",),
    Started: ("cached_tokens", "queued_ms", "pages"),
    Reprioritized: ("before", "priority", "aged"),
    Waiting: ("limit", "needed", "available", "short", "headroom", "ahead", "others"),
    Preempted: (
        "mode",
        "pages",
        "policy",
        "priority",
        "lack",
        "taker_priority",
        "choice_of_mode",
        "swap_ms",
        "recompute_ms",
        "host_needed",
        "host_available",
    ),
    Resumed: ("mode", "pages", "tokens"),
    Evicted: ("pages", "saved", "host_pages"),
    Shrunk: ("rows", "most"),
    Running: ("state", "priority", "computed", "tokens", "generated", "pages", "shared"),
    Finished: ("cached_tokens",),
    Failed: (),
}
_KINDS = {
    Accepted: "accepted",
    Started: "admitted",
    Reprioritized: "reprioritized",
    Waiting: "waiting",
    Preempted: "preempted",
    Resumed: "resumed",
    Evicted: "evicted",
    Shrunk: "shrunk",
    Running: "running",
    Finished: "finished",
    Failed: "failed",
}


def record_of(entry: Entry) -> Record:
    """For an explanation."""
    return Record(**_fields(entry))


def event_of(entry: Entry) -> Event:
    """For the feed."""
    return Event(**_fields(entry))


def missed(count: int, at: float) -> Event:
    """So many events were not kept until the client read on."""
    text = f"{counted(count, 'event')} missed, because the client did not read."
    return Event(at=at, kind="missed", text=text, count=count)


def preparing(handle: int, who: Who, at: float) -> Record:
    """The engine does not know the request yet."""
    text = f"{named(who.id, handle)} waits until its prompt has been made into tokens."
    return _waiting(handle, who, at, text)


def held(handle: int, who: Who, at: float) -> Record:
    """The engine that had the request died, and the next one has not got it."""
    text = f"{named(who.id, handle)} waits for another engine: the one that had it died."
    return _waiting(handle, who, at, text)


def _waiting(handle: int, who: Who, at: float, text: str) -> Record:
    return Record(
        at=at, kind="waiting", text=text, request=who.id, handle=handle, priority=who.priority
    )


def _fields(entry: Entry) -> dict[str, Any]:
    event, kind = entry.event, type(entry.event)
    fields: dict[str, Any] = {name: getattr(event, name) for name in _SAME[kind]}
    fields |= {"at": entry.at, "kind": _KINDS[kind], "text": sentence(entry)}
    if not isinstance(event, Evicted | Shrunk):
        fields["handle"] = event.handle
        if entry.who is not None:
            fields["request"] = entry.who.id
    return fields | _special(entry, event)


def _special(entry: Entry, event: Told) -> dict[str, Any]:
    """What has another name or form on the wire."""
    match event:
        case Accepted():
            who = entry.who
            return (
                {}
                if who is None
                else {"prompt_tokens": who.prompt_tokens, "priority": who.priority}
            )
        case Waiting():
            return {
                "index": event.choice,
                "first": entry.id_of(event.first),
                "first_handle": event.first,
                "holders": [
                    Holder(
                        request=entry.id_of(holder.handle),
                        handle=holder.handle,
                        index=holder.choice,
                        priority=holder.priority,
                        pages=holder.pages,
                        alone=holder.alone,
                    )
                    for holder in event.holders
                ],
            }
        case Preempted():
            return {
                "index": event.choice,
                "taker": entry.id_of(event.taker),
                "taker_handle": event.taker,
            }
        case Resumed():
            return {"index": event.choice, "kept_tokens": event.kept}
        case Running():
            return {"index": event.choice}
        case Finished():
            return {"reason": "cancelled" if event.cancelled else "finished"}
        case Failed():
            return {"reason": event.code}
        case Started() | Reprioritized() | Evicted() | Shrunk():
            return {}
        case _:
            assert_never(event)
