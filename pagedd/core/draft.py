"""Draft: a step plan in the making."""

from __future__ import annotations

from collections.abc import Iterable

from pagedd.core.plan import Chunk, Copy, Grow, Join, StepPlan
from pagedd.core.sequence import Sequence, SequenceState
from pagedd.core.state import SchedulerState


class Draft:
    """Collects what one step does; ``budget`` is what is left of ``max_num_batched_tokens``.

    Once a sequence is in the draft nothing takes its pages or slot away in this step.
    """

    def __init__(self, state: SchedulerState, step: int) -> None:
        self.step = step
        self.budget = state.config.max_num_batched_tokens
        self._state = state
        self._copies: list[Copy] = []
        self._swap_in: list[Copy] = []
        self._join: list[Join] = []
        self._grow: list[Grow] = []
        self._singles: list[Chunk] = []
        self._longer: list[Chunk] = []
        self._ahead: list[tuple[Sequence, int]] = []  # to compute in the next step

    def compute_each(self, sequences: Iterable[Sequence]) -> None:
        """One token of each, which all lack exactly one. Needs a page available for each.

        The same as :meth:`compute` with a length of 1, without its cost for those that just go on
        in a page of their own, which are nearly all.
        """
        page_size, refs = self._state.config.page_size, self._state.memory.pool.refs
        singles = self._singles
        for sequence in sequences:
            start = sequence.num_computed
            logical, offset = divmod(start, page_size)
            plain = offset and sequence.joined and sequence.group.forked
            if plain and refs[sequence.table.pages[logical]] == 1:
                singles.append(Chunk(sequence.slot, start, 1, sequence.samples))
                self.budget -= 1
            else:
                self.compute(sequence, 1)

    def compute(self, sequence: Sequence, length: int) -> None:
        """The next ``length`` tokens of ``sequence``. Needs the pages for them available.

        With ``swap_in_ahead``, what needs pages from host memory gets them in this step, and goes
        on in the next: the copies are made while the others compute.
        """
        state, moved = self._state, len(self._swap_in)
        changes = state.memory.extend(
            sequence, sequence.num_computed + length, self._copies, self._swap_in, state.now
        )
        copied = len(self._swap_in) - moved
        if sequence.state is SequenceState.SWAPPED:
            state.count_swapped(sequence, copied)
        if sequence.joined:
            self._grow.extend(Grow(sequence.slot, logical, page) for logical, page in changes)
        else:
            state.join(sequence, copied)
            self._introduce(sequence)
        if copied and state.config.swap_in_ahead:
            self._ahead.append((sequence, length))
        else:
            self._compute(sequence, length)

    def close(self) -> None:
        """Nothing more comes. Who waits for its pages computes at once if nobody else does."""
        if self.is_empty and self._ahead:
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
            join=tuple(self._join),
            grow=tuple(self._grow),
            chunks=(*self._singles, *self._longer),
        )

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
        self._join.append(
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
