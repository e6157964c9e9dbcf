"""What the scheduler tells the daemon. Tuples, so that a step's message stays small.

Within one step the daemon reads the lists of :class:`StepEvents` in the order of its fields.
Times are milliseconds. ``choice`` is the one (0 ≤ choice < n) that the event is about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pagedd.core.plan import TokenLogprobs


class Accepted(NamedTuple):
    handle: int
    queue_position: int  # 0 = next


class Started(NamedTuple):
    """The request's first chunk was scheduled."""

    handle: int
    cached_tokens: int
    queued_ms: float


class Preempted(NamedTuple):
    handle: int
    choice: int
    mode: str  # "swap" or "recompute"
    reason: str  # one sentence
    pages: int


class Resumed(NamedTuple):
    handle: int
    choice: int
    mode: str
    reason: str
    pages: int


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


class Failed(NamedTuple):
    """The request ended with an error: ``code`` is a wire code."""

    handle: int
    code: str
    message: str
    detail: dict[str, int]


@dataclass(slots=True)
class StepEvents:
    """All that happened in one step or one batch of commands."""

    accepted: list[Accepted] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    resumed: list[Resumed] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(
            (
                self.accepted,
                self.started,
                self.preempted,
                self.resumed,
                self.tokens,
                self.finished,
                self.failed,
            )
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
