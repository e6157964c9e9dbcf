"""Costs: how long it takes, as far as one can tell, to bring a sequence back."""

from __future__ import annotations

from math import inf

from pagedd.core.memory import Memory
from pagedd.core.sequence import Sequence

# A step of a small model on two cores; what is measured replaces it soon.
PRIOR_PREFILL_RATE = 500.0


class Costs:
    """Estimates in seconds. ``prefill_rate`` in tokens a second."""

    def __init__(self, memory: Memory) -> None:
        self.prefill_rate = PRIOR_PREFILL_RATE
        self._memory = memory

    def recompute(self, sequence: Sequence) -> float:
        """To compute again what ``sequence`` has in the cache.

        Pages that others name too and the index finds will most likely be there still; pages that
        are only cached may be gone by then, so they count.
        """
        refs, keys = self._memory.pool.refs, self._memory.pool.keys
        size = self._memory.page_size
        kept = sum(1 for page in sequence.table.pages if refs[page] > 1 and keys[page] is not None)
        return max(sequence.num_computed - kept * size, 0) / self.prefill_rate

    def per_page_freed(self, sequence: Sequence) -> float:
        """To bring ``sequence`` back, for each page that only it names; infinite without any."""
        refs = self._memory.pool.refs
        freed = sum(1 for page in sequence.table.pages if refs[page] == 1)
        return self.recompute(sequence) / freed if freed else inf
