"""The engine's loop: commands → plan → execute → commit → one report.

It knows token ids only and sees its runner as a Protocol, so with a fake runner it runs without
torch and without a tokenizer. ``overlap`` has the loop for a device that works through a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from pagedd.core.events import StepEvents
from pagedd.core.plan import NoMemory, StepPlan, StepResult
from pagedd.core.scheduler import Scheduler
from pagedd.engine.desk import Desk, Grammars
from pagedd.engine.link import EngineLink
from pagedd.engine.messages import Step

Clock = Callable[[], float]  # seconds, monotonic


class Runner(Protocol):
    """Carries out a plan on a device."""

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of the last step: build, execute, sample."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the step and draw its tokens.

        ``NoMemory``: the moves were made and nothing was computed. Any other exception ends the
        engine.
        """

    def prepare(self) -> bool:
        """A little work ahead of need, below a millisecond, while nobody asks for anything.

        False: there is nothing to prepare.
        """


def serve(
    link: EngineLink,
    scheduler: Scheduler,
    runner: Runner,
    clock: Clock,
    grammars: Grammars | None = None,
) -> None:
    """Run until the daemon says ``Shutdown`` or is gone. A step is never left half done.

    What else than ``NoMemory`` the runner raises is not caught: the state of the device is unknown
    then, and only a new process is sure to be sound.
    """
    desk = Desk(scheduler, grammars, link.wake)
    nothing_to_do = scheduler.idle
    sent = 0.0  # seconds that the report before took to hand over
    while not link.closed:
        while nothing_to_do and link.quiet() and runner.prepare():
            pass
        commands = link.drain(block=nothing_to_do)
        if not desk.take(commands, clock()):
            return
        began = perf_counter()
        plan = scheduler.plan(clock())
        phases = {"plan": perf_counter() - began}
        if plan is not None:
            phases |= _carry_out(scheduler, runner, plan, clock)
            phases["send"] = sent
        # A plan depends on commands and commits only: after "nothing", only a command helps.
        nothing_to_do = plan is None or scheduler.idle
        events = scheduler.take_events()
        if plan is None and not events and not commands:
            continue
        began = perf_counter()
        link.send(report(scheduler, events, phases if plan is not None else {}))
        sent = perf_counter() - began


def report(scheduler: Scheduler, events: StepEvents, phases: dict[str, float]) -> Step:
    """What has happened up to this moment: events, counters, and who looks gets the changes."""
    return Step(events, scheduler.stats(), phases, scheduler.look())


def _carry_out(
    scheduler: Scheduler, runner: Runner, plan: StepPlan, clock: Clock
) -> dict[str, float]:
    """Execute and commit; the seconds of the phases."""
    try:
        result = runner.execute(plan)
    except NoMemory:
        scheduler.abandoned(plan, clock())
        return {}
    executed = perf_counter()
    scheduler.commit(plan, result, clock(), runner.phases)
    return runner.phases | {"commit": perf_counter() - executed}
