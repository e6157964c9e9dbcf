"""A device whose answers come late, or that has no memory, and what serves scripts with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pagedd.core.plan import NoMemory, StepPlan, StepResult
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.engine.loop import serve
from pagedd.engine.messages import Step, Submit
from pagedd.engine.overlap import serve_overlapped
from tests.core.symbolic import EOS, SymbolicRunner
from tests.engine.test_loop import Script, ScriptedLink


def limits(**changes: Any) -> SchedulerConfig:
    values: dict[str, Any] = {
        "num_pages": 9,
        "page_size": 4,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 8,
        "max_model_len": 30,
        "max_queue": 8,
        "eos_ids": EOS,
        "num_host_pages": 4,
        "page_bytes": 4_000_000,
    }
    return SchedulerConfig(**(values | changes))


@dataclass
class Device:
    """Carries plans out when they are launched, and tells what they drew when they are collected.

    The steps of the numbers ``fails`` find no memory for more than ``fits`` rows.
    """

    config: SchedulerConfig
    fits: int = 10**6
    fails: frozenset[int] = frozenset()
    order: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # of the steps that found no memory

    def __post_init__(self) -> None:
        self.memory = SymbolicRunner(self.config)
        self.phases: dict[str, float] = {}
        self._attempts = itertools.count()

    def prepare(self) -> bool:
        return False

    def execute(self, plan: StepPlan) -> StepResult:
        if next(self._attempts) in self.fails and plan.num_tokens > self.fits:
            self.rows.append(plan.num_tokens)
            self.memory.step += 1
            self.memory._move(self.memory.move(plan), self.memory.host, self.memory.cells)
            raise NoMemory
        result = self.memory.execute(plan)
        for sampled in result.sampled:
            if sampled.token < 0:
                raise AssertionError("these histories have valid logits only")
        return result

    def launch(self, plan: StepPlan) -> tuple[int, StepResult]:
        self.order.append(f"launch {plan.step}")
        return plan.step, self.execute(plan)

    def collect(self, flight: tuple[int, StepResult]) -> tuple[StepResult, dict[str, float]]:
        self.order.append(f"collect {flight[0]}")
        return flight[1], {"execute": 1e-3}


def scheduler(config: SchedulerConfig) -> Scheduler:
    """One that audits itself after whatever is done to it."""
    found = Scheduler(config, key=b"k")
    for name in ("plan", "launched", "collected", "abandoned", "commit", "cancel"):
        setattr(found, name, _audited(found, getattr(found, name)))
    return found


def _audited(found: Scheduler, method: Callable[..., object]) -> object:
    def run(*arguments: object) -> object:
        result = method(*arguments)
        found.audit()
        return result

    return run


def run(script: Script, device: Device, *, overlapped: bool = True) -> list[Step]:
    """Serve the script, then whatever is left of it; the reports."""
    link = ScriptedLink([*script, *([] for _ in range(600))])
    loop: Any = serve_overlapped if overlapped else serve
    clock = itertools.count()
    loop(link, scheduler(device.config), device, lambda: next(clock) / 1000)
    return [report for report in link.reports if isinstance(report, Step)]


def texts(steps: list[Step]) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for step in steps:
        for token in step.events.tokens:
            found.setdefault((token.handle, token.choice), []).append(token.token)
    return found


def submit(handle: int, length: int = 5, priority: int = 0, **params: Any) -> Submit:
    sampling = SamplingParams(**({"max_tokens": 6, "seed": handle * 16} | params))
    prompt = tuple(handle + i for i in range(1, length + 1))
    return Submit(Request(handle, prompt, sampling, priority))
