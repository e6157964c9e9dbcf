"""The daemon's status: the last counters of the engine, and what only the daemon knows."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

import psutil
from msgspec import UNSET, Struct

from pagedd.core.events import HostPageCounts as CoreHostPageCounts
from pagedd.core.events import PageCounts as CorePageCounts
from pagedd.core.events import Stats
from pagedd.engine.messages import Ready, Step
from pagedd.protocol import (
    Counters,
    HostPageCounts,
    PageCounts,
    PreemptionCounts,
    PrefixCounts,
    RequestCounts,
    Status,
    TokenCounts,
)
from pagedd.server.advice import Limits, advise
from pagedd.server.pressure import PressureGauge

State = Literal["loading", "ready", "stalled", "failed", "draining"]

RATE_WINDOW_S = 5.0
STEP_WINDOW_S = 1.0

# the others are totals
_NOW = (
    "running",
    "waiting",
    "swapped",
    "pages",
    "host_pages",
    "unused_slots",
    "sequences",
    "most_pages",
)
_NO_PAGES = CorePageCounts(0, 0, 0, 0, 0)
_NO_HOST_PAGES = CoreHostPageCounts(0, 0, 0, 0)
_NO_STATS = Stats(0, 0, 0, _NO_PAGES, _NO_HOST_PAGES, *[0] * 18)


class Facts(Struct, frozen=True, kw_only=True):
    """What the status takes from other parts at the moment it is asked."""

    state: State
    reason: str | None
    engine_pid: int
    connections: int
    endpoints: tuple[str, ...]
    held: int = 0  # requests that wait for another engine


def _free_memory() -> int:
    return int(psutil.virtual_memory().available)


class StatusBoard:
    """Takes every step in, gives a Status out. Totals go on when the engine is restarted.

    ``fixed_pages``: the number of pages was asked for. ``free_memory``: bytes of the host's memory
    that nobody uses.
    """

    def __init__(
        self,
        version: str,
        boot_id: str,
        model: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        fixed_pages: bool = False,
        free_memory: Callable[[], int] = _free_memory,
    ) -> None:
        self._version = version
        self._boot_id = boot_id
        self._model = model
        self._clock = clock
        self._fixed_pages = fixed_pages
        self._free_memory = free_memory
        self._gauge = PressureGauge()
        self._began = clock()
        self._ready: Ready | None = None
        self._stats = _NO_STATS
        self._before = _NO_STATS  # totals of the engines before this one
        self._lost = 0  # requests that ended because an engine died
        self._cancelled = 0  # requests that were cancelled while no engine had them
        self._drawn: deque[tuple[float, int]] = deque()  # time, tokens of one step
        self._phases: deque[tuple[float, dict[str, float]]] = deque()

    def engine_ready(self, ready: Ready) -> None:
        """A new engine: its pages are free, its counters start at zero."""
        self._ready = ready
        pages = CorePageCounts(ready.num_pages, ready.num_pages, 0, 0, 0)
        host = CoreHostPageCounts(ready.num_host_pages, ready.num_host_pages, 0, 0)
        self._stats = _NO_STATS._replace(pages=pages, host_pages=host)

    def engine_lost(self, open_requests: int) -> None:
        """The engine died with so many requests open."""
        stats, before = self._stats, self._before
        totals = {
            name: getattr(before, name) + getattr(stats, name)
            for name in Stats._fields
            if name not in _NOW
        }
        self._before = before._replace(**totals)
        self._stats = _NO_STATS
        self._gauge.reset()
        self._lost += open_requests

    @property
    def busy(self) -> bool:
        """The engine had work at its last report."""
        return self._stats.running + self._stats.waiting > 0

    def cancelled(self) -> None:
        """A request was cancelled while no engine had it."""
        self._cancelled += 1

    def step(self, step: Step) -> None:
        """What one step did."""
        now = self._clock()
        self._stats = step.stats
        if step.events.tokens:
            self._drawn.append((now, len(step.events.tokens)))
        if step.phases:
            self._phases.append((now, step.phases))
        self._gauge.step(step, now)
        self._forget(now)

    def ended(self, pages_peak: int, choices: int) -> None:
        """A request with so many choices ended; it held at most so many pages."""
        self._gauge.ended(pages_peak, choices)

    def status(self, facts: Facts) -> Status:
        """The picture of this moment."""
        now = self._clock()
        self._forget(now)
        ready, stats, before = self._ready, self._stats, self._before
        preemptions = self._preemptions()
        pages, host = stats.pages, stats.host_pages
        return Status(
            version=self._version,
            boot_id=self._boot_id,
            state=facts.state,
            reason=UNSET if facts.reason is None else facts.reason,
            pid=os.getpid(),
            engine_pid=facts.engine_pid,
            uptime_s=round(now - self._began, 3),
            model=self._model if ready is None else ready.model,
            device="" if ready is None else ready.device,
            dtype="" if ready is None else ready.dtype,
            page_size=0 if ready is None else ready.page_size,
            max_model_len=0 if ready is None else ready.max_model_len,
            requests=self._requests(facts.held),
            pages=PageCounts(*pages),
            host_pages=HostPageCounts(*host),
            preemptions=preemptions,
            recomputed_tokens=before.recomputed_tokens + stats.recomputed_tokens,
            swapped_bytes=before.swapped_bytes + stats.swapped_bytes,
            prefix=PrefixCounts(
                before.prefix_queries + stats.prefix_queries,
                before.prefix_hits + stats.prefix_hits,
            ),
            tokens=TokenCounts(
                before.prompt_tokens + stats.prompt_tokens,
                before.generated_tokens + stats.generated_tokens,
                self._per_second(now),
            ),
            step_ms=self._step_ms(),
            connections=facts.connections,
            endpoints=list(facts.endpoints),
            advice=self._advice(now) or UNSET,
            num_requests_running=stats.running,
            num_requests_waiting=stats.waiting + facts.held,
            num_requests_swapped=stats.swapped,
            gpu_cache_usage=_share(pages.owned + pages.shared, pages.total),
            host_cache_usage=_share(host.swapped + host.cached, host.total),
            num_preemptions=preemptions.swap + preemptions.recompute,
            num_steps=before.steps + stats.steps,
            unused_slots=stats.unused_slots,
            spilled_pages=before.spilled_pages + stats.spilled_pages,
            host_hits=before.host_hits + stats.host_hits,
        )

    def counters(self) -> Counters:
        """Those of a state frame."""
        stats, before, now = self._stats, self._before, self._clock()
        self._forget(now)
        pages, host, preemptions = stats.pages, stats.host_pages, self._preemptions()
        return Counters(
            num_requests_running=stats.running,
            num_requests_waiting=stats.waiting,
            num_requests_swapped=stats.swapped,
            gpu_cache_usage=_share(pages.owned + pages.shared, pages.total),
            host_cache_usage=_share(host.swapped + host.cached, host.total),
            prefix_hit_rate=_share(
                before.prefix_hits + stats.prefix_hits, before.prefix_queries + stats.prefix_queries
            ),
            tokens_per_second=self._per_second(now),
            preemptions_total=preemptions.swap + preemptions.recompute,
            step_ms=self._step_ms(),
        )

    def _requests(self, held: int) -> RequestCounts:
        stats, before = self._stats, self._before
        return RequestCounts(
            running=stats.running,
            waiting=stats.waiting + held,
            swapped=stats.swapped,
            finished_total=before.finished_total + stats.finished_total,
            cancelled_total=before.cancelled_total + stats.cancelled_total + self._cancelled,
            failed_total=before.failed_total + stats.failed_total + self._lost,
        )

    def _preemptions(self) -> PreemptionCounts:
        stats, before = self._stats, self._before
        return PreemptionCounts(
            before.preemptions_swap + stats.preemptions_swap,
            before.preemptions_recompute + stats.preemptions_recompute,
        )

    def _advice(self, now: float) -> str | None:
        pressure, ready = self._gauge.pressure(now), self._ready
        if pressure is None or ready is None:
            return None
        free = self._free_memory() if ready.free_bytes is None else ready.free_bytes
        limits = Limits(
            num_pages=ready.num_pages,
            page_size=ready.page_size,
            page_bytes=ready.page_bytes,
            weights_bytes=ready.weights_bytes,
            free_bytes=free,
            max_num_seqs=ready.max_num_seqs,
            max_model_len=ready.max_model_len,
            dtype=ready.dtype,
            fixed_pages=self._fixed_pages,
        )
        return advise(pressure, limits)

    def _forget(self, now: float) -> None:
        while self._drawn and self._drawn[0][0] < now - RATE_WINDOW_S:
            self._drawn.popleft()
        while self._phases and self._phases[0][0] < now - STEP_WINDOW_S:
            self._phases.popleft()

    def _per_second(self, now: float) -> float:
        """Over the last RATE_WINDOW_S, or since the first of these tokens if that is shorter."""
        if not self._drawn:
            return 0.0
        span = max(now - self._drawn[0][0], STEP_WINDOW_S)
        return round(sum(count for _, count in self._drawn) / span, 1)

    def _step_ms(self) -> dict[str, float]:
        sums: dict[str, float] = {}
        for _, phases in self._phases:
            for name, seconds in phases.items():
                sums[name] = sums.get(name, 0.0) + seconds
        count = len(self._phases)
        return {name: round(total * 1000 / count, 3) for name, total in sums.items()}


def _share(used: int, total: int) -> float:
    return round(used / total, 4) if total else 0.0
