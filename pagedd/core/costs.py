"""Costs: estimates of how long it takes to bring a sequence back, and so in which way."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from pagedd.core.memory import Memory
from pagedd.core.plan import StepPlan
from pagedd.core.sequence import Sequence

# A small model on two cores, and memory that other threads use too; what is measured replaces them.
PRIOR_TOKEN_SECONDS = 1 / 500
PRIOR_BYTE_SECONDS = 1 / 2e9
WEIGHT = 0.25  # of the latest measurement in the average


class Choice(NamedTuple):
    """How to preempt a sequence, why so, and what was weighed: see ``events.Preempted``."""

    mode: str
    reason: str
    swap_s: float
    recompute_s: float
    host_needed: int
    host_available: int


class Costs:
    """Estimates in seconds, from averages of what steps have taken; priors until there are any."""

    def __init__(self, memory: Memory, mode: str, page_bytes: int) -> None:
        self.token_seconds = PRIOR_TOKEN_SECONDS
        self.byte_seconds = PRIOR_BYTE_SECONDS
        self._memory = memory
        self._mode = mode
        self._page_bytes = page_bytes

    def learn(self, plan: StepPlan, phases: Mapping[str, float]) -> None:
        """What the runner measured in seconds: ``execute``, ``sample`` and perhaps ``swap``.

        A step teaches the cost of a prefill when at least half of its tokens belong to one, and
        when it drew a token: on a GPU nothing else waits for the device, so the time of other steps
        is not that of their work. Where ``swap`` is missing, nothing was measured.
        """
        longer = sum(chunk.length for chunk in plan.chunks if chunk.length > 1)
        drew = any(chunk.samples for chunk in plan.chunks)
        if "execute" in phases and drew and 2 * longer >= plan.num_tokens:
            measured = (phases["execute"] + phases.get("sample", 0.0)) / plan.num_tokens
            self.token_seconds += WEIGHT * (measured - self.token_seconds)
        moved = (len(plan.swap_out) + len(plan.swap_in)) * self._page_bytes
        if "swap" in phases and moved:
            self.byte_seconds += WEIGHT * (phases["swap"] / moved - self.byte_seconds)

    def recompute(self, sequence: Sequence) -> float:
        """To compute again what ``sequence`` has in the cache.

        Pages that others name too and the index finds will most likely be there still; pages that
        are only cached may be gone by then, so they count.
        """
        refs, keys = self._memory.pool.refs, self._memory.pool.keys
        size = self._memory.page_size
        kept = sum(1 for page in sequence.table.pages if refs[page] > 1 and keys[page] is not None)
        return max(sequence.num_computed - kept * size, 0) * self.token_seconds

    def swap(self, sequence: Sequence) -> float:
        """To copy the pages of ``sequence`` out and in."""
        return 2 * len(sequence.table) * self._page_bytes * self.byte_seconds

    def per_page_freed(self, sequence: Sequence) -> float:
        """To bring ``sequence`` back, for each page that only it names; infinite without any."""
        refs = self._memory.pool.refs
        freed = sum(1 for page in sequence.table.pages if refs[page] == 1)
        if not freed:
            return inf
        if self._mode == "recompute" or len(sequence.table) > self._memory.host.available:
            return self.recompute(sequence) / freed
        if self._mode == "swap":
            return self.swap(sequence) / freed
        return min(self.swap(sequence), self.recompute(sequence)) / freed

    def choose(self, sequence: Sequence) -> Choice:
        """Which way is allowed, possible and quicker."""
        host = self._memory.host
        needed = self._memory.in_host(sequence).count(None) if host.refs else 0
        swap, recompute = self.swap(sequence), self.recompute(sequence)
        if self._mode == "recompute":
            mode, reason = "recompute", "configured"
        elif not host.refs:
            mode, reason = "recompute", "no_swap_space"
        elif needed > host.available:
            mode, reason = "recompute", "swap_space_full"
        elif self._mode == "swap":
            mode, reason = "swap", "configured"
        else:
            mode, reason = ("swap" if swap <= recompute else "recompute"), "estimate"
        return Choice(mode, reason, swap, recompute, needed, host.available)
