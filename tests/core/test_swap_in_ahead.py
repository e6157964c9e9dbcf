"""swap_in_ahead: pages are copied in while the others compute, a step before they are read."""

from __future__ import annotations

from pagedd.core.plan import StepPlan
from tests.core.tiers import SYSTEM, copies, pool, serve
from tests.core.world import World, config, prompt


def slots(plan: StepPlan) -> set[int]:
    """The slots that compute in a plan."""
    return {chunk.slot for chunk in plan.chunks}


def ahead(**changes: object) -> World:
    """The system prompt is in host memory only, and another request runs."""
    world = pool(num_pages=20, swap_in_ahead=True, **changes)
    serve(world, (*SYSTEM, 1))
    serve(world, prompt(1, 78))
    world.submit(prompt(2, 4), max_tokens=12, ignore_eos=True)
    world.step()
    return world


def test_pages_are_copied_in_a_step_before_they_are_read() -> None:
    world = ahead()
    handle = world.submit((*SYSTEM, 1), max_tokens=3, ignore_eos=True)
    plan = world.step()
    assert plan is not None
    (join,) = plan.join
    assert (join.handle, len(plan.swap_in)) == (handle, 4)
    assert slots(plan) == {0}
    assert join.slot == 1
    # Who comes now finds them on the device.
    third = world.submit((*SYSTEM, 2), max_tokens=3, ignore_eos=True)
    plan = world.step()
    assert plan is not None
    assert not plan.swap_in
    assert slots(plan) == {0, 1, 2}
    assert world.stories[third].cached_tokens == 16
    world.run()
    assert world.scheduler.stats().host_hits == 16


def test_nobody_waits_for_copies_when_nothing_else_computes() -> None:
    world = pool(num_pages=20, swap_in_ahead=True)
    serve(world, (*SYSTEM, 1))
    serve(world, prompt(1, 78))
    world.submit((*SYSTEM, 1))
    world.submit((*SYSTEM, 1))
    plan = world.step()
    assert plan is not None
    assert len(plan.swap_in) == 8
    assert slots(plan) == {0}
    plan = world.step()
    assert plan is not None
    assert slots(plan) == {0, 1}
    world.run()


def test_a_request_with_choices_forks_a_step_after_its_copies() -> None:
    world = ahead()
    handle = world.submit((*SYSTEM, 1), n=2, max_tokens=3, ignore_eos=True)
    plan = world.step()
    assert plan is not None
    assert [join.index for join in plan.join] == [0]
    plan = world.step()
    assert plan is not None
    assert [(join.handle, join.index) for join in plan.join] == [(handle, 1)]
    world.run()


def test_a_swapped_sequence_comes_back_ahead_of_its_step() -> None:
    world = World(
        config(num_pages=12, num_host_pages=40, preemption_mode="swap", swap_in_ahead=True)
    )
    for which in range(3):
        world.submit(prompt(which, 4 + which), max_tokens=24, ignore_eos=True)
    world.run()
    back = [plan for plan in world.plans if plan.swap_in]
    assert back
    for plan in back:
        (join,) = plan.join
        assert join.slot not in slots(plan) or len(slots(plan)) == 1
        assert slots(plan)
    assert world.scheduler.stats().recomputed_tokens == 0


def test_who_gives_way_between_its_copies_and_its_chunk_copies_nothing_out_again() -> None:
    world = ahead(preemption_mode="swap", max_num_seqs=2)
    handle = world.submit((*SYSTEM, 1), max_tokens=3, ignore_eos=True, priority=1)
    world.step()
    world.submit(prompt(5, 4), max_tokens=3, ignore_eos=True)
    since = len(world.plans)
    world.step()
    (event,) = world.preempted
    assert (event.handle, event.mode, event.host_needed) == (handle, "swap", 0)
    assert copies(world, since)[0] == 0
    world.run()
    assert world.stories[handle].drawn()
