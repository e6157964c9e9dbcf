"""What both memories hold, watched from outside: no copy twice, nothing lost, no wrong content."""

from __future__ import annotations

from pagedd.core.events import StepEvents
from pagedd.core.plan import StepPlan
from pagedd.core.scheduler import Scheduler
from pagedd.core.sequence import SequenceState
from tests.core.symbolic import SymbolicRunner


class Witness:
    """Compares the pools before and after each plan with what the plan and its events say."""

    def __init__(self, scheduler: Scheduler, runner: SymbolicRunner) -> None:
        self._memory = scheduler._state.memory
        self._scheduler = scheduler
        self._runner = runner
        self._swapped: set[tuple[int, int]] = set()
        self._tables: dict[tuple[int, int], list[int]] = {}
        self._device: dict[bytes, int] = {}
        self._host: dict[bytes, int] = {}
        self._referred: set[bytes] = set()  # in host memory
        self._contents: dict[bytes, list[int]] = {}
        self._used: dict[bytes, int] = {}  # the last plan in which host memory's was of use
        self._plans = 0
        self.swapped = 0  # pages copied, out or in, because a sequence was swapped
        self.spilled = 0  # pages copied out because they were evicted
        self.saved = 0  # evicted pages that were in host memory when their plan was complete

    def before(self) -> None:
        """A plan is about to be made."""
        groups = self._scheduler._state.groups.values()
        self._swapped = {
            (each.handle, each.index)
            for group in groups
            for each in group.sequences
            if each.state is SequenceState.SWAPPED
        }
        self._tables = {
            (each.handle, each.index): list(each.table.pages)
            for group in groups
            for each in group.sequences
        }
        self._device = self._memory.index.entries()
        self._host = self._memory.host.entries()
        self._referred = self._refers()

    def after(self, plan: StepPlan, events: StepEvents) -> None:
        """The plan was made, and not carried out yet."""
        self._check_copies_out(plan, events)
        running = self._scheduler._state.running
        tables = (each.table for each in running if (each.handle, each.index) in self._swapped)
        owned = {page for table in tables for page in table.pages}
        self.swapped += sum(copy.dst in owned for copy in plan.swap_in)
        self._check_evicted(events)
        self._check_recency(plan)

    def check_contents(self) -> None:
        """A step was carried out: what keys find is what they found before."""
        size = self._runner.page_size
        for key, page in self._memory.index.entries().items():
            cells = self._runner.cells[page]
            assert self._contents.setdefault(key, cells[:size]) == cells, f"page {page} is wrong"
        for key, page in self._memory.host.entries().items():
            cells = self._runner.host[page]
            assert self._contents.setdefault(key, cells[:]) == cells, f"host page {page} is wrong"

    def _check_copies_out(self, plan: StepPlan, events: StepEvents) -> None:
        """Each is of a swapped sequence or of an evicted page, and new to host memory."""
        saved = {
            page
            for each in events.preempted
            if each.mode == "swap"
            for page in self._tables[each.handle, each.choice]
        }
        key_of = {page: key for key, page in self._device.items()}
        keys = [key_of[copy.src] for copy in plan.swap_out if copy.src in key_of]
        assert len(set(keys)) == len(keys), "one content is copied out twice"
        if not any(evicted.host_pages for evicted in events.evicted):
            assert not set(keys) & self._host.keys(), "what is in host memory is copied out again"
        names = {page for each in self._scheduler._state.running for page in each.table.pages}
        for copy in plan.swap_out:
            if copy.src in saved:
                self.swapped += 1
            else:
                assert copy.src in key_of, "what cannot be found is spilled"
                assert key_of[copy.src] not in self._memory.index.entries(), "it was not evicted"
                assert copy.src in names, "its memory was not needed"
                self.spilled += 1

    def _check_evicted(self, events: StepEvents) -> None:
        assert len(events.evicted) <= 1
        gone = self._device.keys() - self._memory.index.entries().keys()
        there = self._memory.host.entries().keys()
        pages, saved, host_pages = events.evicted[0] if events.evicted else (0, 0, 0)
        assert not events.evicted or pages + host_pages > 0
        assert (pages, saved) == (len(gone), len(gone & there))
        assert host_pages >= len(self._host.keys() - there)
        self.saved += saved

    def _refers(self) -> set[bytes]:
        """Keys of the host pages that sequences refer to."""
        host = self._memory.host
        return {key for key, page in host.entries().items() if host.refs[page]}

    def _check_recency(self, plan: StepPlan) -> None:
        """What host memory forgot was not used later than what it kept, but for this plan's."""
        self._plans += 1
        there = self._memory.host.entries()
        copied = {copy.src for copy in plan.swap_in}
        used = {key for key, page in there.items() if page in copied}
        used |= self._device.keys() - self._memory.index.entries().keys()  # evicted, so touched
        used |= self._referred | self._refers()
        kept = [self._used[key] for key in there.keys() - used]
        gone = [self._used[key] for key in self._host.keys() - there.keys()]
        assert not kept or not gone or max(gone) <= min(kept), "not the least recently used one"
        self._used |= dict.fromkeys(used & there.keys(), self._plans)
