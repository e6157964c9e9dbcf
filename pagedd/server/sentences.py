"""Entries of the journal in plain words, with their numbers.

A request is named by its client's id and by its handle: r41 (#17). Ids are clients' data: they
are shown, shortened if they are long, and never read as anything else.
"""

from __future__ import annotations

from typing import assert_never

from pagedd.core.events import (
    Accepted,
    Evicted,
    Failed,
    Finished,
    Holder,
    Ledger,
    Preempted,
    Reprioritized,
    Resumed,
    Running,
    Shrunk,
    Started,
    Waiting,
)
from pagedd.core.wording import counted
from pagedd.server.journal import Entry

_LONGEST_ID = 40  # characters
_HOLDERS = 3  # that a sentence names; the record has more


def sentence(entry: Entry) -> str:
    """One sentence, ended by a full stop."""
    event = entry.event
    match event:
        case Accepted():
            return _accepted(entry, event)
        case Started():
            return _started(entry, event)
        case Waiting():
            return _waiting(entry, event)
        case Running():
            return _running(entry, event)
        case Preempted():
            return _preempted(entry, event)
        case Resumed():
            return _resumed(entry, event)
        case Evicted():
            return _evicted(event)
        case Shrunk():
            return (
                f"the device had no memory for a step of {counted(event.rows, 'token')}; for now "
                f"steps have at most {event.most:,}."
            )
        case Reprioritized():
            why = ", because it waited for long" if event.aged else ""
            who = _name(entry, event.handle)
            return f"{who} has priority {event.priority} now, after {event.before}{why}."
        case Finished():
            verb = "was cancelled" if event.cancelled else "finished"
            return f"{_name(entry, event.handle)} {verb}: {_account(event)}."
        case Failed():
            message = event.message.rstrip(".")
            return f"{_name(entry, event.handle)} failed ({event.code}): {message}."
        case _:
            assert_never(event)


def named(id: str, handle: int) -> str:
    """r41 (#17), or #17 when the id is not known any more."""
    if len(id) > _LONGEST_ID:
        id = id[: _LONGEST_ID - 1] + "…"
    return f"{id} (#{handle})" if id else f"#{handle}"


def span(ms: float) -> str:
    """A time in milliseconds: 0.3 ms, 45 ms, 2.1 s."""
    if ms < 10:
        return f"{ms:.1f} ms"
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def amount(size: float) -> str:
    """Bytes: 12 KiB, 3.4 MiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _are(number: int, noun: str = "") -> str:
    """1 is, 2 are; 1 sequence is, 2 sequences are."""
    who = counted(number, noun) if noun else f"{number:,}"
    return f"{who} is" if number == 1 else f"{who} are"


def _name(entry: Entry, handle: int, choice: int | None = None) -> str:
    name = named(entry.id_of(handle), handle)
    several = choice or (entry.who is not None and entry.who.choices > 1)
    return f"choice {choice} of {name}" if choice is not None and several else name


def _accepted(entry: Entry, event: Accepted) -> str:
    ahead = event.queue_position
    place = f"behind {counted(ahead, 'other')}" if ahead else "first in the queue"
    came = ""
    if entry.who is not None:
        tokens = counted(entry.who.prompt_tokens, "prompt token")
        came = f" with {tokens} and priority {entry.who.priority}"
    return f"{_name(entry, event.handle)} joined the queue{came}, {place}."


def _started(entry: Entry, event: Started) -> str:
    found = f"{event.cached_tokens:,} of its prompt tokens were in the cache"
    return (
        f"{_name(entry, event.handle)} was admitted after {span(event.queued_ms)}: it holds "
        f"{counted(event.pages, 'page')}, and {found}."
    )


def _waiting(entry: Entry, event: Waiting) -> str:
    who = _name(entry, event.handle, event.choice)
    queue = ""
    if event.ahead:
        first = _name(entry, event.first)
        queue = f"{_are(event.ahead, 'sequence')} before it, first {first}"
    if event.limit == "turn":
        if not queue:
            return f"{who} is next: nothing keeps it from the next step."
        return f"{who} waits for its turn: it would fit, but {queue}."
    tokens = event.limit == "tokens"
    what = "tokens of the step, which prefills before it use up" if tokens else event.limit
    spare = f" ({event.headroom:,} of them to be left free)" if event.headroom else ""
    parts = [
        f"{who} waits for {what}: it needs {event.needed:,}{spare}, {_are(event.available)} free, "
        f"{_are(event.short)} short"
    ]
    if event.holders:
        parts.append(_held(entry, event))
    if queue:
        parts.append(queue)
    return "; ".join(parts) + "."


def _held(entry: Entry, event: Waiting) -> str:
    """Who has what it waits for."""

    def one(holder: Holder) -> str:
        who = _name(entry, holder.handle, holder.choice or None)
        return f"{who} with {counted(holder.pages, 'page')}"

    names = [one(holder) for holder in event.holders[:_HOLDERS]]
    others = event.others + len(event.holders) - len(names)
    if others:
        names.append(f"{others:,} more")
    *first, last = names
    return "they are held by " + (f"{', '.join(first)} and {last}" if first else last)


def _running(entry: Entry, event: Running) -> str:
    if event.state == "decoding":
        what = f"is decoding: {counted(event.generated, 'token')} generated"
    else:
        what = f"is computing what it has: {event.computed:,} of {event.tokens:,} tokens"
    shared = f", {event.shared:,} of them shared" if event.shared else ""
    return (
        f"{_name(entry, event.handle, event.choice)} {what}, on {counted(event.pages, 'page')}"
        f"{shared}, priority {event.priority}."
    )


def _preempted(entry: Entry, event: Preempted) -> str:
    who = _name(entry, event.handle, event.choice)
    if event.lack == "memory":
        way = "gave way because the device had no memory for a step of so many tokens, "
        way += f"policy {event.policy}"
    elif event.taker == event.handle:
        way = f"gave way because {event.lack} were short and all others come first, "
        way += f"policy {event.policy}"
    else:
        taker = _name(entry, event.taker)
        ranks = (
            f"both have priority {event.priority}"
            if event.priority == event.taker_priority
            else f"priority {event.taker_priority} comes before {event.priority}"
        )
        way = f"gave way to {taker}, which lacked {event.lack}: {ranks}, policy {event.policy}"
    pages = counted(event.pages, "page")
    swaps = event.mode == "swap"
    went = f"its {pages} went to host memory" if swaps else f"its {pages} are to be computed again"
    return f"{who} {way}; {went} ({_mode(event)})."


def _mode(event: Preempted) -> str:
    """Why in this way."""
    estimates = f"swap {span(event.swap_ms)}, recompute {span(event.recompute_ms)}"
    match event.choice_of_mode:
        case "no_swap_space":
            return "there is no swap space; estimated to recompute " + span(event.recompute_ms)
        case "swap_space_full":
            return (
                f"too little host memory: {counted(event.host_needed, 'host page')} needed, "
                f"{event.host_available:,} available; estimated: {estimates}"
            )
        case "configured":
            return f"{event.mode} as configured; estimated: {estimates}"
        case "trial":
            return f"trial of {event.mode}, which was not measured for long; estimated: {estimates}"
        case _:
            return f"estimated: {estimates}"


def _resumed(entry: Entry, event: Resumed) -> str:
    way = "came back from host memory" if event.mode == "swap" else "is computed again"
    return (
        f"{_name(entry, event.handle, event.choice)} {way}: {event.kept:,} of its "
        f"{counted(event.tokens, 'token')} are in the cache, on {counted(event.pages, 'page')}."
    )


def _evicted(event: Evicted) -> str:
    said = []
    if event.pages:
        saved = ""
        if event.saved:
            number = "" if event.saved == event.pages else f"{event.saved:,} of them "
            saved = f", {number}kept in host memory"
        said.append(f"{counted(event.pages, 'cached page')} made room for others{saved}")
    if event.host_pages:
        said.append(f"host memory forgot {counted(event.host_pages, 'cached page')}")
    return "; ".join(said) + "."


def _account(event: Finished) -> str:
    """The main figures of the ledger."""
    ledger: Ledger = event.ledger
    parts = [
        f"queued {span(ledger.queued_ms)}",
        f"prefill {span(ledger.prefill_ms)}",
        f"decode {span(ledger.decode_ms)}",
        f"at most {counted(ledger.pages_peak, 'page')}",
    ]
    if event.cached_tokens:
        parts.append(f"{counted(event.cached_tokens, 'token')} from the cache")
    if ledger.preemptions:
        parts.append(
            f"preempted {counted(ledger.preemptions, 'time')} for {span(ledger.preempted_ms)}"
        )
    if ledger.recomputed_tokens:
        parts.append(f"{counted(ledger.recomputed_tokens, 'token')} computed again")
    if ledger.swapped_bytes:
        parts.append(f"{amount(ledger.swapped_bytes)} swapped")
    return ", ".join(parts)
