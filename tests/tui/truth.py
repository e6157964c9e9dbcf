"""A picture that is changed step by step, and the frames that tell of it: whole, or the changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from pagedd.protocol import CACHED, Counters, PageCells, SequenceRow, State

Key = tuple[int, int]
STATES = ("waiting", "prefilling", "decoding", "swapped", "preempted")
NUM_PAGES, NUM_HOST_PAGES = 12, 5


@dataclass(frozen=True)
class Step:
    """What changes at once. ``gone``: handles, of which choice 0 goes on if ``survives``."""

    key: bool
    rows: list[tuple[int, int, int]]  # handle, choice, generated
    gone: list[int]
    survives: bool
    pages: list[tuple[int, int, int]]  # page, state, which holder
    host: list[tuple[int, int]]


def _below(limit: int) -> st.SearchStrategy[int]:
    return st.integers(0, limit - 1)


STEPS = st.lists(
    st.builds(
        Step,
        key=st.booleans(),
        rows=st.lists(st.tuples(_below(5), _below(3), _below(100)), max_size=4),
        gone=st.lists(_below(5), max_size=2, unique=True),
        survives=st.booleans(),
        pages=st.lists(st.tuples(_below(NUM_PAGES), _below(4), _below(9)), max_size=6),
        host=st.lists(st.tuples(_below(NUM_HOST_PAGES), _below(4)), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


@dataclass
class Truth:
    """The picture, in the plainest form."""

    frame: int = 0
    states: list[int] = field(default_factory=lambda: [0] * NUM_PAGES)
    owners: list[Key | None] = field(default_factory=lambda: [None] * NUM_PAGES)
    host: list[int] = field(default_factory=lambda: [0] * NUM_HOST_PAGES)
    rows: dict[Key, SequenceRow] = field(default_factory=dict)

    def whole(self) -> State:
        """All of it."""
        pages, host = range(NUM_PAGES), range(NUM_HOST_PAGES)
        return self._frame(True, list(pages), list(host), sorted(self.rows), [])

    def advance(self, step: Step) -> State:
        """Change it; the frame that tells so."""
        self.frame += 1
        gone = [handle for handle in step.gone if any(key[0] == handle for key in self.rows)]
        told: set[Key] = set()
        pages: set[int] = set()
        for key in [key for key in self.rows if key[0] in gone]:
            if step.survives and key[1] == 0:
                told.add(key)
            else:
                del self.rows[key]
        for handle, index, generated in step.rows:
            self.rows[handle, index] = row(handle, index, generated)
            told.add((handle, index))
        for page, owner in enumerate(self.owners):
            if owner is not None and owner not in self.rows:
                self.states[page], self.owners[page] = CACHED, None
                pages.add(page)
        for page, state, which in step.pages:
            holders: list[Key | None] = [None, *sorted(self.rows)]
            self.states[page], self.owners[page] = state, holders[which % len(holders)]
            pages.add(page)
        for page, state in step.host:
            self.host[page] = state
        if step.key:
            return self.whole()
        told |= {owner for page in pages if (owner := self.owners[page]) is not None}
        host = sorted({page for page, _ in step.host})
        return self._frame(False, sorted(pages), host, sorted(told), gone)

    def _frame(
        self, key: bool, pages: list[int], host: list[int], told: list[Key], gone: list[int]
    ) -> State:
        place: dict[Key | None, int] = {each: i for i, each in enumerate(told, 1)}
        return State(
            frame=self.frame,
            at=1000.0 + self.frame,
            key=key,
            pages=cells(self.states, pages, key),
            host_pages=cells(self.host, host, key),
            owners=[place.get(self.owners[page], 0) for page in pages],
            sequences=[self.rows[each] for each in told],
            gone=gone,
            counters=counters(self.frame),
        )


def history(steps: list[Step]) -> tuple[Truth, list[State]]:
    """The truth after ``steps``, and the frames of them, of which the first is whole."""
    truth = Truth(frame=1)
    return truth, [truth.whole(), *(truth.advance(step) for step in steps)]


def cells(states: list[int], pages: list[int], key: bool) -> PageCells:
    """Of these pages; ``key``: they are all."""
    chosen = bytes(states[page] for page in pages)
    return PageCells(chosen, n=len(pages)) if key else PageCells(chosen, ids=pages)


def row(handle: int, index: int = 0, generated: int = 0) -> SequenceRow:
    """One of a request that is named by its handle."""
    state = STATES[generated % len(STATES)]
    return SequenceRow(handle, f"r{handle}", index, state, 0, 20, generated, 20, 3, 0, 1.5)


def counters(running: int = 0) -> Counters:
    """Some that differ."""
    return Counters(running, 1, 0, 0.5, 0.25, 0.125, 3.5 * running, running, {"execute": 2.0})
