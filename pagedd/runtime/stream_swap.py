"""Swapping on a device that works through queues: copies beside the compute, and the host waits
for neither.

Copies to host memory and back go through one queue, the *copy* stream, one after another. The
*compute* stream, which makes the copies within the device too, waits for a copy only where it would
overwrite what is still being copied out, or touch what is still being copied in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from pagedd.core.plan import Copy, StepPlan
from pagedd.runtime.swap import Copied, PageTables

MARK_EVERY = 16  # pages: how exactly the compute stream can wait for one of many

E = TypeVar("E")  # an event: a place in a queue


class Streams(Protocol[E]):
    """The two queues; every call only adds to one of them."""

    def copy_out(self, copies: Sequence[Copy]) -> None:
        """Copy stream: device pages → host pages."""

    def copy_in(self, copies: Sequence[Copy]) -> None:
        """Copy stream: host pages → device pages."""

    def mark_copy(self) -> E:
        """The place in the copy stream behind all that was added so far."""

    def mark_compute(self) -> E:
        """The same in the compute stream."""

    def copy_waits(self, event: E) -> None:
        """Copy stream: what is added from here on begins after ``event``."""

    def compute_waits(self, event: E) -> None:
        """Compute stream: what is added from here on begins after ``event``."""

    def reached(self, event: E) -> bool:
        """The device has come there."""

    def take_copied(self) -> Copied:
        """See ``Swap.take_copied``."""


class StreamSwap(Generic[E]):
    """Orders the moves of plans. ``page_copy`` adds the copies within the device to the compute
    stream; nothing else but compute may be added to it.
    """

    def __init__(self, streams: Streams[E], page_copy: Callable[[Sequence[Copy]], None]) -> None:
        self._streams = streams
        self._page_copy = page_copy
        self._leaving = InFlight(streams)  # device pages that copies out read
        self._arriving = InFlight(streams)  # device pages that copies in write

    def move(self, plan: StepPlan, tables: PageTables) -> None:
        """See ``Swap.move``."""
        self._leaving.prune()
        self._arriving.prune()
        overwritten: set[int] = set()
        if plan.swap_out or self._leaving:
            overwritten = tables.pages_written(plan.chunks) | {copy.dst for copy in plan.copies}
        if plan.swap_out:
            self._copy_out(plan.swap_out, overwritten)
        self._leaving.wait_for(overwritten)
        if plan.copies:
            self._arriving.wait_for({page for copy in plan.copies for page in copy})
            self._page_copy(plan.copies)
        if plan.swap_in:
            self._copy_in(plan.swap_in)
        if self._arriving:
            self._arriving.wait_for(tables.pages_read(plan.chunks))

    def take_copied(self) -> Copied:
        """See ``Swap.take_copied``."""
        return self._streams.take_copied()

    def _copy_out(self, copies: Sequence[Copy], first: set[int]) -> None:
        """After the compute so far, which wrote the pages; those in ``first`` before the others."""
        streams = self._streams
        streams.copy_waits(streams.mark_compute())
        urgent = [copy for copy in copies if copy.src in first]
        others = [copy for copy in copies if copy.src not in first]
        groups = [others[i : i + MARK_EVERY] for i in range(0, len(others), MARK_EVERY)]
        for group in (urgent, *groups):
            if group:
                streams.copy_out(group)
                self._leaving.add(streams.mark_copy(), {copy.src for copy in group})

    def _copy_in(self, copies: Sequence[Copy]) -> None:
        """After the compute so far, which used the pages for something else."""
        streams = self._streams
        streams.copy_waits(streams.mark_compute())
        for i in range(0, len(copies), MARK_EVERY):
            group = copies[i : i + MARK_EVERY]
            streams.copy_in(group)
            self._arriving.add(streams.mark_copy(), {copy.dst for copy in group})


class InFlight(Generic[E]):
    """Copies of the copy stream, in its order, that the compute stream has not waited for."""

    def __init__(self, streams: Streams[E]) -> None:
        self._streams = streams
        self._groups: deque[tuple[E, set[int]]] = deque()  # where they end; their device pages

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, event: E, pages: set[int]) -> None:
        """Copies that touch ``pages`` end at ``event``."""
        self._groups.append((event, pages))

    def prune(self) -> None:
        """Forget what the device has done."""
        while self._groups and self._streams.reached(self._groups[0][0]):
            self._groups.popleft()

    def wait_for(self, pages: set[int]) -> None:
        """Let the compute stream wait for the copies that touch one of ``pages``."""
        last = 0
        for place, (_, touched) in enumerate(self._groups, start=1):
            if not touched.isdisjoint(pages):
                last = place
        if last:
            self._streams.compute_waits(self._groups[last - 1][0])
        for _ in range(last):  # what comes before it is done then too
            self._groups.popleft()
