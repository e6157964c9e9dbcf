"""The loop for a device that works through a queue: it never waits for the host.

Step n + 1 is planned and launched while step n is carried out; only then is n waited for::

    host     plan 1, launch 1 │ plan 2, launch 2, collect 1, report │ plan 3, launch 3, collect 2 …
    device            └─ step 1 ──────────────┴─ step 2 ───────────────────┴─ step 3 …

The tokens that step n draws are inputs of step n + 1 before the host knows them: the runner feeds
them on the device. See ``core.scheduler`` for what follows from that.
"""

from __future__ import annotations

from time import perf_counter
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from pagedd.core.plan import NoMemory, StepPlan, StepResult
from pagedd.core.scheduler import Scheduler
from pagedd.engine.desk import Desk, Grammars
from pagedd.engine.link import EngineLink
from pagedd.engine.loop import Clock, report

F = TypeVar("F")


@runtime_checkable
class QueuedRunner(Protocol[F]):
    """Adds plans to the queue of a device, and later reads what they have drawn."""

    def launch(self, plan: StepPlan) -> F:
        """Add the step to the queue, behind all before it, and do not wait for the device.

        ``NoMemory``: its moves were added and its chunks were not. Any other exception ends the
        engine. At most two launched steps are not collected.
        """

    def collect(self, flight: F) -> tuple[StepResult, dict[str, float]]:
        """Wait for the oldest launched step; what it has drawn, and the seconds of its phases."""


class _Flight(NamedTuple, Generic[F]):
    """A step under way."""

    plan: StepPlan
    flight: F
    phases: dict[str, float]


def serve_overlapped(
    link: EngineLink,
    scheduler: Scheduler,
    runner: QueuedRunner[F],
    clock: Clock,
    grammars: Grammars | None = None,
) -> None:
    """As ``loop.serve``, one step ahead. The report of a step comes when it was collected."""
    desk = Desk(scheduler, grammars, link.wake)
    under_way: _Flight[F] | None = None
    nothing_to_do = scheduler.idle
    sent = 0.0  # seconds that the report before took to hand over
    while not link.closed:
        commands = link.drain(block=nothing_to_do)
        if not desk.take(commands, clock()):
            break
        before, under_way = under_way, None
        began = perf_counter()
        plan = scheduler.plan(clock())
        if plan is not None:
            under_way = _launch(runner, plan, {"plan": perf_counter() - began})
        phases: dict[str, float] = {}
        if before is not None:
            phases = _collect(scheduler, runner, before, clock) | {"send": sent}
        if under_way is not None:
            scheduler.launched(under_way.plan, clock())
        elif plan is not None:
            scheduler.abandoned(plan, clock())
        nothing_to_do = under_way is None and scheduler.idle
        events = scheduler.take_events()
        if before is None and not events and not commands:
            continue
        began = perf_counter()
        link.send(report(scheduler, events, phases))
        sent = perf_counter() - began
    if under_way is not None:
        runner.collect(under_way.flight)  # no step is left half done


def _launch(runner: QueuedRunner[F], plan: StepPlan, phases: dict[str, float]) -> _Flight[F] | None:
    """None: there was no memory for it."""
    try:
        return _Flight(plan, runner.launch(plan), phases)
    except NoMemory:
        return None


def _collect(
    scheduler: Scheduler, runner: QueuedRunner[F], before: _Flight[F], clock: Clock
) -> dict[str, float]:
    """Wait for a step and take it in; the seconds of its phases."""
    result, phases = runner.collect(before.flight)
    collected = perf_counter()
    scheduler.collected(before.plan, result, clock(), phases)
    return before.phases | phases | {"commit": perf_counter() - collected}
