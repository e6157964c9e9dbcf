"""Waiting makes more urgent: nobody waits for ever, and nobody who runs pays for it."""

from __future__ import annotations

import pytest

from pagedd.core.ageing import MOST_URGENT, Ageing
from pagedd.core.events import Reprioritized
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler
from tests.core.world import World, config, prompt

STEP = 0.011  # seconds that a step of a World takes


def submit(world: World, which: int, priority: int = 0, **params: object) -> int:
    return world.submit(
        prompt(which, 4), priority, **({"max_tokens": 3, "ignore_eos": True} | params)
    )


def started_at(world: World, handle: int) -> float:
    started = world.stories[handle].started
    assert started is not None
    return started


class TestEndlessFlow:
    """One request of priority 3 behind an endless flow of priority 0, of more than can run."""

    AGING = 0.3
    SERVICE = 4 * STEP  # seconds that one of the flow runs, and a step until it is noticed

    def flow(self, slots: int, aging: float | None, steps: int, backlog: int) -> World:
        world = World(config(num_pages=60, max_num_seqs=slots, priority_aging=aging))
        for _ in range(backlog):
            submit(world, 0)
        submit(world, 0, priority=3, max_tokens=10)
        for _ in range(steps):
            while world.scheduler.stats().waiting <= backlog:
                submit(world, 0)
            world.step()
        return world

    @pytest.mark.parametrize("slots", [1, 2])
    def test_without_ageing_it_starves(self, slots: int) -> None:
        world = self.flow(slots, None, 300, backlog=4)
        assert world.stories[5].started is None

    @pytest.mark.parametrize("slots", [1, 2])
    @pytest.mark.parametrize("backlog", [2, 4, 20])
    def test_with_ageing_it_waits_no_longer_than_stated(self, slots: int, backlog: int) -> None:
        """Three levels, and then those that came before it had gained them."""
        world = self.flow(slots, self.AGING, 300, backlog)
        low = world.stories[backlog + 1]
        assert low.started is not None
        assert low.finished is not None
        before = -(-(backlog + slots) // slots)  # rounds of those that wait and run at that time
        assert low.started - low.submitted >= 3 * self.AGING
        assert low.started - low.submitted <= 3 * self.AGING + before * self.SERVICE + STEP

    def test_nobody_who_comes_later_than_it_has_gained_goes_before_it(self) -> None:
        world = self.flow(1, self.AGING, 400, backlog=40)
        low = world.stories[41]
        assert low.started is not None
        late = [
            story.started
            for story in world.stories.values()
            if story.submitted > low.submitted + 3 * self.AGING and story.started is not None
        ]
        assert min(late) > low.started

    @pytest.mark.parametrize("slots", [1, 2])
    def test_it_keeps_its_level_when_it_runs(self, slots: int) -> None:
        world = self.flow(slots, self.AGING, 300, backlog=4)
        assert world.stories[5].preemptions == 0
        assert not world.preempted


def test_more_than_can_run_displace_nobody_however_long_they_wait() -> None:
    world = World(config(num_pages=60, max_num_seqs=2, priority_aging=0.02))
    for which in range(12):
        submit(world, which, max_tokens=12)
    world.run()
    assert not world.preempted
    starts = [started_at(world, handle) for handle in world.stories]
    assert starts == sorted(starts)


def test_what_is_asked_to_be_urgent_displaces_though_others_have_waited_longer() -> None:
    world = World(config(num_pages=60, max_num_seqs=2, priority_aging=0.05))
    running = [submit(world, which, priority=4, max_tokens=40) for which in range(2)]
    world.step()
    waiting = submit(world, 2, priority=4)
    for _ in range(25):
        world.step()
    assert world.stories[waiting].priority < 0
    urgent = submit(world, 3)
    world.step()
    assert len(world.stories[urgent].drawn()) == 1
    assert sum(world.stories[handle].preemptions for handle in running) == 1
    assert world.stories[waiting].started is None
    world.run()


def test_waiting_counts_together_over_a_life() -> None:
    world = World(config(max_num_seqs=1, num_pages=60, priority_aging=0.1))
    low = submit(world, 0, priority=9, max_tokens=40)
    for which in range(1, 12):
        world.step()
        submit(world, which, max_tokens=5)
        for _ in range(5):  # it is displaced for less than a level, and comes back
            world.step()
    world.step()
    assert world.stories[low].preemptions == 11
    assert world.stories[low].priority == 9 - int(11 * 5 * STEP / 0.1)
    world.run()


def test_many_levels_at_once_are_one_event() -> None:
    scheduler = Scheduler(config(priority_aging=2.0, max_num_seqs=1), key=b"k")
    runner = World(config(max_num_seqs=1)).runner
    for handle in (1, 2):
        scheduler.submit(Request(handle, (handle, 5), SamplingParams(max_tokens=9)), 10.0)
    scheduler.take_events()
    changes = []
    for now in (10.0, 11.9, 18.5, 19.9, 20.0):
        plan = scheduler.plan(now)
        assert plan is not None
        scheduler.commit(plan, runner.execute(plan), now)
        changes.append(scheduler.take_events().reprioritized)
    assert changes == [[], [], [Reprioritized(2, 0, -4, aged=True)], [], [(2, -4, -5, True)]]


def test_the_least_number_is_the_last_level() -> None:
    world = World(config(max_num_seqs=1, priority_aging=0.001))
    first = submit(world, 0, max_tokens=12)
    world.step()
    second = submit(world, 1, priority=MOST_URGENT + 1)
    for _ in range(4):
        world.step()
    assert world.stories[second].priority == MOST_URGENT
    assert world.stories[first].preemptions == 1
    world.run()


@pytest.mark.parametrize("seconds", [5e-324, 1e-312])
def test_the_shortest_times_take_all_levels_at_once(seconds: float) -> None:
    world = World(config(max_num_seqs=1, priority_aging=seconds))
    submit(world, 0, max_tokens=12)
    last = submit(world, 1, priority=2**31 - 1)
    for _ in range(3):
        world.step()
    assert world.stories[last].priority == MOST_URGENT
    world.run()


def test_a_new_priority_starts_from_what_is_asked() -> None:
    world = World(config(max_num_seqs=1, priority_aging=0.05))
    submit(world, 0, max_tokens=40)
    world.step()
    second = submit(world, 1)
    for _ in range(12):
        world.step()
    assert world.stories[second].priority == -2
    world.reprioritize(second, 0)
    assert world.stories[second].priority == 0
    for _ in range(4):
        world.step()
    assert world.stories[second].priority == 0, "it begins to wait anew"
    world.step()
    world.step()
    assert world.stories[second].priority == -1
    world.run()


def test_levels_come_by_the_clock() -> None:
    ageing = Ageing(10.0)
    ageing.wait(1, 0.0)
    ageing.wait(2, 4.0)
    assert ageing.promote(9.9) == []
    assert ageing.promote(10.0) == [(1, 1)]
    ageing.serve(2, 11.0)  # has waited 7
    assert ageing.promote(35.0) == [(1, 2)]
    ageing.wait(2, 40.0)
    assert ageing.promote(42.9) == [(1, 1)]
    assert ageing.promote(43.0) == [(2, 1)]
    ageing.forget(1)
    ageing.restart(2, 50.0)
    assert ageing.promote(59.9) == []
    assert ageing.promote(60.0) == [(2, 1)]


def test_due_times_out_of_date_do_not_pile_up() -> None:
    ageing = Ageing(1000.0)
    for handle in range(50):
        ageing.wait(handle, 0.0)
    for turn in range(1000):
        ageing.serve(7, float(turn))
        ageing.wait(7, float(turn))
    assert len(ageing._heap) <= 2 * 50 + 65
    assert len(ageing.promote(2000.0)) == 50


def test_the_same_due_time_twice_is_one_promotion() -> None:
    ageing = Ageing(5.0)
    ageing.wait(1, 0.0)
    ageing.serve(1, 2.0)
    ageing.wait(1, 2.0)
    assert ageing.promote(5.0) == [(1, 1)]
