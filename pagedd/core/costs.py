"""Costs: estimates of how long it takes to bring a sequence back, and so in which way.

What counts is by how much the steps of everybody get longer. Computing again takes part in steps
that would run anyway, so only what its tokens add to them is its cost. A copy holds up the step
that it belongs to for as long as it takes.
"""

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
PRIOR_STEP_SECONDS = 0.01
WEIGHT = 0.25  # of the latest measurement in an average
STALE_WEIGHT = 0.6  # the same, when the average was not kept up to date
MOST = 4.0  # a measurement counts as at most so many times the average
TRIAL_SHARE = 1 / 8  # of the time that preemptions cost, for the way that seems slower


class Choice(NamedTuple):
    """How to preempt a sequence, why so, and what was weighed: see ``events.Preempted``."""

    mode: str
    reason: str
    swap_s: float
    recompute_s: float
    host_needed: int
    host_available: int


class Costs:
    """Estimates in seconds, from averages of what steps have taken; priors until there are any.

    ``token_seconds`` is what one more token of a prefill adds to a step, ``byte_seconds`` what it
    takes to copy a byte to host memory or back, ``step_seconds`` what a step takes that only
    decodes.

    A way of preemption that is not taken is not measured either, so a wrong estimate of it would
    decide for ever. Against that, one measurement moves an average only so far, and ``auto`` tries
    the way that seems slower again once it costs no more than ``TRIAL_SHARE`` of what was spent on
    the other since this one was measured last. So that is about the most which trying adds, and a
    way that wrongly seems k times slower is tried after about k / TRIAL_SHARE preemptions.
    """

    def __init__(self, memory: Memory, mode: str, page_bytes: int) -> None:
        self.token_seconds = PRIOR_TOKEN_SECONDS
        self.byte_seconds = PRIOR_BYTE_SECONDS
        self.step_seconds = PRIOR_STEP_SECONDS
        self._memory = memory
        self._mode = mode
        self._page_bytes = page_bytes
        # Per way: what the other one has cost (estimated seconds) since this one was measured.
        self._unmeasured = {"swap": 0.0, "recompute": 0.0}
        self._stale: set[str] = set()  # ways that are tried for that

    def learn(self, plan: StepPlan, phases: Mapping[str, float], copied: int = 0) -> None:
        """What the runner measured in seconds: ``execute``, ``sample`` and perhaps ``swap``, which
        ``copied`` pages took.

        A step teaches the cost of a prefill when at least half of its tokens belong to one, and
        that of decoding when all do, and both only when it drew a token: on a GPU nothing else
        waits for the device, so the time of other steps is not that of their work.
        """
        if "execute" in phases and any(chunk.samples for chunk in plan.chunks):
            self._learn_step(plan, phases)
        size = copied * self._page_bytes
        if "swap" in phases and size:
            weight = self._measured("swap")
            self.byte_seconds = _average(self.byte_seconds, phases["swap"] / size, weight)

    def _learn_step(self, plan: StepPlan, phases: Mapping[str, float]) -> None:
        longer = 0
        if plan.chunks[-1].length > 1:  # those of a single token come first
            longer = sum(chunk.length for chunk in plan.chunks if chunk.length > 1)
        if not longer:
            took = sum(phases.values()) - phases.get("swap", 0.0)
            self.step_seconds = _average(self.step_seconds, took)
        elif 2 * longer >= plan.num_tokens:
            took = phases["execute"] + phases.get("sample", 0.0)
            if longer < plan.num_tokens:  # without the prefill, there would be the decoding
                took -= min(self.step_seconds, took / 2)
            weight = self._measured("recompute")
            self.token_seconds = _average(self.token_seconds, took / longer, weight)

    def _measured(self, way: str) -> float:
        """``way`` was measured; how much that counts."""
        weight = STALE_WEIGHT if way in self._stale else WEIGHT
        self._stale.discard(way)
        self._unmeasured[way] = 0.0
        return weight

    def recompute(self, sequence: Sequence) -> float:
        """To compute again what ``sequence`` has in the cache, but for what is still there then."""
        lost = sequence.num_computed - self._kept(sequence) * self._memory.page_size
        return max(lost, 0) * self.token_seconds

    def swap(self, sequence: Sequence) -> float:
        """To copy out what is not in host memory, and in what is not on the device then."""
        needed, _ = self._memory.host_room(sequence)
        return self._swap(sequence, needed)

    def per_page_freed(self, sequence: Sequence) -> float:
        """To bring ``sequence`` back, for each page that only it names; infinite without any."""
        refs = self._memory.pool.refs
        freed = sum(1 for page in sequence.table.pages if refs[page] == 1)
        if not freed:
            return inf
        if self._mode == "recompute":
            return self.recompute(sequence) / freed
        needed, available = self._memory.host_room(sequence)
        if needed > available:
            return self.recompute(sequence) / freed
        if self._mode == "swap":
            return self._swap(sequence, needed) / freed
        return min(self._swap(sequence, needed), self.recompute(sequence)) / freed

    def choose(self, sequence: Sequence) -> Choice:
        """Which way is allowed, possible and quicker. To be asked once a preemption."""
        needed, available = self._memory.host_room(sequence)
        swap, recompute = self._swap(sequence, needed), self.recompute(sequence)
        if self._mode == "recompute":
            mode, reason = "recompute", "configured"
        elif not self._memory.host.refs:
            mode, reason = "recompute", "no_swap_space"
        elif needed > available:
            mode, reason = "recompute", "swap_space_full"
        elif self._mode == "swap":
            mode, reason = "swap", "configured"
        else:
            mode, reason = self._weigh(swap, recompute)
        return Choice(mode, reason, swap, recompute, needed, available)

    def _weigh(self, swap: float, recompute: float) -> tuple[str, str]:
        quicker, slower = ("swap", "recompute") if swap <= recompute else ("recompute", "swap")
        self._unmeasured[slower] += min(swap, recompute)
        if max(swap, recompute) >= TRIAL_SHARE * self._unmeasured[slower]:
            return quicker, "estimate"
        self._unmeasured[slower] = 0.0
        self._stale.add(slower)
        return slower, "trial"

    def _swap(self, sequence: Sequence, needed: int) -> float:
        moved = needed + len(sequence.table) - self._kept(sequence)
        return moved * self._page_bytes * self.byte_seconds

    def _kept(self, sequence: Sequence) -> int:
        """Pages of ``sequence`` that others name too and the index finds.

        They will most likely be there still when it comes back; those that are only cached may be
        gone by then.
        """
        refs, keys = self._memory.pool.refs, self._memory.pool.keys
        return sum(1 for page in sequence.table.pages if refs[page] > 1 and keys[page] is not None)


def _average(before: float, measured: float, weight: float = WEIGHT) -> float:
    """The average with one measurement more.

    Any step can be slow for reasons of its own, a busy neighbour or memory that is touched for the
    first time; but none is quicker than its work. So only slow ones are cut.
    """
    return before + weight * (min(measured, MOST * before) - before)
