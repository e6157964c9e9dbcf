"""A scheduler, a symbolic runner and a clock, with every rule of the events checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pagedd.core.events import Evicted, Preempted, Resumed, StepEvents, Waiting
from pagedd.core.plan import StepPlan
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from tests.core.story import Story
from tests.core.symbolic import EOS, SymbolicRunner
from tests.core.umpire import Umpire
from tests.core.witness import Witness


def config(**changes: Any) -> SchedulerConfig:
    """Small limits, to be changed by name."""
    values: dict[str, Any] = {
        "num_pages": 16,
        "page_size": 4,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "max_model_len": 64,
        "max_queue": 64,
        "eos_ids": EOS,
        "preemption_policy": "arrival",
    }
    return SchedulerConfig(**(values | changes))


def prompt(family: int, length: int) -> tuple[int, ...]:
    """Tokens that differ between families from the first on."""
    return tuple((family * 31 + i * 7) % 97 + 1 for i in range(length))


class World:
    """Runs histories; after each change it audits, after each event it checks the story."""

    late = False  # see Story

    def __init__(self, settings: SchedulerConfig, audit: bool = True) -> None:
        self.config = settings
        self.scheduler = Scheduler(settings, key=b"key")
        self.runner = SymbolicRunner(settings)
        self.witness = Witness(self.scheduler, self.runner)
        self.stories: dict[int, Story] = {}
        self.umpire = Umpire(self.scheduler, self.stories)
        self.now = 100.0
        self.steps = 0
        self.plans: list[StepPlan] = []
        self.preempted: list[Preempted] = []
        self.resumed: list[Resumed] = []
        self.evicted: list[Evicted] = []
        self.waiting: list[Waiting] = []
        self._audit = audit

    def submit(
        self,
        prompt: Iterable[int],
        priority: int = 0,
        salt: bytes = b"",
        client: str = "",
        **params: Any,
    ) -> int:
        """A new request; its handle. ``max_tokens`` is 8 unless given."""
        handle = len(self.stories) + 1
        sampling = SamplingParams(**({"max_tokens": 8} | params))
        tokens = tuple(prompt)
        request = Request(handle, tokens, sampling, priority, salt, client)
        self.stories[handle] = Story(request, self.now, self.config, self.late, priority, priority)
        self.scheduler.submit(request, self.now)
        self.umpire.enter(handle)
        self._observe(audit=False)
        return handle

    def cancel(self, handle: int) -> None:
        story = self.stories.get(handle)
        if story is not None and not story.over:
            story.cancelled = True
        self.scheduler.cancel(handle, self.now)

    def end_choice(self, handle: int, index: int) -> None:
        story = self.stories.get(handle)
        if story is not None and 0 <= index < story.request.params.n:
            story.ended_choices.add(index)
        self.scheduler.end_choice(handle, index, self.now)

    def reprioritize(self, handle: int, priority: int) -> None:
        self.scheduler.reprioritize(handle, priority, self.now)
        story = self.stories.get(handle)
        if story is not None and not story.over:
            (event,) = self.scheduler._state.events.reprioritized
            assert event == (handle, story.priority, priority, False)
            story.asked, story.waited = priority, 0.0
        else:
            assert not self.scheduler._state.events.reprioritized
        self._observe()

    def explain(self, handle: int) -> None:
        self.scheduler.explain(handle, 0, self.now)

    def wait(self, seconds: float) -> None:
        """Time goes by."""
        self._pass(seconds)

    def step(self, *meanwhile: tuple[Any, ...]) -> StepPlan | None:
        """One plan, executed and committed; ``meanwhile`` are commands while it runs."""
        self._pass(0.001)
        self.witness.before()
        self.umpire.before()
        plan = self.scheduler.plan(self.now)
        if plan is not None:
            self.witness.after(plan, self.scheduler._state.events)
            self.umpire.after(plan)
        self._observe()
        self.umpire.check_priorities()
        if plan is None:
            assert self.scheduler.idle
            for method, *arguments in meanwhile:
                method(*arguments)
            self._observe()
            return None
        self.plans.append(plan)
        self.steps += 1
        for method, *arguments in meanwhile:
            method(*arguments)
            self._observe()
        result = self.runner.execute(plan)
        self._pass(0.01)
        before = self.scheduler.stats().computed_tokens
        self.scheduler.commit(plan, result, self.now)
        rows = sum(chunk.length for chunk in plan.chunks)
        assert self.scheduler.stats().computed_tokens == before + rows
        self._observe()
        if self._audit:
            self.witness.check_contents()
        return plan

    def run(self, limit: int = 2000) -> None:
        """Step until idle, within ``limit`` steps; then nothing is held and all stories end."""
        for _ in range(limit):
            if self.step() is None:
                break
        assert self.scheduler.idle, f"not idle after {limit} steps"
        self.check_rest()

    def check_rest(self) -> None:
        stats = self.scheduler.stats()
        assert (stats.running, stats.waiting) == (0, 0)
        assert stats.pages.free + stats.pages.cached == stats.pages.total
        assert all(story.over for story in self.stories.values())
        ends = stats.finished_total + stats.cancelled_total + stats.failed_total
        assert ends == len(self.stories)
        tokens = sum(len(drawn) for s in self.stories.values() for drawn in s.tokens.values())
        assert stats.generated_tokens == tokens
        preemptions = stats.preemptions_swap + stats.preemptions_recompute
        assert preemptions == sum(s.preemptions for s in self.stories.values())
        assert stats.swapped == 0
        assert stats.host_pages.swapped == 0
        assert stats.swapped_bytes == self.witness.swapped * self.config.page_bytes
        assert stats.spilled_pages == self.witness.saved
        ledgers = [s.finished.ledger.swapped_bytes for s in self.stories.values() if s.finished]
        if not stats.failed_total:
            assert sum(ledgers) == stats.swapped_bytes
        hits = sum(s.cached_tokens for s in self.stories.values())
        assert stats.prefix_hits == hits
        assert stats.host_hits <= hits

    def _pass(self, seconds: float) -> None:
        """Time goes by; what is held meanwhile is counted here independently of the books."""
        held: dict[int, set[int]] = {}
        for handle, group in self.scheduler._state.groups.items():
            held[handle] = {page for each in group.sequences for page in each.table.pages}
        for handle, pages in held.items():
            story = self.stories[handle]
            story.page_seconds += len(pages) * seconds
            story.pages_peak = max(story.pages_peak, len(pages))
            if not self.scheduler._state.groups[handle].active:
                story.waited += seconds
        self.now += seconds

    def _observe(self, *, audit: bool = True) -> None:
        if self._audit and audit:
            self.scheduler.audit()
        events = self.scheduler.take_events()
        if events:
            self._check(events)
        if self.config.fair_share:
            self.umpire.check_accounts()

    def _check(self, events: StepEvents) -> None:
        stories, now = self.stories, self.now
        for change in events.reprioritized:
            stories[change.handle].reprioritize(change)
        for accepted in events.accepted:
            assert not stories[accepted.handle].over
        for started in events.started:
            story = stories[started.handle]
            story.start(started, now)
            uncached = len(story.request.prompt) - started.cached_tokens
            self.umpire.charge(story.request.client, uncached)
        for preempted in events.preempted:
            stories[preempted.handle].preempt(preempted)
        for resumed in events.resumed:
            stories[resumed.handle].resume(resumed)
        for token in events.tokens:
            stories[token.handle].draw(token)
            self.umpire.charge(stories[token.handle].request.client, 1)
        for finished in events.finished:
            stories[finished.handle].finish(finished, now)
        for failed in events.failed:
            stories[failed.handle].fail(failed)
        self.preempted += events.preempted
        self.resumed += events.resumed
        self.evicted += events.evicted
        self.waiting += events.waiting
