"""A world whose device works through a queue: the next step is decided while one is carried out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pagedd.core.plan import Chunk, Join, Sampled, StepPlan, StepResult
from pagedd.core.scheduler import SchedulerConfig
from pagedd.core.sequence import PENDING
from tests.core.story import Story
from tests.core.symbolic import SymbolicRunner, extend_history, run_alone
from tests.core.world import World


@dataclass(frozen=True)
class Flight:
    """A step that was launched; what it gives is not to be looked at before it is collected."""

    plan: StepPlan
    result: StepResult


class QueuedRunner(SymbolicRunner):
    """Carries steps out in the order of their launch, and feeds what they draw to the next ones.

    The scheduler hears of it at ``collect`` alone: nothing that it launches before can name it.
    """

    def __init__(self, config: SchedulerConfig, stories: dict[int, Story]) -> None:
        super().__init__(config)
        self.flights: list[Flight] = []
        self.wasted: Counter[tuple[int, int]] = Counter()  # chunks, by (handle, choice)
        self._stories = stories

    def launch(self, plan: StepPlan) -> Flight:
        assert len(self.flights) < 2, "more than one step ahead"
        flight = Flight(plan, self.execute(plan))
        self.flights.append(flight)
        return flight

    def collect(self, flight: Flight) -> StepResult:
        assert self.flights.pop(0) is flight, "steps end in the order of their launch"
        return flight.result

    def _join(self, join: Join) -> None:
        assert PENDING not in join.tokens, "it cannot be told what nobody knows"
        super()._join(join)

    def _read(self, chunk: Chunk) -> None:
        super()._read(chunk)
        row = self._row(chunk.slot)
        story = self._stories[row.handle]
        alone = run_alone(story.request, row.index, story.config)
        ended = len(row.tokens) - row.num_prompt >= len(alone.tokens) + (alone.finish is None)
        if ended:
            assert alone.finish != "length", "a token after one that was known to be the last"
            self.wasted[row.handle, row.index] += 1
            assert self.wasted[row.handle, row.index] == 1, "more than one token was wasted"

    def _draw(self, slot: int, chunk: Chunk) -> Sampled:
        sampled = super()._draw(slot, chunk)
        if sampled.token < 0:  # the device goes on with something
            row = self._row(slot)
            row.tokens.append(0)
            extend_history(row.history, row.tokens)
        return sampled


class OverlappedWorld(World):
    """Launches each step before it hears of the one before."""

    late = True
    runner: QueuedRunner

    def __init__(self, settings: SchedulerConfig, audit: bool = True) -> None:
        super().__init__(settings, audit)
        self.runner = QueuedRunner(settings, self.stories)
        self.witness._runner = self.runner
        self.flight: Flight | None = None

    def step(self, *meanwhile: tuple[Any, ...]) -> StepPlan | None:
        """Plan and launch a step, then collect the one before; commands come while that runs."""
        self._pass(0.001)
        for method, *arguments in meanwhile:
            method(*arguments)
            self._observe()
        self.witness.before()
        self.umpire.before()
        plan = self.scheduler.plan(self.now)
        flight, self.flight = self.flight, None
        if plan is None:
            self._observe()
            assert flight is not None or self.scheduler.idle
            self._collect(flight)
            return None if flight is None else flight.plan
        self.witness.after(plan, self.scheduler._state.events)
        self.umpire.after(plan)
        self._observe()
        self.umpire.check_priorities()
        self.plans.append(plan)
        self.steps += 1
        self.flight = self.runner.launch(plan)
        self._pass(0.01)
        self._collect(flight)
        self.scheduler.launched(plan, self.now)
        self._observe()
        if self._audit:
            self.witness.check_contents()
        return plan

    def _collect(self, flight: Flight | None) -> None:
        if flight is not None:
            result = self.runner.collect(flight)
            self.scheduler.collected(flight.plan, result, self.now)
            self._observe()
