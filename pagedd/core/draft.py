"""Draft: a step plan in the making."""

from __future__ import annotations

from collections.abc import Iterable

from pagedd.core.plan import Chunk, Copy, Grow, Join, StepPlan
from pagedd.core.sequence import Sequence, SequenceState
from pagedd.core.state import SchedulerState


class Draft:
    """Collects what one step does; ``budget`` is what is left of the rows that it may have.

    Once a sequence is in the draft nothing takes its pages or slot away in this step.
    """

    def __init__(self, state: SchedulerState, step: int, budget: int) -> None:
        self.step = step
        self.budget = budget
        self._state = state
        self._copies: list[Copy] = []
        self._swap_in: list[Copy] = []
        self._joins: list[Join] = []
        self._grow: list[Grow] = []
        self._singles: list[Chunk] = []
        self._longer: list[Chunk] = []
        self._ahead: list[tuple[Sequence, int]] = []  # to compute in the next step
        self._coming: list[tuple[Sequence, int]] = []  # to get more pages in the next step

    def compute_each(self, sequences: Iterable[Sequence]) -> None:
        """One token of each, which all lack exactly one. Needs a page available for each.

        The same as :meth:`compute` with a length of 1, without its cost for those that just go on
        in a page of their own, which are nearly all.
        """
        page_size, refs = self._state.config.page_size, self._state.memory.pool.refs
        singles, going_on = self._singles, 0
        for sequence in sequences:
            start = sequence.num_computed
            plain = start % page_size and sequence.joined and sequence.group.forked
            if plain and refs[sequence.table.pages[start // page_size]] == 1:
                singles.append(Chunk(sequence.slot, start, 1, sequence.samples))
                going_on += 1
            else:
                self.compute(sequence, 1)
        self.budget -= going_on

    def compute(self, sequence: Sequence, length: int) -> None:
        """The next ``length`` tokens of ``sequence``. Needs the pages for them available.

        What needs more pages from host memory than ``swap_in_pages`` gets the others in the next
        steps, and its turn then: the others do not wait for a long copy. With ``swap_in_ahead`` it
        goes on a step after the last ones: they are copied while the others compute.
        """
        state, limit = self._state, self._state.config.swap_in_pages
        upto = sequence.num_computed + length
        changes = state.memory.extend(sequence, upto, self._copies, state.now)
        copied = False
        if sequence.joined:
            self._grow.extend(Grow(sequence.slot, logical, page) for logical, page in changes)
        else:
            copied = self._bring(sequence, limit and limit - len(self._swap_in))
            if sequence.host:
                self._coming.append((sequence, length))
                self.budget -= length
                return
            self._join(sequence)
        if copied and state.config.swap_in_ahead:
            self._ahead.append((sequence, length))
        else:
            self._compute(sequence, length)

    def close(self) -> None:
        """Nothing more comes. Who waits for its pages computes at once if nobody else does."""
        if not self.is_empty:
            return
        if not self._ahead and self._coming:
            sequence, length = self._coming[0]
            self.budget += length
            self._bring(sequence, None)
            self._join(sequence)
            self._compute(sequence, length)
        elif self._ahead:
            self._compute(*self._ahead[0])

    @property
    def is_empty(self) -> bool:
        """Nothing is computed."""
        return not self._singles and not self._longer

    def plan(self) -> StepPlan:
        """The finished plan; it takes with it what left the device, or a slot, since the last."""
        leave = tuple(self._state.leave)
        self._state.leave.clear()
        return StepPlan(
            step=self.step,
            swap_out=self._state.memory.tier.take_copies(),
            copies=tuple(self._copies),
            swap_in=tuple(self._swap_in),
            leave=leave,
            join=tuple(self._joins),
            grow=tuple(self._grow),
            chunks=(*self._singles, *self._longer),
        )

    def _bring(self, sequence: Sequence, limit: int | None) -> bool:
        """Copy in at most ``limit`` pages of ``sequence``; False: none had to be."""
        copies = self._state.memory.bring(sequence, limit)
        if sequence.state is SequenceState.SWAPPED:
            self._state.count_swapped(sequence, len(copies))
        self._swap_in += copies
        return bool(copies)

    def _join(self, sequence: Sequence) -> None:
        self._state.join(sequence)
        self._introduce(sequence)

    def _compute(self, sequence: Sequence, length: int) -> None:
        samples: tuple[int, ...] = ()
        if length == sequence.missing:
            samples = sequence.samples
            if not sequence.group.forked:
                children = self._state.fork(sequence)
                for child in children:
                    self._introduce(child)
                samples += tuple(child.slot for child in children)
        chunks = self._singles if length == 1 else self._longer
        chunks.append(Chunk(sequence.slot, sequence.num_computed, length, samples))
        self.budget -= length

    def _introduce(self, sequence: Sequence) -> None:
        request = sequence.group.request
        self._joins.append(
            Join(
                slot=sequence.slot,
                handle=request.handle,
                index=sequence.index,
                tokens=tuple(sequence.tokens),
                num_prompt=len(request.prompt),
                params=request.params,
                pages=tuple(sequence.table.pages),
            )
        )
