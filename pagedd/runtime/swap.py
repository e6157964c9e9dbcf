"""What carries out the moves of a plan: ``swap_out``, ``copies`` and ``swap_in``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from pagedd.core.plan import Chunk, StepPlan

# What a step copies out at a time, and in at a time, where it can choose: then the others wait for
# it a fraction of a step.
STEP_BYTES = {"cpu": 32 << 20, "cuda": 256 << 20}


class Copied(NamedTuple):
    """Pages that went to host memory or came from there, and how long it took to copy them."""

    pages: int
    seconds: float


class PageTables(Protocol):
    """Which device pages the chunks of a step touch."""

    def pages_read(self, chunks: Iterable[Chunk]) -> set[int]:
        """Those that hold anything of the chunks' sequences, what is to be written included."""

    def pages_written(self, chunks: Iterable[Chunk]) -> set[int]:
        """Those that the chunks' own tokens go to."""


class Swap(Protocol):
    """Moves pages so that every reader finds what it would if each step were done in order.

    When something is really copied is its own affair.
    """

    def move(self, plan: StepPlan, tables: PageTables) -> None:
        """The moves of ``plan``; ``tables`` are those of its chunks. Compute may follow."""

    def take_copied(self) -> Copied:
        """The copies whose time was measured since the last call."""
