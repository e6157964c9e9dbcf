"""What the scheduler tells the daemon. Tuples, so that a step's message stays small.

Within one step the daemon reads the lists of :class:`StepEvents` in the order of its fields.
Times are milliseconds. ``choice`` is the one (0 ≤ choice < n) that the event is about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pagedd.core.plan import TokenLogprobs

MAX_HOLDERS = 8  # that a Waiting names


class Accepted(NamedTuple):
    handle: int
    queue_position: int  # 0 = next


class Started(NamedTuple):
    """The request was admitted: its first chunk was scheduled, or the copies that go before it."""

    handle: int
    cached_tokens: int
    queued_ms: float
    pages: int  # that it holds now, found or taken


class Reprioritized(NamedTuple):
    """The request's priority is another now; ``aged`` if only because it waited for long."""

    handle: int
    before: int
    priority: int
    aged: bool


class Holder(NamedTuple):
    """Who holds a part of what somebody waits for. A request before its fork is choice 0."""

    handle: int
    choice: int
    priority: int
    pages: int  # that it names
    alone: int  # of these, those that nobody else names


class Waiting(NamedTuple):
    """Why a sequence is not in the batch, with the numbers of this moment.

    ``limit`` is the first that it meets: "slots", "pages", "tokens" (those before it use up the
    step) or "turn" (it would fit, but those ``ahead`` in the queue do not; with none ahead, it is
    admitted by the next plan).
    ``needed``, ``available`` and ``short`` count in that limit's unit: slots; pages, of which
    ``needed`` includes ``headroom``, those that an admission leaves to what runs and that what runs
    takes in the step itself; tokens, of which one would do. For "turn" they are 0.
    """

    handle: int
    choice: int
    limit: str
    needed: int
    available: int
    short: int  # max(needed - available, 0)
    headroom: int
    ahead: int  # sequences before it in the queue
    first: int  # the handle of the first of them, or its own
    holders: tuple[Holder, ...]  # of slots or pages, who holds most first; at most MAX_HOLDERS
    others: int  # holders that are not named


class Preempted(NamedTuple):
    """A sequence gave its slot and pages back.

    ``lack``: what the ``taker`` (itself, when all others come first) lacked: "pages", "slots", or
    the device's "memory" for a step of so many rows.
    ``choice_of_mode``: "configured", "no_swap_space", "swap_space_full", "estimate" (the quicker)
    or "trial" (the other one: it was not measured for long). The two estimates are of bringing it
    back in either way.
    """

    handle: int
    choice: int
    mode: str  # "swap" or "recompute"
    pages: int
    policy: str
    priority: int
    lack: str
    taker: int
    taker_priority: int
    choice_of_mode: str
    swap_ms: float
    recompute_ms: float
    host_needed: int
    host_available: int


class Resumed(NamedTuple):
    """A sequence is back in the batch, with ``kept`` of its ``tokens`` still computed."""

    handle: int
    choice: int
    mode: str
    pages: int
    kept: int
    tokens: int


class Evicted(NamedTuple):
    """Cached pages whose memory one step gave to somebody else."""

    pages: int  # of the device
    saved: int  # of these, those that live on in host memory
    host_pages: int  # of host memory, forgotten


class Shrunk(NamedTuple):
    """The device had no memory for a step of ``rows``; for now steps have at most ``most``."""

    rows: int
    most: int


class Token(NamedTuple):
    """A drawn token; with ``finish`` it is the last of its choice.

    ``stop`` is the id of ``stop_token_ids`` that ended the choice; None for the model's own end
    tokens (then ``finish`` = "stop" all the same).
    """

    handle: int
    choice: int
    token: int
    logprobs: TokenLogprobs | None = None
    finish: str | None = None  # "stop" or "length"
    stop: int | None = None


class Ledger(NamedTuple):
    """Where a request's time and memory went (``ledger`` on the wire)."""

    queued_ms: float
    prefill_ms: float
    decode_ms: float
    preempted_ms: float
    preemptions: int
    pages_peak: int
    page_seconds: float
    recomputed_tokens: int
    swapped_bytes: int


class Finished(NamedTuple):
    """All choices have ended, or the request was cancelled (``cancelled``)."""

    handle: int
    cancelled: bool
    cached_tokens: int
    ledger: Ledger


class Running(NamedTuple):
    """A sequence in the batch."""

    handle: int
    choice: int
    state: str
    priority: int
    computed: int  # tokens in the cache
    tokens: int  # known: prompt and drawn
    generated: int
    pages: int
    shared: int  # of these, those that others name too


class Table(NamedTuple):
    """The page table of one choice: device pages in logical order, and how many tables name each.

    ``host``: host pages that keep what it has computed, in logical order from ``host_start`` on.
    """

    choice: int
    pages: tuple[int, ...]
    refs: tuple[int, ...]
    host: tuple[int, ...]
    host_start: int


class Explained(NamedTuple):
    """The answer to an explain command: where a request is and why, in the order of its choices.

    ``state`` is that of its sequence that is furthest; "" when the request is not known (any more).
    When it is not the first of the queue, the last of ``waiting`` is what the first waits for.
    ``eta_ms``: until it begins or goes on, or, when it runs, until it ends; an estimated range.
    """

    ref: int  # of the command
    handle: int
    state: str
    waiting: tuple[Waiting, ...]
    running: tuple[Running, ...]
    eta_ms: tuple[float, float] | None
    tables: tuple[Table, ...] = ()


class Failed(NamedTuple):
    """The request ended with an error: ``code`` is a wire code.

    ``retry_after_ms``: when trying again may help, as far as the scheduler can tell.
    """

    handle: int
    code: str
    message: str
    detail: dict[str, int]
    retry_after_ms: int | None = None


@dataclass(slots=True)
class StepEvents:
    """All that happened in one step or one batch of commands."""

    accepted: list[Accepted] = field(default_factory=list)
    reprioritized: list[Reprioritized] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    evicted: list[Evicted] = field(default_factory=list)
    shrunk: list[Shrunk] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    resumed: list[Resumed] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)  # when what the first waits for changes
    tokens: list[Token] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    explained: list[Explained] = field(default_factory=list)

    def __bool__(self) -> bool:
        # Asked in every step: written out, the most frequent first.
        return bool(
            self.tokens
            or self.finished
            or self.started
            or self.accepted
            or self.reprioritized
            or self.preempted
            or self.evicted
            or self.shrunk
            or self.resumed
            or self.waiting
            or self.failed
            or self.explained
        )


class PageCounts(NamedTuple):
    """Device pages by state: free + cached + owned + shared = total."""

    total: int
    free: int
    cached: int
    owned: int
    shared: int


class HostPageCounts(NamedTuple):
    """Host pages by state: free + swapped + cached = total."""

    total: int
    free: int
    swapped: int
    cached: int


class Stats(NamedTuple):
    """Counters of the scheduler; totals count from the engine's start."""

    running: int
    waiting: int
    swapped: int  # sequences whose pages wait in host memory
    pages: PageCounts
    host_pages: HostPageCounts
    finished_total: int
    cancelled_total: int
    failed_total: int
    preemptions_swap: int
    preemptions_recompute: int
    recomputed_tokens: int
    swapped_bytes: int  # out and in together
    prefix_queries: int  # tokens asked
    prefix_hits: int  # tokens found
    prompt_tokens: int
    generated_tokens: int
    steps: int
    unused_slots: int  # token slots in held pages that hold no token, now
    spilled_pages: int  # evicted from the device, and kept in host memory
    host_hits: int  # tokens found in host memory, of prefix_hits
    sequences: int  # in slots, now
    most_pages: int  # of the request in slots that holds most, now
    computed_tokens: int  # rows of all steps: prompts, drawn tokens and what was computed again
