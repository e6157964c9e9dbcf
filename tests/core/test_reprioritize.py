"""Priorities that change while a request waits, runs or was preempted."""

from __future__ import annotations

import pytest

from pagedd.core.events import Reprioritized
from tests.core.world import World, config, prompt


def submit(world: World, which: int, priority: int = 0, length: int = 4, **params: object) -> int:
    return world.submit(
        prompt(which, length),
        priority,
        **({"max_tokens": 12, "ignore_eos": True} | params),
    )


def running(world: World) -> set[int]:
    return {sequence.handle for sequence in world.scheduler._state.running}


def test_the_event_names_both_priorities() -> None:
    world = World(config())
    handle = submit(world, 0, priority=3)
    world.scheduler.reprioritize(handle, -2, world.now)
    world.scheduler.reprioritize(99, -2, world.now)
    events = world.scheduler.take_events()
    assert events.reprioritized == [Reprioritized(handle, 3, -2, aged=False)]
    (row,) = world.scheduler.snapshot().sequences
    assert row.priority == -2


def test_a_waiting_request_made_urgent_is_next() -> None:
    world = World(config(max_num_seqs=1))
    first, second, third = (submit(world, which, max_tokens=2) for which in range(3))
    world.reprioritize(third, -1)
    while not world.stories[third].over:
        world.step()
    assert world.stories[first].started is None
    assert world.stories[second].started is None
    world.run()


def test_a_waiting_request_made_urgent_takes_the_slot_as_if_it_had_come_so() -> None:
    world = World(config(max_num_seqs=1))
    first, second = submit(world, 0), submit(world, 1)
    world.step()
    world.reprioritize(second, -1)
    world.step()
    assert running(world) == {second}
    assert world.stories[first].preemptions == 1
    world.run()


def test_a_waiting_request_made_urgent_takes_pages() -> None:
    world = World(config(num_pages=8, prefix_cache=False))
    first = submit(world, 0, length=20)
    world.step()
    second = submit(world, 1, length=20)
    world.step()
    assert running(world) == {first}
    world.reprioritize(second, -1)
    world.step()
    assert running(world) == {second}
    world.run()


def test_a_running_request_made_less_urgent_gives_way_to_what_waits() -> None:
    world = World(config(max_num_seqs=2))
    first, second, third = (submit(world, which) for which in range(3))
    world.step()
    world.reprioritize(first, 1)
    world.step()
    assert running(world) == {second, third}
    world.run()


def test_equals_again_displace_nobody() -> None:
    world = World(config(max_num_seqs=2))
    first, second, _ = (submit(world, which) for which in range(3))
    world.step()
    world.reprioritize(first, 1)
    world.reprioritize(first, 0)
    world.step()
    assert running(world) == {first, second}
    world.run()
    assert world.scheduler.stats().preemptions_recompute == 0


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_a_preempted_request_made_urgent_comes_back_at_once(mode: str) -> None:
    world = World(config(max_num_seqs=1, num_host_pages=16, preemption_mode=mode))
    low = submit(world, 0, priority=1)
    world.step()
    urgent = submit(world, 1)
    world.step()
    assert world.stories[low].away == {0}
    world.reprioritize(low, -1)
    world.step()
    assert running(world) == {low}
    world.reprioritize(low, 2)
    world.step()
    assert running(world) == {urgent}
    world.run()
    assert [event.mode for event in world.preempted] == [mode] * 3


@pytest.mark.parametrize("priority", [-1, 1])
def test_it_can_change_while_a_step_runs(priority: int) -> None:
    world = World(config(max_num_seqs=2, num_pages=30))
    first = submit(world, 0, n=2)
    second = submit(world, 1, n=2)
    world.step()
    world.step((world.reprioritize, first, priority))
    world.step()
    assert running(world) == {first if priority < 0 else second}
    world.run()


def test_choices_made_after_it_have_the_new_priority() -> None:
    world = World(config(max_num_batched_tokens=4))
    handle = submit(world, 0, length=9, n=2)
    world.step()
    world.reprioritize(handle, 5)
    world.step()
    world.step()
    rows = world.scheduler.snapshot().sequences
    assert [row.priority for row in rows] == [5, 5]
    world.run()


def test_to_and_fro_costs_at_most_one_preemption_a_command() -> None:
    world = World(config(max_num_seqs=1, num_pages=30))
    first, second = submit(world, 0), submit(world, 1)
    for turn in range(12):
        world.reprioritize(first, -(turn % 2))
        world.reprioritize(second, -((turn + 1) % 2))
        world.step()
        world.step()
    world.run()
    assert world.scheduler.stats().preemptions_recompute <= 12
