"""What plans compute twice and copy, counted from the plans alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pagedd.core.plan import StepPlan


@dataclass
class Tally:
    """Tokens computed again, by handle, and pages copied to host memory and back."""

    recomputed: Counter[int] = field(default_factory=Counter)
    out: int = 0
    back: int = 0

    @classmethod
    def of(cls, plans: Iterable[StepPlan]) -> Tally:
        """Follow the plans as a runner does: a slot belongs to whom the last join named."""
        tally = cls()
        owners: dict[int, tuple[int, int]] = {}  # slot → handle, choice
        reached: Counter[tuple[int, int]] = Counter()  # computed up to here at some time
        for plan in plans:
            tally.out += len(plan.swap_out)
            tally.back += len(plan.swap_in)
            owners.update((join.slot, (join.handle, join.index)) for join in plan.join)
            for slot, start, length, samples in plan.chunks:
                owner = owners[slot]
                tally.recomputed[owner[0]] += max(min(reached[owner], start + length) - start, 0)
                reached[owner] = max(reached[owner], start + length)
                for sibling in samples[1:]:  # forked with this chunk
                    reached[owners[sibling]] = start + length
        return tally
