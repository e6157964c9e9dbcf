"""SchedulerState: what the scheduler owns, and the elementary changes of it.

Each method keeps every invariant of ``audit`` on its own, so that the decisions (``admission``,
``running``, ``preemption``, ``outcome``) can be read without thinking of the bookkeeping.
"""

from __future__ import annotations

from heapq import heappop, heappush

from pagedd.core.ageing import Ageing
from pagedd.core.clients import Clients
from pagedd.core.config import SchedulerConfig
from pagedd.core.costs import Costs
from pagedd.core.events import Failed, Finished, Resumed, Started, Stats, StepEvents
from pagedd.core.ledger import Phase
from pagedd.core.lengths import Lengths
from pagedd.core.memory import Memory
from pagedd.core.queue import UrgencyQueue
from pagedd.core.request import Request
from pagedd.core.sequence import Group, Sequence, SequenceState
from pagedd.core.totals import Totals
from pagedd.core.turns import waiting_queue


class SchedulerState:
    """Requests, queues, slots, pages and the events that were not taken yet."""

    def __init__(self, config: SchedulerConfig, key: bytes) -> None:
        self.config = config
        self.memory = Memory(
            config.num_pages,
            config.page_size,
            key,
            config.prefix_cache,
            config.longest_free_prompt,
            config.num_host_pages,
        )
        self.costs = Costs(self.memory, config.preemption_mode, config.page_bytes)
        self.groups: dict[int, Group] = {}
        aging = config.priority_aging
        self.ageing = None if aging is None else Ageing(aging)
        self.clients = Clients() if config.fair_share else None
        self.waiting = waiting_queue(config)
        self.running = UrgencyQueue()
        self.slots = list(range(config.max_num_seqs))  # free ones, a heap: keeps the batch dense
        self.by_slot: list[Sequence | None] = [None] * config.max_num_seqs
        self.leave: list[int] = []
        # Draw their last token in a step that was launched: they compute no more, and end with it.
        self.closing: set[Sequence] = set()
        self.events = StepEvents()
        self.totals = Totals()
        self.lengths = Lengths()
        self.noted: tuple[int, int, str] | None = None  # who waits first, handle, choice and limit
        self.arrivals = 0
        self.held_back = False  # the last plan left out who was less urgent than a first token
        self.put_backs = 0  # sequences put from running back to waiting, since the start
        self.now = 0.0

    def enqueue(self, request: Request) -> int:
        """Let ``request`` wait; its place in the queue."""
        config = self.config
        account = None if self.clients is None else self.clients.enter(request.client)
        group = Group(
            request, self.arrivals, self.now, config.eos_ids, config.max_sequence_len, account
        )
        self.arrivals += 1
        self.groups[request.handle] = group
        self.waiting.add(group.sequences[0])
        if self.ageing is not None:
            self.ageing.wait(request.handle, self.now)
        return self.waiting.place(group.sequences[0])

    def admit(self, sequence: Sequence, hits: list[int]) -> None:
        """From waiting to running: its slots, and the pages that hold its beginning already."""
        self.waiting.remove(sequence)
        self.running.add(sequence)
        reserved = [heappop(self.slots) for _ in range(sequence.slots_needed)]
        self._seat(sequence, reserved[0])
        sequence.group.reserved = reserved[1:]
        self.memory.adopt(sequence, hits, self.now)
        group = sequence.group
        if group.account is not None and not group.charged:
            group.charged = True
            group.account.used += sequence.missing

    def join(self, sequence: Sequence) -> None:
        """The runner gets to know ``sequence``, for the first time since it was admitted."""
        group, cached = sequence.group, sequence.num_computed
        resumes = sequence.has_begun
        swapped = sequence.state is SequenceState.SWAPPED
        sequence.joined = True
        sequence.state = SequenceState.PREFILLING
        group.started = True
        self._activate(group, 1)
        self._settle(group)
        if resumes:
            self.totals.swapped -= swapped
            self.events.resumed.append(
                Resumed(
                    sequence.handle,
                    sequence.index,
                    "swap" if swapped else "recompute",
                    pages=len(sequence.table),
                    kept=cached,
                    tokens=sequence.num_tokens,
                )
            )
            return
        group.cached_tokens = cached
        self.totals.prompt_tokens += sequence.num_prompt
        if self.config.prefix_cache:
            self.totals.prefix_queries += sequence.num_prompt
            self.totals.prefix_hits += cached
            copied = sequence.arrived - sequence.num_indexed
            self.totals.host_hits += copied * self.config.page_size
        queued = group.book.elapsed_ms(Phase.QUEUED, self.now)
        self.events.started.append(Started(sequence.handle, cached, queued, len(sequence.table)))

    def fork(self, parent: Sequence) -> list[Sequence]:
        """The other choices of a request whose prompt is complete with this step's chunk."""
        group = parent.group
        children = []
        for index, slot in enumerate(group.reserved, start=1):
            child = Sequence(group, index, list(parent.tokens))
            self.memory.fork(parent, child, self.now)
            child.num_computed = parent.num_computed
            child.num_indexed = parent.num_indexed
            child.joined = True
            child.state = SequenceState.PREFILLING
            self._seat(child, slot)
            self.running.add(child)
            children.append(child)
        group.sequences.extend(children)
        group.reserved = []
        group.forked = True
        self._activate(group, len(children))
        return children

    def decode(self, sequence: Sequence) -> None:
        """``sequence`` drew its first token since it joined."""
        sequence.state = SequenceState.DECODING
        sequence.group.decoding += 1
        sequence.group.settle(self.now)

    def save(self, sequence: Sequence) -> None:
        """Copy to host memory, with the next plan, what ``sequence`` has on the device."""
        self.count_swapped(sequence, self.memory.save(sequence))

    def count_swapped(self, sequence: Sequence, pages: int) -> None:
        """So many pages of ``sequence`` are copied because it was swapped, out or in."""
        size = pages * self.config.page_bytes
        sequence.group.book.swapped_bytes += size
        self.totals.swapped_bytes += size

    def put_back(self, sequence: Sequence) -> None:
        """From running to waiting: its slots and pages are free at once."""
        if sequence.joined:
            self._part(sequence)
            swapped = bool(sequence.host)
            sequence.state = SequenceState.SWAPPED if swapped else SequenceState.PREEMPTED
            self.totals.swapped += swapped
        elif sequence.state is not SequenceState.SWAPPED:
            self.memory.discard(sequence)  # what it found there; it looks again next time
        self._unseat(sequence, dropped=sequence.state is SequenceState.PREEMPTED)
        self.waiting.add(sequence)
        self.put_backs += 1

    def settle(self) -> None:
        """A plan is complete."""
        evicted = self.memory.settle()
        if evicted is not None:
            self.totals.spilled_pages += evicted.saved
            self.events.evicted.append(evicted)

    def end(self, sequence: Sequence) -> None:
        """A choice needs no more tokens; with the last one, the request has finished."""
        group = sequence.group
        if sequence.num_generated:
            self.lengths.learn(sequence.num_generated)
        self._drop(sequence)
        group.open -= 1
        if group.open == 0:
            self.finish(group)

    def end_choice(self, group: Group, index: int) -> None:
        """End choice ``index``; before the fork it is only noted, unless it is the last open one.

        Nothing if there is no such choice or it has ended.
        """
        if group.forked:
            for sequence in group.sequences:
                if sequence.index == index and sequence.state is not SequenceState.ENDED:
                    self.end(sequence)
        elif 0 <= index < group.open:
            group.early.add(index)
            if len(group.early) == group.open:
                self.finish(group)

    def finish(self, group: Group, *, cancelled: bool = False) -> None:
        """The request ends well, or because nobody wants it any more."""
        self._dissolve(group)
        if cancelled:
            self.totals.cancelled += 1
        else:
            self.totals.finished += 1
        ledger = group.book.close(self.now)
        self.events.finished.append(
            Finished(group.request.handle, cancelled, group.cached_tokens, ledger)
        )

    def fail(self, group: Group, failed: Failed) -> None:
        """The request ends with an error."""
        self._dissolve(group)
        self.refuse(failed)

    def refuse(self, failed: Failed) -> None:
        """Report an error of a request that is not in service."""
        self.totals.failed += 1
        self.events.failed.append(failed)

    @property
    def num_waiting(self) -> int:
        """Requests of which the runner knows no sequence."""
        return len(self.groups) - self.totals.running

    def stats(self) -> Stats:
        """The counters, in constant time but for rare looks at all that run."""
        return self.totals.stats(
            self.memory,
            waiting=self.num_waiting,
            sequences=len(self.running),
            most_pages=self.memory.fill.most_pages(self.running),
        )

    def _settle(self, group: Group) -> None:
        """What the request does may be another thing now."""
        waited = group.book.waits
        group.settle(self.now)
        if self.ageing is None or waited == group.book.waits:
            return
        if waited:
            self.ageing.serve(group.request.handle, self.now)
        else:
            self.ageing.wait(group.request.handle, self.now)

    def _dissolve(self, group: Group) -> None:
        for sequence in group.sequences:
            self._drop(sequence)
        del self.groups[group.request.handle]
        if self.ageing is not None:
            self.ageing.forget(group.request.handle)
        if self.clients is not None and group.account is not None:
            self.clients.leave(group.account)

    def _drop(self, sequence: Sequence) -> None:
        if sequence.state is SequenceState.ENDED:
            return
        if sequence.slot < 0:
            self.waiting.remove(sequence)
        else:
            if sequence.joined:
                self._part(sequence)
            self._unseat(sequence)
        self.totals.swapped -= sequence.state is SequenceState.SWAPPED
        self.memory.discard(sequence)
        sequence.state = SequenceState.ENDED

    def _seat(self, sequence: Sequence, slot: int) -> None:
        sequence.slot = slot
        sequence.samples = (slot,)
        self.by_slot[slot] = sequence

    def _unseat(self, sequence: Sequence, *, dropped: bool = False) -> None:
        group = sequence.group
        self.running.remove(sequence)
        self.memory.release(sequence, self.now, dropped=dropped)
        self.by_slot[sequence.slot] = None
        heappush(self.slots, sequence.slot)
        sequence.slot = -1
        if not group.forked:
            for slot in group.reserved:
                heappush(self.slots, slot)
            group.reserved = []

    def _part(self, sequence: Sequence) -> None:
        """The runner must forget ``sequence``."""
        group = sequence.group
        self.leave.append(sequence.slot)
        sequence.joined = False
        if sequence.state is SequenceState.DECODING:
            group.decoding -= 1
        self._activate(group, -1)
        self._settle(group)

    def _activate(self, group: Group, change: int) -> None:
        before, group.active = group.active, group.active + change
        self.totals.running += (group.active > 0) - (before > 0)
