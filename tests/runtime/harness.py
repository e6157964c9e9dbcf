"""Scheduler and runner in one process, without daemon, text or clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagedd.core.events import StepEvents
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.engine.messages import EngineConfig
from pagedd.models.load import LoadedModel, load_model
from pagedd.runtime.build import build_runner


@dataclass
class Outcome:
    """What one choice gave."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str | None = None


class Bench:
    """One model with a pool of its own; ``run`` serves all given requests at once."""

    def __init__(
        self, model: Path | LoadedModel, *, prefix_cache: bool = True, **config: Any
    ) -> None:
        name = model if isinstance(model, Path) else "loaded"
        self.config = EngineConfig(model=str(name), prefix_cache=prefix_cache, **config)
        quiet = lambda phase, fraction: None  # noqa: E731
        self.loaded = load_model(self.config, quiet) if isinstance(model, Path) else model
        self.runner, self.shape = build_runner(self.config, self.loaded, quiet)
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
                num_host_pages=self.shape.num_host_pages,
                page_bytes=self.shape.page_bytes,
                longest_free_prompt=self.loaded.spec.rope.longest_free_prompt,
            ),
            key=b"tests",
        )
        self.preemptions = 0
        self.handle = 0

    def run(self, requests: list[tuple[list[int], SamplingParams]]) -> list[list[Outcome]]:
        """→ one list of choices for each request."""
        first = self.handle
        outcomes = [[Outcome() for _ in range(params.n)] for _, params in requests]
        for prompt, params in requests:
            self.scheduler.submit(Request(self.handle, tuple(prompt), params), 0.0)
            self.handle += 1
        now = 0.0
        while not self.scheduler.idle:
            now += 0.01
            plan = self.scheduler.plan(now)
            assert plan is not None
            result = self.runner.execute(plan)
            self.scheduler.commit(plan, result, now, self.runner.phases)
            self.scheduler.audit()
            self._read(self.scheduler.take_events(), first, outcomes)
        return outcomes

    def _read(self, events: StepEvents, first: int, outcomes: list[list[Outcome]]) -> None:
        assert not events.failed, events.failed
        self.preemptions += len(events.preempted)
        for token in events.tokens:
            choice = outcomes[token.handle - first][token.choice]
            assert choice.finish is None
            choice.tokens.append(token.token)
            if token.logprobs is not None:
                choice.logprobs.append(token.logprobs.logprob)
            choice.finish = token.finish
