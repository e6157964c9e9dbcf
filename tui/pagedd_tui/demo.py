"""``pagedd top --demo``: a source that needs no daemon and no model."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from typing import Any

from msgspec import UNSET

from pagedd.core.events import StepEvents
from pagedd.errors import RequestNotFound
from pagedd.protocol import Event, Explanation, Record, State
from pagedd_tui.demo_engine import STEP_S, Simulation
from pagedd_tui.demo_events import Evictions, Told, fields_of, in_order
from pagedd_tui.demo_frames import Frames
from pagedd_tui.demo_load import words
from pagedd_tui.demo_status import HELLO, status_of, tables_of
from pagedd_tui.pace import REAL, Pace
from pagedd_tui.source import Item

_FRAME_STEPS = 2  # from one frame to the next
_KEY_STEPS = 600  # from one keyframe to the next
_STATUS_STEPS = 20
_REMEMBERED = 400  # requests that can be asked about, open or ended
_RECORDS = 60  # of each, the last


class DemoSource:
    """A simulated engine that always has too few pages: see :mod:`pagedd_tui.demo_engine`.

    The same ``seed`` gives the same story. One iteration of ``items`` at a time; without one, time
    stands still.
    """

    title = "demo"
    can_command = True

    def __init__(self, seed: int = 0, pace: Pace = REAL) -> None:
        self._simulation = Simulation(seed)
        self._pace = pace
        self._began = pace.wall()
        self._steps = 0
        self._events: deque[Event] = deque()  # to be given out
        self._evictions = Evictions()
        self._records: OrderedDict[int, deque[Record]] = OrderedDict()

    async def items(self) -> AsyncIterator[Item]:
        """What a daemon would send, in the time that it would take."""
        pace, simulation, frames = self._pace, self._simulation, Frames()
        yield HELLO
        simulation.scheduler.watch(wanted=True)
        yield self._frame(frames)
        yield status_of(simulation)
        due = pace.now()
        while True:
            due = max(due + STEP_S, pace.now())
            await pace.sleep(max(due - pace.now(), 0.0))  # it goes on in between
            self._step()
            while self._events:
                yield self._events.popleft()
            if self._steps % _KEY_STEPS == 0:
                simulation.scheduler.watch(wanted=True)
            if self._steps % _FRAME_STEPS == 0:
                yield self._frame(frames)
            if self._steps % _STATUS_STEPS == 0:
                yield status_of(simulation)

    async def explain(self, handle: int) -> Explanation:
        """Why a request is where it is, with its page tables and what it has said."""
        simulation = self._simulation
        explained, events = simulation.explain(handle)
        self._take(events)
        records = list(self._records.get(handle, ()))
        id = f"#{handle}"
        if not explained.state:
            if not records:
                raise RequestNotFound(f"no request {id!r} is open, and none is remembered")
            return Explanation(id, "ended", records)
        present: list[Told] = [*explained.waiting, *explained.running]
        records += [Record(at=self._at, **fields_of(each, simulation.names)) for each in present]
        said = simulation.said.get(handle, {})
        return Explanation(
            id=id,
            state=explained.state,
            reasons=records,
            eta_ms=UNSET if explained.eta_ms is None else explained.eta_ms,
            tables=tables_of(explained),
            text=[words(said.get(table.choice, ())) for table in explained.tables],
        )

    async def cancel(self, handle: int) -> None:
        """End a request."""
        self._check(handle)
        self._simulation.scheduler.cancel(handle, self._simulation.now)
        self._take(self._simulation.take_events())

    async def reprioritize(self, handle: int, priority: int) -> None:
        """Another priority."""
        self._check(handle)
        self._simulation.scheduler.reprioritize(handle, priority, self._simulation.now)
        self._take(self._simulation.take_events())

    @property
    def _at(self) -> float:
        return round(self._began + self._simulation.now, 3)

    def _check(self, handle: int) -> None:
        if handle not in self._simulation.names:
            raise RequestNotFound(f"no request '#{handle}' is open")

    def _step(self) -> None:
        self._steps += 1
        self._take(self._simulation.step())

    def _take(self, events: StepEvents) -> None:
        """Tell of ``events``, and remember them request by request."""
        at, simulation = self._at, self._simulation
        for each in in_order(events, self._evictions.due(events.evicted, simulation.now)):
            fields = fields_of(each, simulation.names)
            self._events.append(Event(at=at, **fields))
            if "handle" in fields:
                self._remember(fields["handle"], at, fields)
        for finished in events.finished:
            simulation.forget(finished.handle)
        for failed in events.failed:
            simulation.forget(failed.handle)

    def _remember(self, handle: int, at: float, fields: dict[str, Any]) -> None:
        records = self._records.setdefault(handle, deque(maxlen=_RECORDS))
        records.append(Record(at=at, **fields))
        self._records.move_to_end(handle)
        if len(self._records) > _REMEMBERED:
            self._records.popitem(last=False)

    def _frame(self, frames: Frames) -> State:
        simulation = self._simulation
        changes = simulation.changes()
        return frames.frame(changes, simulation.names, self._at, simulation.counters())
