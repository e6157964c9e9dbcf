"""A device that works through its queues behind the host's back, and a runner of symbolic memory
that swaps on it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pagedd.core.plan import Chunk, Copy, StepPlan, StepResult
from pagedd.core.scheduler import SchedulerConfig
from pagedd.runtime.stream_swap import StreamSwap
from pagedd.runtime.swap import Copied, Swap
from tests.core.symbolic import SymbolicRunner

Work = Callable[[], None]


class Event(NamedTuple):
    """The place behind the first ``place`` entries of a queue."""

    queue: Queue
    place: int


class Queue:
    """Work and waits, done one after another."""

    def __init__(self) -> None:
        self._entries: deque[Work | Event] = deque()
        self._added = 0
        self.done = 0

    def add(self, entry: Work | Event) -> None:
        self._entries.append(entry)
        self._added += 1

    def mark(self) -> Event:
        return Event(self, self._added)

    @property
    def left(self) -> int:
        """Entries that are not done."""
        return len(self._entries)

    def advance(self) -> bool:
        """Do the next entry; False when there is none or it waits for the other queue."""
        if not self._entries:
            return False
        entry = self._entries[0]
        if isinstance(entry, Event):
            if entry.queue.done < entry.place:
                return False
        else:
            entry()
        self._entries.popleft()
        self.done += 1
        return True


class Queues:
    """``Streams`` over ``cells`` and ``host``, which work when ``favour`` lets them.

    ``cells``, ``host`` [pages, tokens]. ``favour``: "compute" or "copy", the queue that goes first
    as long as it can; "both", by chance.
    """

    def __init__(self, cells: Tensor, host: Tensor, favour: str, seed: int) -> None:
        self._cells = cells
        self._host = host
        self._favour = favour
        self._random = random.Random(seed)
        self.compute = Queue()
        self.copy = Queue()

    def copy_out(self, copies: Sequence[Copy]) -> None:
        for copy in copies:
            self.copy.add(_mover(copy, self._cells, self._host))

    def copy_in(self, copies: Sequence[Copy]) -> None:
        for copy in copies:
            self.copy.add(_mover(copy, self._host, self._cells))

    def page_copy(self, copies: Sequence[Copy]) -> None:
        for copy in copies:
            self.compute.add(_mover(copy, self._cells, self._cells))

    def mark_copy(self) -> Event:
        return self.copy.mark()

    def mark_compute(self) -> Event:
        return self.compute.mark()

    def copy_waits(self, event: Event) -> None:
        self.copy.add(event)

    def compute_waits(self, event: Event) -> None:
        self.compute.add(event)

    def reached(self, event: Event) -> bool:
        return event.queue.done >= event.place

    def take_copied(self) -> Copied:
        return Copied(0, 0.0)

    @property
    def idle(self) -> bool:
        """Everything is done."""
        return not self.compute.left and not self.copy.left

    def work(self, entries: int) -> None:
        """Do so many entries, or all that can be done."""
        for _ in range(entries):
            queues = [self.compute, self.copy]
            if self._favour == "copy" or (self._favour == "both" and self._random.random() < 0.5):
                queues.reverse()
            if not any(queue.advance() for queue in queues):
                return


def _mover(copy: Copy, source: Tensor, target: Tensor) -> Work:
    def move() -> None:
        target[copy.dst] = source[copy.src]

    return move


class QueuedRunner(SymbolicRunner):
    """Adds each step to the queues of a device, which does some of it meanwhile and checks it then.

    The host draws without the device, so that it can be many steps ahead: ``hurry`` lists how many
    entries the device may do during a step.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        favour: str,
        seed: int,
        hurry: Sequence[int] = (0, 3, 30, 300),
    ) -> None:
        super().__init__(config)
        self.cache = torch.zeros(config.num_pages, config.page_size, dtype=torch.int64)
        self.host_pages = torch.zeros(config.num_host_pages, config.page_size, dtype=torch.int64)
        self.queues = Queues(self.cache, self.host_pages, favour, seed)
        self.swap: Swap = StreamSwap(self.queues, self.queues.page_copy)
        self.copied = 0
        self._hurry = hurry
        self._random = random.Random(seed)

    def execute(self, plan: StepPlan) -> StepResult:
        self.step += 1
        for slot in plan.leave:
            self.rows[slot] = None
        for join in plan.join:
            self._join(join)
        for slot, logical, page in plan.grow:
            self._row(slot).pages[logical : logical + 1] = [page]
        self.swap.move(plan, self)
        for chunk in plan.chunks:
            self.queues.compute.add(self._reader(chunk))
        for chunk in plan.chunks:
            self.queues.compute.add(self._writer(chunk))
        drawn = tuple(self._draw(slot, chunk) for chunk in plan.chunks for slot in chunk.samples)
        self.queues.work(self._random.choice(self._hurry))
        self.copied += self.swap.take_copied().pages
        return StepResult(drawn)

    def pages_read(self, chunks: Iterable[Chunk]) -> set[int]:
        """See ``PageTables``."""
        return {
            page
            for chunk in chunks
            for page in self._row(chunk.slot).pages[: self._pages(chunk.start + chunk.length)]
        }

    def pages_written(self, chunks: Iterable[Chunk]) -> set[int]:
        """See ``PageTables``."""
        return {
            self._row(chunk.slot).pages[position // self.page_size]
            for chunk in chunks
            for position in range(chunk.start, chunk.start + chunk.length)
        }

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def _reader(self, chunk: Chunk) -> Work:
        """Every position before the chunk will hold this sequence's own past."""
        row = self._row(chunk.slot)
        past, pages = row.history[: chunk.start], row.pages[: self._pages(chunk.start)]

        def read() -> None:
            assert self.cache[pages].flatten()[: len(past)].tolist() == past

        return read

    def _writer(self, chunk: Chunk) -> Work:
        row = self._row(chunk.slot)
        places = [
            (
                row.pages[position // self.page_size],
                position % self.page_size,
                row.history[position],
            )
            for position in range(chunk.start, chunk.start + chunk.length)
        ]

        def write() -> None:
            for page, offset, value in places:
                self.cache[page, offset] = value

        return write
