"""The runner for a device with a queue, on the CPU: done when it is launched, read late."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pagedd.core.events import StepEvents
from pagedd.core.plan import NoMemory, StepPlan
from pagedd.models.load import LoadedModel
from pagedd.runtime.build_queued import queued_runner
from pagedd.runtime.device_step import CudaRecorder, Record, Recording, StepOutputs, buckets
from pagedd.runtime.queued_runner import Flight
from tests.runtime.harness import TOKEN_SECONDS, Bench


class Again:
    """Instead of a graph: the step once more, its results where those of the first time are."""

    replays = 0

    def __init__(self, step: Callable[[], StepOutputs]) -> None:
        self._step = step
        self.outputs = step()

    def replay(self) -> None:
        Again.replays += 1
        for kept, found in zip(self.outputs, self._step(), strict=True):
            kept.copy_(found)


def record(step: Callable[[], StepOutputs]) -> tuple[Recording, StepOutputs]:
    again = Again(step)
    return again, again.outputs


class QueuedBench(Bench):
    """As ``Bench``, one step ahead; ``captured``: steps of single tokens are recorded."""

    def __init__(self, model: LoadedModel, *, captured: bool, **config: Any) -> None:
        super().__init__(model, **config)
        own: Record | None = None
        if captured:
            own = CudaRecorder(model.device) if model.device.type == "cuda" else record
        self.runner = queued_runner(self.config, model, self.shape, own)
        if captured:
            self.runner.graphs.capture(buckets(self.shape.max_num_seqs), lambda fraction: None)
        self.under_way: tuple[StepPlan, Flight] | None = None

    def step(self) -> StepEvents:
        self.now += 0.01
        plan = self.scheduler.plan(self.now)
        before, self.under_way = self.under_way, None
        if plan is not None:
            with suppress(NoMemory):
                self.under_way = plan, self.runner.launch(plan)
        if before is not None:
            result, _ = self.runner.collect(before[1])
            swap = result.copied * self.page_seconds
            phases = {"execute": before[0].num_tokens * TOKEN_SECONDS, "swap": swap}
            self.scheduler.collected(before[0], result, self.now, phases)
        if self.under_way is not None:
            self.scheduler.launched(self.under_way[0], self.now)
        elif plan is not None:
            self.scheduler.abandoned(plan, self.now)
        self.scheduler.audit()
        events = self.scheduler.take_events()
        assert not events.failed, events.failed
        self.preempted += events.preempted
        self.resumed += events.resumed
        return events
