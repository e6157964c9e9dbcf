"""The step that gives an urgent request its first token computes nothing less urgent."""

from __future__ import annotations

import pytest

from tests.core.world import World, config, prompt


def drawn(world: World, handles: list[int]) -> list[int]:
    """How many tokens each has."""
    return [len(world.stories[handle].drawn()) for handle in handles]


def streams(world: World, count: int, priority: int = 1) -> list[int]:
    """Requests that decode."""
    handles = [
        world.submit(prompt(which, 3), priority=priority, max_tokens=40, ignore_eos=True)
        for which in range(count)
    ]
    while not all(drawn(world, handles)):
        world.step()
    return handles


def roomy(**changes: object) -> World:
    return World(config(**({"num_pages": 80, "max_num_batched_tokens": 16} | changes)))


@pytest.mark.parametrize("slots", [3, 4])
@pytest.mark.parametrize("length", [1, 9, 16])
def test_it_comes_alone(slots: int, length: int) -> None:
    world = roomy(max_num_seqs=slots)
    low = streams(world, 3)
    before = drawn(world, low)
    urgent = world.submit(prompt(9, length), max_tokens=4, ignore_eos=True)
    plan = world.step()
    assert plan is not None
    assert plan.num_tokens == length
    assert drawn(world, [urgent]) == [1]
    assert drawn(world, low) == before
    plan = world.step()
    assert plan is not None
    assert plan.num_tokens == slots, "all that have a slot decode again"
    world.run()


def test_a_prefill_that_is_less_urgent_waits_too() -> None:
    world = roomy()
    low = world.submit(prompt(1, 40), priority=1)
    world.step()
    world.submit(prompt(2, 20), priority=1)
    world.submit(prompt(9, 6))
    plan = world.step()
    assert plan is not None
    assert plan.num_tokens == 6
    assert world.stories[low].started is not None
    plan = world.step()
    assert plan is not None
    assert plan.num_tokens == 16
    world.run()


def test_of_a_long_prompt_only_the_last_step_is_alone() -> None:
    world = roomy()
    low = streams(world, 2)
    world.submit(prompt(9, 40), max_tokens=3, ignore_eos=True)
    sizes = []
    before = drawn(world, low)
    for _ in range(3):
        plan = world.step()
        assert plan is not None
        sizes.append(plan.num_tokens)
    assert sizes == [16, 16, 40 - 2 * 14]
    assert drawn(world, low) == [count + 2 for count in before]
    world.run()


def test_nobody_waits_for_his_equals() -> None:
    world = roomy()
    same = streams(world, 2, priority=0)
    before = drawn(world, same)
    world.submit(prompt(9, 9), max_tokens=3)
    plan = world.step()
    assert plan is not None
    assert plan.num_tokens == 11
    assert drawn(world, same) == [count + 1 for count in before]
    world.run()


def test_a_flow_of_urgent_ones_costs_at_most_every_second_step() -> None:
    world = roomy(max_num_seqs=4)
    [low] = streams(world, 1)
    before, steps = drawn(world, [low])[0], 20
    for which in range(steps):
        world.submit(prompt(which, 5), max_tokens=1)
        world.step()
    assert drawn(world, [low])[0] >= before + steps // 2
    world.run()


def test_waiting_makes_nobody_push_others_aside() -> None:
    """Ageing gives a place in the queue, and not what others have."""
    world = roomy(priority_aging=1.0, max_num_seqs=2)
    running = streams(world, 2)
    aged = world.submit(prompt(9, 5), priority=1)
    world.wait(3.0)
    while world.stories[aged].started is None:
        before = drawn(world, running)
        world.step()
    assert world.stories[aged].priority < 1
    still = [handle for handle in running if world.stories[handle].finished is None]
    after = dict(zip(running, drawn(world, running), strict=True))
    assert all(after[handle] == before[running.index(handle)] + 1 for handle in still)
    world.run()
