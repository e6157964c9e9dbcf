"""Every number of the events of a preemption, and of the way back, counted a second time."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings

from pagedd.core.costs import Choice
from pagedd.core.events import Preempted, Resumed
from pagedd.core.plan import StepPlan
from pagedd.core.policies import POLICIES
from pagedd.core.prefix import PrefixIndex
from pagedd.core.scheduler import SchedulerConfig
from pagedd.core.sequence import Sequence
from tests.core.histories import HAPPENINGS, LIMITS, MODE, REPEATABLE, act, finish, swap_world_of
from tests.core.world import World, config, prompt

Who = tuple[int, int]  # handle and choice


class Before(NamedTuple):
    """What holds at the moment at which a preemption is decided."""

    pages: int
    priority: int
    computed: int
    swap_ms: float
    recompute_ms: float
    host_needed: int
    host_available: int


class Witness(World):
    """A world that looks on when it preempts, and compares the events with what it saw."""

    def __init__(self, settings: SchedulerConfig) -> None:
        super().__init__(settings)
        self.state = self.scheduler._state
        self.decide = self.state.costs.choose
        self.state.costs.choose = self.look  # type: ignore[method-assign]
        self.seen: list[tuple[Who, Before]] = []
        self.away: dict[Who, tuple[Preempted, Before]] = {}
        self.running: list[Who] = []
        self.ways: Counter[str] = Counter()

    def look(self, victim: Sequence) -> Choice:
        """Count, before it decides, what there is to decide by."""
        costs, host, pool = self.state.costs, self.state.memory.host, self.state.memory.pool
        pages, size = victim.table.pages, self.config.page_size
        in_host = [
            page
            for key in digests(self.state.memory.index, victim, size)
            if (page := host.entries().get(key)) is not None
        ]
        free = sum(1 for refs in host.refs if refs == 0)
        kept = sum(1 for page in pages if pool.refs[page] > 1 and pool.keys[page] is not None)
        needed = len(pages) - len(in_host)
        moved = (needed + len(pages) - kept) * self.config.page_bytes
        again = max(victim.num_computed - kept * size, 0)
        before = Before(
            pages=len(pages),
            priority=victim.priority,
            computed=victim.num_computed,
            swap_ms=1e3 * moved * costs.byte_seconds,
            recompute_ms=1e3 * again * costs.token_seconds,
            host_needed=needed,
            host_available=free - sum(1 for page in in_host if host.refs[page] == 0),
        )
        self.seen.append(((victim.handle, victim.index), before))
        return self.decide(victim)

    def step(self, *meanwhile: tuple[Any, ...]) -> StepPlan | None:
        """A step, with all that it tells of preemptions checked."""
        heard = len(self.preempted), len(self.resumed)
        plan = super().step((self.look_around,), *meanwhile)
        events, back = self.preempted[heard[0] :], self.resumed[heard[1] :]
        seen, self.seen = self.seen, []
        assert [(each.handle, each.choice) for each in events] == [who for who, _ in seen]
        for event, (who, before) in zip(events, seen, strict=True):
            self.check_numbers(event, before)
            self.check_taker(event, events)
            self.away[who] = event, before
        for resumed in back:
            assert plan is not None
            self.check_back(resumed, plan)
        return plan

    def look_around(self) -> None:
        self.running = [(each.handle, each.index) for each in self.state.running]

    def check_numbers(self, event: Preempted, before: Before) -> None:
        limits = self.config
        assert event.policy == limits.preemption_policy
        assert (event.pages, event.priority) == (before.pages, before.priority)
        assert event.swap_ms == pytest.approx(before.swap_ms)
        assert event.recompute_ms == pytest.approx(before.recompute_ms)
        assert (event.host_needed, event.host_available) == before[-2:]
        fits = event.host_needed <= event.host_available
        quicker = "swap" if event.swap_ms <= event.recompute_ms else "recompute"
        if limits.preemption_mode == "recompute":
            expected = {("recompute", "configured")}
        elif limits.num_host_pages == 0:
            assert event.host_available == 0
            expected = {("recompute", "no_swap_space")}
        elif not fits:
            expected = {("recompute", "swap_space_full")}
        elif limits.preemption_mode == "swap":
            expected = {("swap", "configured")}
        else:
            slower = "recompute" if quicker == "swap" else "swap"
            expected = {(quicker, "estimate"), (slower, "trial")}
        assert (event.mode, event.choice_of_mode) in expected
        self.ways[event.choice_of_mode] += 1

    def check_taker(self, event: Preempted, events: list[Preempted]) -> None:
        """Who took it runs now, or had to go in its turn; it is not less urgent than who gave."""
        runs = event.taker in {handle for handle, _ in self.running}
        if event.lack == "slots":
            assert event.taker_priority < event.priority
            assert runs
            self.ways["slots"] += 1
            return
        assert event.lack == "pages"
        assert event.taker_priority <= event.priority
        if event.taker == event.handle:
            self.ways["itself"] += 1
            return
        gone = {each.handle for each in events[events.index(event) + 1 :]}
        assert runs or event.taker in gone
        self.ways["pages"] += 1

    def check_back(self, resumed: Resumed, plan: StepPlan) -> None:
        event, before = self.away.pop((resumed.handle, resumed.choice))
        assert resumed.mode == event.mode
        (join,) = (
            each
            for each in plan.join
            if (each.handle, each.index) == (resumed.handle, resumed.choice)
        )
        assert (resumed.pages, resumed.tokens) == (len(join.pages), len(join.tokens))
        starts = [chunk.start for chunk in plan.chunks if chunk.slot == join.slot]
        assert starts == [resumed.kept] or (self.config.swap_in_ahead and not starts)
        assert resumed.kept >= before.computed or resumed.mode == "recompute"
        self.ways["back"] += 1


def digests(index: PrefixIndex, victim: Sequence, size: int) -> list[bytes]:
    """The keys of its full pages, made here."""
    keys: list[bytes] = []
    full = victim.num_computed // size
    index.extend(keys, victim.tokens, full, bytes(8) + victim.group.request.salt)
    return keys


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("mode", ["swap", "recompute", "auto"])
@pytest.mark.parametrize("num_host_pages", [0, 6, 100])
def test_every_way_to_give_way(policy: str, mode: str, num_host_pages: int) -> None:
    world = Witness(
        config(
            num_pages=14,
            max_num_seqs=3,
            num_host_pages=num_host_pages,
            preemption_policy=policy,
            preemption_mode=mode,
            page_bytes=6_000_000,
            watermark=0.0,
        )
    )
    for which in range(20):
        priority, choices = (0, 1, 1, 2, 2)[which % 5], 2 if which % 3 == 1 else 1
        world.submit(
            prompt(which, 5 + which % 7), priority, n=choices, max_tokens=22, ignore_eos=True
        )
        for _ in range(6):
            world.step()
    world.run()
    assert not world.away
    ways = world.ways
    assert min(ways["slots"], ways["pages"], ways["itself"], ways["back"]) > 0
    if mode == "recompute":
        reasons = {"configured"}
    elif num_host_pages == 0:
        reasons = {"no_swap_space"}
    else:
        reasons = {"configured"} if mode == "swap" else {"estimate"}
        reasons |= {"swap_space_full"} if num_host_pages == 6 else set()
    assert reasons <= ways.keys()


def test_random_histories_tell_the_truth() -> None:
    ways: Counter[str] = Counter()

    @settings(REPEATABLE, max_examples=300)
    @given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
    def check(limits: bytes, mode: bytes, happenings: list[bytes]) -> None:
        world = Witness(swap_world_of(limits, mode).config)
        for value in happenings:
            act(world, value)
        finish(world)
        ways.update(world.ways)

    check()
    assert min(ways[way] for way in ("slots", "pages", "itself", "back", "swap_space_full")) >= 5
