"""Totals: what the scheduler counts."""

from __future__ import annotations

from dataclasses import dataclass

from pagedd.core.events import Stats
from pagedd.core.memory import Memory


@dataclass(slots=True)
class Totals:
    """Counters since the start, and of the requests that run (``Stats``)."""

    running: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    preemptions_swap: int = 0
    preemptions_recompute: int = 0
    recomputed_tokens: int = 0
    swapped: int = 0  # sequences
    swapped_bytes: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0
    spilled_pages: int = 0
    host_hits: int = 0
    computed_tokens: int = 0

    def stats(self, memory: Memory, *, waiting: int, sequences: int, most_pages: int) -> Stats:
        """The counters with those of ``memory`` and of this moment; ``waiting`` counts requests."""
        return Stats(
            running=self.running,
            waiting=waiting,
            swapped=self.swapped,
            pages=memory.pool.counts,
            host_pages=memory.host.counts,
            finished_total=self.finished,
            cancelled_total=self.cancelled,
            failed_total=self.failed,
            preemptions_swap=self.preemptions_swap,
            preemptions_recompute=self.preemptions_recompute,
            recomputed_tokens=self.recomputed_tokens,
            swapped_bytes=self.swapped_bytes,
            prefix_queries=self.prefix_queries,
            prefix_hits=self.prefix_hits,
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            steps=self.steps,
            unused_slots=memory.fill.unused,
            spilled_pages=self.spilled_pages,
            host_hits=self.host_hits,
            sequences=sequences,
            most_pages=most_pages,
            computed_tokens=self.computed_tokens,
        )
