"""A scheduler, a symbolic runner and a clock, with every rule of the events checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

from pagedd.core.ageing import MOST_URGENT
from pagedd.core.events import (
    Evicted,
    Failed,
    Finished,
    Preempted,
    Resumed,
    StepEvents,
    Token,
    Waiting,
)
from pagedd.core.plan import StepPlan
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from tests.core.symbolic import EOS, SymbolicRunner, run_alone
from tests.core.witness import Witness


def config(**changes: object) -> SchedulerConfig:
    """Small limits, to be changed by name."""
    values: dict[str, object] = {
        "num_pages": 16,
        "page_size": 4,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "max_model_len": 64,
        "max_queue": 64,
        "eos_ids": EOS,
        "preemption_policy": "arrival",
    }
    return SchedulerConfig(**(values | changes))  # type: ignore[arg-type]


def prompt(family: int, length: int) -> tuple[int, ...]:
    """Tokens that differ between families from the first on."""
    return tuple((family * 31 + i * 7) % 97 + 1 for i in range(length))


@dataclass
class Story:
    """What was heard of one request."""

    request: Request
    submitted: float
    asked: int = 0
    priority: int = 0  # of now
    waited: float = 0.0  # seconds in which nothing of it ran, since it asked for its priority
    started: float | None = None
    cached_tokens: int = 0
    tokens: dict[int, list[Token]] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)  # choices preempted and not resumed
    preemptions: int = 0
    cancelled: bool = False
    ended_choices: set[int] = field(default_factory=set)
    finished: Finished | None = None
    failed: Failed | None = None
    page_seconds: float = 0.0
    pages_peak: int = 0

    @property
    def over(self) -> bool:
        return self.finished is not None or self.failed is not None

    def drawn(self, index: int = 0) -> tuple[int, ...]:
        return tuple(token.token for token in self.tokens.get(index, ()))


class World:
    """Runs histories; after each change it audits, after each event it checks the story."""

    def __init__(self, settings: SchedulerConfig, audit: bool = True) -> None:
        self.config = settings
        self.scheduler = Scheduler(settings, key=b"key")
        self.runner = SymbolicRunner(settings)
        self.witness = Witness(self.scheduler, self.runner)
        self.stories: dict[int, Story] = {}
        self.now = 100.0
        self.steps = 0
        self.plans: list[StepPlan] = []
        self.preempted: list[Preempted] = []
        self.resumed: list[Resumed] = []
        self.evicted: list[Evicted] = []
        self.waiting: list[Waiting] = []
        # Tokens of each client, counted by what is heard: all, and on its counter.
        self.used: Counter[str] = Counter()
        self.counters: dict[str, int] = {}
        self._audit = audit

    def submit(
        self,
        prompt: object,
        priority: int = 0,
        salt: bytes = b"",
        client: str = "",
        **params: object,
    ) -> int:
        """A new request; its handle. ``max_tokens`` is 8 unless given."""
        handle = len(self.stories) + 1
        sampling = SamplingParams(**({"max_tokens": 8} | params))  # type: ignore[arg-type]
        tokens = tuple(prompt)  # type: ignore[arg-type]
        request = Request(handle, tokens, sampling, priority, salt, client)
        self.stories[handle] = Story(request, self.now, priority, priority)
        self.scheduler.submit(request, self.now)
        self._open_account(handle)
        self._observe()
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

    def step(self, *meanwhile: tuple[object, ...]) -> StepPlan | None:
        """One plan, executed and committed; ``meanwhile`` are commands while it runs."""
        self._pass(0.001)
        state = self.scheduler._state
        self.witness.before()
        plan = self.scheduler.plan(self.now)
        queued = [each for queue in (state.waiting, state.running) for each in queue]
        head = min(queued, key=lambda each: each.order, default=None)
        for preempted in state.events.preempted:
            assert state.running.last.priority <= preempted.priority, "a less urgent one stayed"
            assert head is not None
            assert (preempted.handle, preempted.choice) != (head.handle, head.index)
        if plan is not None:
            self.witness.after(plan, state.events)
        self._observe()
        self._check_priorities()
        if plan is None:
            assert self.scheduler.idle
            for method, *arguments in meanwhile:
                method(*arguments)  # type: ignore[operator]
            self._observe()
            return None
        self.plans.append(plan)
        self.steps += 1
        for method, *arguments in meanwhile:
            method(*arguments)  # type: ignore[operator]
            self._observe()
        result = self.runner.execute(plan)
        self._pass(0.01)
        self.scheduler.commit(plan, result, self.now)
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

    def _observe(self) -> None:
        if self._audit:
            self.scheduler.audit()
        events = self.scheduler.take_events()
        if events:
            self._check(events)
        if self.config.fair_share:
            self._check_accounts()

    def _check(self, events: StepEvents) -> None:
        for change in events.reprioritized:
            story = self.stories[change.handle]
            assert not story.over
            assert change.before == story.priority
            story.priority = change.priority
            assert not change.aged or change.priority < change.before
        for accepted in events.accepted:
            assert not self.stories[accepted.handle].over
        for started in events.started:
            story = self.stories[started.handle]
            assert story.started is None
            assert not story.over
            story.started = self.now
            story.cached_tokens = started.cached_tokens
            assert started.cached_tokens < len(story.request.prompt)
            self._charge(story, len(story.request.prompt) - started.cached_tokens)
            assert started.queued_ms == pytest.approx(1e3 * (self.now - story.submitted))
        self.preempted += events.preempted
        self.resumed += events.resumed
        self.evicted += events.evicted
        self.waiting += events.waiting
        for preempted in events.preempted:
            story = self.stories[preempted.handle]
            assert story.started is not None
            assert preempted.choice not in story.away
            story.away.add(preempted.choice)
            story.preemptions += 1
        for resumed in events.resumed:
            self.stories[resumed.handle].away.remove(resumed.choice)
        for token in events.tokens:
            self._check_token(token)
        for finished in events.finished:
            self._check_finished(finished)
        for failed in events.failed:
            story = self.stories[failed.handle]
            assert not story.over
            story.failed = failed

    def _open_account(self, handle: int) -> None:
        """A client that comes starts with what the least has used; to go gains nothing."""
        group = self.scheduler._state.groups.get(handle)
        client = self.stories[handle].request.client
        if group is not None and group.account is not None and group.account.requests == 1:
            assert self.scheduler._state.clients is not None
            accounts = self.scheduler._state.clients.accounts()
            others = [each.used for name, each in accounts.items() if name != client]
            least = max(min(others), self.counters.get(client, 0)) if others else 0
            assert group.account.used == least
            self.counters[client] = least

    def _charge(self, story: Story, tokens: int) -> None:
        self.used[story.request.client] += tokens
        if self.config.fair_share:
            self.counters[story.request.client] += tokens

    def _check_accounts(self) -> None:
        groups = self.scheduler._state.groups.values()
        if not groups:
            self.counters.clear()
        early = {each.account for each in groups if each.charged and not each.started}
        for group in groups:
            if group.account is not None and group.account not in early:
                assert group.account.used == self.counters[group.request.client]

    def _check_priorities(self) -> None:
        """Each is as urgent as it was asked to be, less what it has gained by waiting."""
        aging = self.config.priority_aging
        for handle, group in self.scheduler._state.groups.items():
            story = self.stories[handle]
            assert story.priority == group.priority
            levels = story.asked - story.priority
            if aging is None:
                assert levels == 0
            elif story.priority > MOST_URGENT:
                assert levels * aging <= story.waited + 1e-6
                assert (levels + 1) * aging >= story.waited - 1e-6

    def _check_token(self, token: Token) -> None:
        story = self.stories[token.handle]
        assert story.started is not None
        assert not story.over
        assert token.choice not in story.away
        assert not story.cancelled, "a token after the cancel"
        assert token.choice not in story.ended_choices, "a token after the choice was ended"
        drawn = story.tokens.setdefault(token.choice, [])
        assert not drawn or drawn[-1].finish is None, "a token after the last one"
        drawn.append(token)
        self._charge(story, 1)
        alone = run_alone(story.request, token.choice, self.config)
        assert token.token == alone.tokens[len(drawn) - 1]
        last = len(drawn) == len(alone.tokens)
        expected = (alone.finish, alone.stop) if last else (None, None)
        assert (token.finish, token.stop) == expected

    def _check_finished(self, finished: Finished) -> None:
        story = self.stories[finished.handle]
        assert not story.over
        story.finished = finished
        assert finished.cancelled == story.cancelled
        assert finished.cached_tokens == story.cached_tokens
        ledger = finished.ledger
        life = ledger.queued_ms + ledger.prefill_ms + ledger.decode_ms + ledger.preempted_ms
        assert life == pytest.approx(1e3 * (self.now - story.submitted))
        if story.started is not None:
            assert ledger.queued_ms == pytest.approx(1e3 * (story.started - story.submitted))
        assert ledger.preemptions == story.preemptions
        assert ledger.page_seconds == pytest.approx(story.page_seconds)
        assert ledger.pages_peak == story.pages_peak
        if not story.cancelled:
            for index in set(range(story.request.params.n)) - story.ended_choices:
                assert story.tokens[index][-1].finish is not None
