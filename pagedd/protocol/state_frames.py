"""The ``state`` feed: every page and every sequence, first whole, then only what has changed.

A frame can be read by itself: what its ``owners`` name is among its own ``sequences``.
"""

from __future__ import annotations

import builtins

from msgspec import UNSET, Struct, UnsetType

# The bytes of ``cells``.
FREE, OWNED, SHARED, CACHED = 0, 1, 2, 3
SWAPPED = 1  # of host pages, instead of OWNED; they are never SHARED


class PageCells(Struct, frozen=True, omit_defaults=True):
    """One byte a page. A keyframe has ``n``; a change those of the pages ``ids``, ascending.

    In JSON the bytes are base64.
    """

    cells: builtins.bytes
    n: int | UnsetType = UNSET
    ids: list[int] | UnsetType = UNSET


class SequenceRow(Struct, frozen=True):
    """One continuation of a request: ``handle`` is the daemon's number for it, ``id`` the client's.

    A request has one row until it forks into its choices. ``computed``: tokens in the cache, or
    kept in host memory while it is swapped. ``pages``: of its page table. ``waiting_ms``: before it
    began and while it was preempted, together, as it was when the row was sent; it goes on while
    the state is ``waiting``, ``swapped`` or ``preempted``.
    """

    handle: int
    id: str
    index: int
    state: str
    priority: int
    prompt_tokens: int
    generated: int
    computed: int
    pages: int
    cached_tokens: int
    waiting_ms: float


class Counters(Struct, frozen=True):
    """Of this moment; rates of the last seconds. ``step_ms``: mean of the last second, by phase."""

    num_requests_running: int
    num_requests_waiting: int
    num_requests_swapped: int
    gpu_cache_usage: float  # owned and shared pages, of all: 0 to 1
    host_cache_usage: float  # swapped and cached pages, of all
    prefix_hit_rate: float  # prompt tokens found in the cache since the start, of those looked for
    tokens_per_second: float
    preemptions_total: int
    step_ms: dict[str, float]


class State(Struct, tag="state", frozen=True):
    """A keyframe (``key``: everything) or the changes since the frame before.

    ``owners``: for each page of ``cells`` (of the device) the sequence that holds it, as its place
    in ``sequences`` counted from 1; of several holders the first in the order of handle and index;
    0: none. ``gone``: handles; all their rows are removed before ``sequences`` is taken in, so that
    choices that go on come again.
    """

    frame: int
    at: float  # seconds since 1970
    key: bool
    pages: PageCells
    host_pages: PageCells
    owners: list[int]
    sequences: list[SequenceRow]
    gone: list[int]
    counters: Counters
