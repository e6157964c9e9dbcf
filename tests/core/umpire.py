"""Umpire: who comes first, who gives way and who pays, watched from outside."""

from __future__ import annotations

from collections import Counter

from pagedd.core import policies
from pagedd.core.ageing import MOST_URGENT
from pagedd.core.events import Preempted
from pagedd.core.plan import StepPlan
from pagedd.core.scheduler import Scheduler
from pagedd.core.sequence import Sequence
from tests.core.inversion import check_no_inversion
from tests.core.story import Story


class Umpire:
    """Checks each plan and each account by what was heard of the requests."""

    def __init__(self, scheduler: Scheduler, stories: dict[int, Story]) -> None:
        self._state = scheduler._state
        self._allowance = scheduler._allowance
        self._stories = stories
        self._ran: list[Sequence] = []
        self.gave_way: Counter[tuple[int, int]] = Counter()  # by (handle, choice)
        # Tokens of each client: all, and on its counter.
        self.used: Counter[str] = Counter()
        self.counters: dict[str, int] = {}
        # Clients that were charged a prompt which was cancelled before its first chunk: it stays.
        self._overcharged: set[str] = set()
        self._early: dict[int, str] = {}  # charged, and not begun

    def before(self) -> None:
        """A plan is about to be made."""
        self._ran = list(self._state.running)

    def after(self, plan: StepPlan) -> None:
        """The plan was made, and its events were not taken yet."""
        state = self._state
        queued = [each for queue in (state.waiting, state.running) for each in queue]
        first = min(queued, key=lambda each: each.order)
        for event in state.events.preempted:
            self._check_victim(event, first)
            self.gave_way[event.handle, event.choice] += 1
        check_no_inversion(state, plan, self._allowance.rows)

    def check_priorities(self) -> None:
        """Each is as urgent as it was asked to be, less what it has gained by waiting."""
        aging = self._state.config.priority_aging
        for handle, group in self._state.groups.items():
            story = self._stories[handle]
            assert (story.asked, story.priority) == (group.asked, group.priority)
            levels = story.asked - story.priority
            if aging is None:
                assert levels == 0
            elif story.priority > MOST_URGENT:
                assert levels * aging <= story.waited + 1e-6
                assert (levels + 1) * aging >= story.waited - 1e-6

    def enter(self, handle: int) -> None:
        """A client that comes starts with what the least has used; to go gains nothing."""
        group = self._state.groups.get(handle)
        client = self._stories[handle].request.client
        if group is not None and group.account is not None and group.account.requests == 1:
            assert self._state.clients is not None
            accounts = self._state.clients.accounts()
            others = [each.used for name, each in accounts.items() if name != client]
            least = max(min(others), self.counters.get(client, 0)) if others else 0
            assert group.account.used == least or client in self._overcharged
            self.counters[client] = group.account.used

    def charge(self, client: str, tokens: int) -> None:
        """A prompt to compute, or a token that was drawn."""
        self.used[client] += tokens
        if self._state.config.fair_share:
            self.counters[client] += tokens

    def check_accounts(self) -> None:
        """The counters say what was heard, but for prompts whose first chunk is to come."""
        groups = self._state.groups.values()
        if not groups:
            self.counters.clear()
            self._overcharged.clear()
        for handle, client in self._early.items():
            if handle not in self._state.groups:
                self._overcharged.add(client)
        self._early = {
            each.request.handle: each.request.client
            for each in groups
            if each.charged and not each.started
        }
        early = {each.account for each in groups if each.charged and not each.started}
        for group in groups:
            if group.account is not None and group.account not in early:
                client = group.request.client
                if client in self._overcharged:
                    assert group.account.used >= self.counters[client]
                    self.counters[client] = group.account.used
                assert group.account.used == self.counters[client]

    def _check_victim(self, event: Preempted, first: Sequence) -> None:
        """The most urgent, oldest one never gives way, and nobody to what is less urgent.

        For a slot only to what was asked to be more urgent. To its equals at most
        ``MAX_PREEMPTIONS`` times before each of them, the first that runs aside, has given way
        as often.
        """
        often = policies.MAX_PREEMPTIONS
        running = self._state.running
        assert (event.handle, event.choice) != (first.handle, first.index)
        assert running.last.priority <= event.priority, "a less urgent one stayed"
        if event.lack == "slots":
            assert self._stories[event.taker].asked < event.priority
            return
        assert event.taker_priority <= event.priority
        if self.gave_way[event.handle, event.choice] >= often:
            for each in running:
                protected = each is running.first or each not in self._ran
                if each.priority == event.priority and not protected:
                    assert self.gave_way[each.handle, each.index] >= often
