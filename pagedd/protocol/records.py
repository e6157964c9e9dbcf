"""Why things are as they are: the records of ``explanation`` and ``event`` frames."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

Kind = Literal[
    "accepted",
    "admitted",
    "waiting",
    "running",
    "preempted",
    "resumed",
    "evicted",
    "shrunk",
    "reprioritized",
    "finished",
    "failed",
    "missed",
]


class Holder(Struct, frozen=True):
    """Who holds a part of what somebody waits for; ``alone``: pages that nobody else names."""

    request: str
    handle: int
    index: int
    priority: int
    pages: int
    alone: int


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision or state, as data and as a sentence. Which fields there are depends on ``kind``.

    ``at`` is in seconds since 1970. ``handle`` is the daemon's own number for the request, never
    used twice; ids of clients are unique on their connection only. Times are in milliseconds.
    """

    at: float
    kind: str  # one of Kind; a later daemon may know more
    text: str  # one sentence
    request: str | UnsetType = UNSET
    handle: int | UnsetType = UNSET
    index: int | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    # accepted
    queue_position: int | UnsetType = UNSET
    prompt_tokens: int | UnsetType = UNSET
    # admitted, resumed, running, preempted, evicted
    pages: int | UnsetType = UNSET
    cached_tokens: int | UnsetType = UNSET
    queued_ms: float | UnsetType = UNSET
    # waiting
    limit: Literal["slots", "pages", "tokens", "turn"] | UnsetType = UNSET
    needed: int | UnsetType = UNSET
    available: int | UnsetType = UNSET
    short: int | UnsetType = UNSET
    headroom: int | UnsetType = UNSET
    ahead: int | UnsetType = UNSET
    first: str | UnsetType = UNSET
    first_handle: int | UnsetType = UNSET
    holders: list[Holder] | UnsetType = UNSET
    others: int | UnsetType = UNSET
    # preempted, resumed
    mode: Literal["swap", "recompute"] | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    lack: Literal["slots", "pages", "memory"] | UnsetType = UNSET
    taker: str | UnsetType = UNSET  # the request that it gave way to
    taker_handle: int | UnsetType = UNSET
    taker_priority: int | UnsetType = UNSET
    choice_of_mode: (
        Literal["configured", "no_swap_space", "swap_space_full", "estimate", "trial"] | UnsetType
    ) = UNSET
    swap_ms: float | UnsetType = UNSET
    recompute_ms: float | UnsetType = UNSET
    host_needed: int | UnsetType = UNSET
    host_available: int | UnsetType = UNSET
    kept_tokens: int | UnsetType = UNSET
    # running
    state: str | UnsetType = UNSET
    computed: int | UnsetType = UNSET
    tokens: int | UnsetType = UNSET
    generated: int | UnsetType = UNSET
    shared: int | UnsetType = UNSET
    # evicted
    saved: int | UnsetType = UNSET
    host_pages: int | UnsetType = UNSET
    # shrunk
    rows: int | UnsetType = UNSET
    most: int | UnsetType = UNSET
    # reprioritized
    before: int | UnsetType = UNSET
    aged: bool | UnsetType = UNSET
    # finished, failed
    reason: str | UnsetType = UNSET  # "finished", "cancelled", or the error's code
    # missed: so many events were not sent, because the client did not read
    count: int | UnsetType = UNSET


class Event(Record, tag="event", frozen=True, kw_only=True, omit_defaults=True):
    """One record of the ``events`` feed, at the moment it happens."""


class PageTable(Struct, frozen=True):
    """Of one continuation: the pages of the device in logical order, and how many tables name each.

    ``host``: host pages that keep what it has computed, in logical order from ``host_start`` on,
    while it is swapped or is being copied back.
    """

    index: int
    pages: list[int]
    refs: list[int]
    host: list[int]
    host_start: int


class Explanation(Struct, tag="explanation", frozen=True, omit_defaults=True):
    """Where a request is and why: first what led there, the oldest first, then how it stands.

    ``eta_ms`` is a range, from measured rates: until the request begins or goes on; when it runs,
    until it ends. ``text``: the end of what each of ``tables`` has said so far.
    """

    id: str
    state: str
    reasons: list[Record]
    eta_ms: tuple[float, float] | UnsetType = UNSET
    tables: list[PageTable] | UnsetType = UNSET
    text: list[str] | UnsetType = UNSET
