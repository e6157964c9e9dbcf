"""Scheduler and runner in one process, without daemon, text or clock."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagedd.core.events import Finished, Preempted, Reprioritized, Resumed, StepEvents
from pagedd.core.plan import TopLogprob
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.engine.messages import EngineConfig
from pagedd.models.load import LoadedModel, load_model
from pagedd.runtime.build import build_runner
from pagedd.runtime.build_queued import build_queued_runner
from pagedd.runtime.deferred_swap import DeferredSwap
from tests.runtime.tally import Tally

# What the scheduler is told, so that modes and policies that weigh costs decide alike in every run:
# how long a token takes to compute, how large a page is, and how long it takes to copy one.
TOKEN_SECONDS = 2e-3
PAGE_BYTES = 16_000_000
PAGE_SECONDS = 1e-3

Asked = tuple[Sequence[int], SamplingParams]

SAMPLING: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"seed": 11},
    {"temperature": 0.0, "frequency_penalty": 0.8, "repetition_penalty": 1.3},
    {"seed": 12, "top_p": 0.8, "presence_penalty": 0.5},
    {"seed": 13, "top_k": 30, "min_p": 0.02, "min_tokens": 20},
    {"seed": 14, "n": 3},
    {"temperature": 0.0, "logprobs": 2},
    {"seed": 15, "temperature": 1.5, "ignore_eos": True},
]


@dataclass
class Outcome:
    """What one choice gave."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[tuple[TopLogprob, ...]] = field(default_factory=list)
    finish: str | None = None


class Bench:
    """One model with a pool of its own; ``run`` serves all given requests at once.

    ``page_seconds`` is what copying a page is said to take. ``lazy``: of what a swap copies out, a
    step copies no more than it must, or one page (a small model's copies are all made at once).
    ``swap_in_pages``: of what it copies in, a step copies no more than so many. ``ahead``: as on a
    GPU, what comes back is copied in while others compute.
    """

    def __init__(
        self,
        model: Path | LoadedModel,
        *,
        prefix_cache: bool = True,
        page_seconds: float = PAGE_SECONDS,
        lazy: bool = False,
        ahead: bool = False,
        swap_in_pages: int | None = None,
        **config: Any,
    ) -> None:
        name = model if isinstance(model, Path) else "loaded"
        self.config = EngineConfig(model=str(name), prefix_cache=prefix_cache, **config)
        self.loaded = load_model(self.config, _quiet) if isinstance(model, Path) else model
        on_gpu = self.loaded.device.type == "cuda"
        build: Any = build_queued_runner if on_gpu else build_runner
        self.runner, self.shape = build(self.config, self.loaded, _quiet)
        if lazy:
            runner = self.runner
            runner.swap = DeferredSwap(
                runner.cache, runner.host_cache.pages, runner.backend, step_bytes=1
            )
        self.scheduler = Scheduler(
            SchedulerConfig(
                num_pages=self.shape.num_pages,
                page_size=self.shape.page_size,
                max_num_seqs=self.shape.max_num_seqs,
                max_num_batched_tokens=self.shape.max_num_batched_tokens,
                max_model_len=self.shape.max_model_len,
                max_queue=self.config.max_queue,
                eos_ids=frozenset(self.loaded.spec.eos_ids),
                prefix_cache=prefix_cache,
                preemption_policy=self.config.preemption_policy,
                preemption_mode=self.config.preemption_mode,
                priority_aging=self.config.priority_aging,
                fair_share=self.config.fair_share,
                num_host_pages=self.shape.num_host_pages,
                swap_in_ahead=ahead,
                swap_in_pages=swap_in_pages or self.shape.swap_in_pages,
                page_bytes=PAGE_BYTES,
                longest_free_prompt=self.loaded.spec.rope.longest_free_prompt,
            ),
            key=b"tests",
        )
        self.page_seconds = page_seconds
        self.handle = 0
        self.now = 0.0
        self.tally = Tally()
        self.whole = swap_in_pages is None  # a small model's pages come back all at once
        self.preempted: list[Preempted] = []
        self.resumed: list[Resumed] = []
        self.reprioritized: list[Reprioritized] = []
        self.finished: dict[int, Finished] = {}

    @property
    def preemptions(self) -> int:
        """How often a sequence gave way."""
        return len(self.preempted)

    def run(
        self,
        requests: Sequence[Asked],
        *,
        order: Sequence[int] | None = None,
        apart: int = 0,
        priorities: Sequence[int] | None = None,
        before_step: Callable[[int], None] | None = None,
    ) -> list[list[Outcome]]:
        """→ one list of choices for each request.

        They arrive in ``order``, ``apart`` steps between them; request i is handle ``first + i``
        all the same, where ``first`` is ``handle`` before the call. ``before_step`` is called with
        the number of the step, from 0, and may give commands to the scheduler.
        """
        first, self.handle = self.handle, self.handle + len(requests)
        outcomes = [[Outcome() for _ in range(params.n)] for _, params in requests]
        coming = deque(order if order is not None else range(len(requests)))
        step = 0
        while coming or not self.scheduler.idle:
            while coming and (step >= apart * (len(requests) - len(coming)) or self.scheduler.idle):
                i = coming.popleft()
                prompt, params = requests[i]
                priority = priorities[i] if priorities else 0
                request = Request(first + i, tuple(prompt), params, priority, client=str(i % 3))
                self.scheduler.submit(request, self.now)
            if before_step is not None:
                before_step(step)
            self._read(self.step(), first, outcomes)
            step += 1
        return outcomes

    def step(self) -> StepEvents:
        """One step, and what happened in it. Needs something to do."""
        self.now += 0.01
        plan = self.scheduler.plan(self.now)
        assert plan is not None
        result = self.runner.execute(plan)
        swap = result.copied * self.page_seconds
        phases = {"execute": plan.num_tokens * TOKEN_SECONDS, "swap": swap}
        self.scheduler.commit(plan, result, self.now, phases)
        self.scheduler.audit()
        events = self.scheduler.take_events()
        assert not events.failed, events.failed
        self.tally.add(plan, events)
        self.preempted += events.preempted
        self.resumed += events.resumed
        self.reprioritized += events.reprioritized
        self.finished.update((each.handle, each) for each in events.finished)
        return events

    def preemptions_of(self, first: int, count: int) -> Counter[int]:
        """How often each of the ``count`` requests from handle ``first`` on was preempted."""
        times = Counter(event.handle - first for event in self.preempted)
        return Counter({i: times[i] for i in range(count)})

    def _read(self, events: StepEvents, first: int, outcomes: list[list[Outcome]]) -> None:
        for token in events.tokens:
            if token.handle - first >= len(outcomes):
                continue  # of a request that a test added by itself
            choice = outcomes[token.handle - first][token.choice]
            assert choice.finish is None
            choice.tokens.append(token.token)
            if token.logprobs is not None:
                choice.logprobs.append(token.logprobs.logprob)
                choice.top.append(token.logprobs.top)
            choice.finish = token.finish


def _quiet(phase: str, fraction: float) -> None:
    """Progress that nobody sees."""
