"""Records as a daemon makes them, for what the commands show of them."""

from __future__ import annotations

from pagedd.protocol import Event, Explanation, Holder, Record

NOW = 1_700_000_000.0
HOSTILE = "r\x1b[2J\x07\x9b1m\nX"

ACCEPTED = Record(
    at=NOW - 75.25,
    kind="accepted",
    text="r41 (#17) joined the queue with 120 prompt tokens, behind 3 others, priority 0.",
    request="r41",
    handle=17,
    priority=0,
    queue_position=3,
    prompt_tokens=120,
)
ADMITTED = Record(
    at=NOW - 12.4,
    kind="admitted",
    text="r41 (#17) was admitted after 62.9 s: it holds 8 pages, and 0 of its prompt tokens were "
    "in the cache.",
    request="r41",
    handle=17,
    pages=8,
    cached_tokens=0,
    queued_ms=62_850.0,
)
PREEMPTED = Record(
    at=NOW - 0.34,
    kind="preempted",
    text="r41 (#17) gave way to r3 (#5), which lacked pages: priority -5 comes before 0, policy "
    "length; its 9 pages went to host memory (estimated: swap 2.1 ms, recompute 45 ms).",
    request="r41",
    handle=17,
    index=0,
    priority=0,
    pages=9,
    mode="swap",
    policy="length",
    lack="pages",
    taker="r3",
    taker_handle=5,
    taker_priority=-5,
    choice_of_mode="estimate",
    swap_ms=2.1,
    recompute_ms=45.0,
    host_needed=9,
    host_available=100,
)
WAITING = Record(
    at=NOW,
    kind="waiting",
    text="r41 (#17) waits for pages: it needs 9 (1 of them to be left free), 3 are free, 6 are "
    "short; they are held by r3 (#5) with 57 pages, r7 (#9) with 12 pages and 2 more.",
    request="r41",
    handle=17,
    index=0,
    limit="pages",
    needed=9,
    available=3,
    short=6,
    headroom=1,
    ahead=0,
    first="r41",
    first_handle=17,
    holders=[Holder("r3", 5, 0, -5, 57, 50), Holder("r7", 9, 0, 0, 12, 12)],
    others=2,
)
TURN = Record(
    at=NOW,
    kind="waiting",
    text="r42 (#18) waits for its turn: it would fit, but 1 sequence is before it, first r41 "
    "(#17).",
    request="r42",
    handle=18,
    index=0,
    limit="turn",
    needed=2,
    available=3,
    short=0,
    headroom=1,
    ahead=1,
    first="r41",
    first_handle=17,
    holders=[],
    others=0,
)
RUNNING = Record(
    at=NOW,
    kind="running",
    text="r3 (#5) is decoding: 300 tokens generated, on 57 pages, 7 of them shared, priority -5.",
    request="r3",
    handle=5,
    index=0,
    state="decoding",
    priority=-5,
    computed=1811,
    tokens=1812,
    generated=300,
    pages=57,
    shared=7,
)
WAITS = Explanation("#17", "swapped", [ACCEPTED, ADMITTED, PREEMPTED, WAITING], (2000.0, 9400.0))
BEHIND = Explanation("#18", "waiting", [TURN, WAITING], (2300.0, 12_000.0))
RUNS = Explanation("#5", "decoding", [RUNNING], (1900.0, 2100.0))


def event(record: Record, at: float = NOW) -> Event:
    """The same record in the feed."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return Event(**{**fields, "at": at})
