"""swap_in_pages: what comes back from host memory comes in pieces when others compute."""

from __future__ import annotations

import pytest

from pagedd.core.plan import StepPlan
from tests.core.tiers import SYSTEM, pool, serve
from tests.core.world import World, config, prompt


def swapped(ahead: bool, **changes: object) -> tuple[World, int, int]:
    """One goes on; the handle of a less urgent one, whose pages are in host memory; how many."""
    values: dict[str, object] = {
        "num_pages": 16,
        "num_host_pages": 40,
        "max_num_seqs": 2,
        "preemption_mode": "swap",
        "prefix_cache": False,
        "swap_in_ahead": ahead,
        "swap_in_pages": 2,
    }
    world = World(config(**(values | changes)))
    world.submit(prompt(1, 3), max_tokens=40, ignore_eos=True)
    long = world.submit(prompt(2, 27), max_tokens=9, ignore_eos=True, priority=1)
    world.step()
    world.submit(prompt(3, 3), max_tokens=2, ignore_eos=True)
    world.step()
    (event,) = world.preempted
    assert (event.handle, event.mode, event.pages) == (long, "swap", 7)
    return world, long, event.pages


def back(world: World, handle: int) -> list[StepPlan]:
    """The plans up to the one in which it computes again, from the first that copies for it on."""
    since = len(world.plans)
    while not world.resumed:
        world.step()
    world.step()
    plans = world.plans[since:]
    return plans[next(i for i, plan in enumerate(plans) if plan.swap_in) :]


def test_a_long_sequence_comes_back_by_and_by() -> None:
    world, handle, _ = swapped(ahead=False)
    plans = back(world, handle)
    assert [len(plan.swap_in) for plan in plans] == [2, 2, 2, 1, 0]
    assert [len(plan.join) for plan in plans] == [0, 0, 0, 1, 0]
    assert [len(plan.chunks) for plan in plans] == [1, 1, 1, 2, 2], "the other waits in no step"
    assert world.scheduler.stats().swapped == 0
    world.run()
    assert world.scheduler.stats().recomputed_tokens == 0


def test_the_last_piece_too_comes_ahead() -> None:
    world, handle, _ = swapped(ahead=True)
    plans = back(world, handle)
    assert [len(plan.swap_in) for plan in plans] == [2, 2, 2, 1, 0]
    assert [len(plan.join) for plan in plans] == [0, 0, 0, 1, 0]
    assert [len(plan.chunks) for plan in plans] == [1, 1, 1, 1, 2]
    world.run()


@pytest.mark.parametrize("ahead", [False, True])
def test_when_nobody_else_computes_all_comes_at_once(ahead: bool) -> None:
    world, _, pages = swapped(ahead)
    for other in (1, 3):
        world.cancel(other)
        world._observe()
    world.run()
    (plan,) = [plan for plan in world.plans if plan.swap_in]
    assert len(plan.swap_in) == pages
    assert len(plan.chunks) == 1


def test_the_other_ends_in_the_middle() -> None:
    world, handle, pages = swapped(ahead=False)
    while not world.plans[-1].swap_in:
        world.step()
    world.cancel(1)
    world._observe()
    world.step()
    assert len(world.plans[-1].swap_in) == pages - 2
    world.run()
    assert world.stories[handle].finished is not None


def test_who_gives_way_in_the_middle_has_lost_nothing() -> None:
    world, handle, pages = swapped(ahead=False)
    while not world.plans[-1].swap_in:
        world.step()
    world.step()
    assert world.scheduler.stats().swapped == 1, "it is on its way, and not there yet"
    world.submit(prompt(4, 3), max_tokens=2, ignore_eos=True)
    copied_out = sum(len(plan.swap_out) for plan in world.plans)
    world.run()
    assert world.stories[handle].preemptions == 1, "it had not gone on"
    assert sum(len(plan.swap_out) for plan in world.plans) == copied_out
    assert sum(len(plan.swap_in) for plan in world.plans) == 4 + pages
    assert world.scheduler.stats().recomputed_tokens == 0


def test_a_cancelled_one_in_the_middle_leaves_both_pools_whole() -> None:
    world, handle, _ = swapped(ahead=False)
    while not world.plans[-1].swap_in:
        world.step()
    world.step((world.cancel, handle))
    world.run()


def test_a_prefix_in_host_memory_comes_by_and_by_too() -> None:
    world = pool(num_pages=20, swap_in_pages=3)
    serve(world, (*SYSTEM, 1))
    serve(world, prompt(1, 78))
    world.submit(prompt(2, 4), max_tokens=12, ignore_eos=True)
    world.step()
    handle = world.submit((*SYSTEM, 1), max_tokens=3, ignore_eos=True)
    plans = [world.step(), world.step()]
    assert [len(plan.swap_in) for plan in plans if plan] == [3, 1]
    assert [len(plan.chunks) for plan in plans if plan] == [1, 2]
    world.run()
    assert world.stories[handle].cached_tokens == 16
    assert world.scheduler.stats().host_hits == 16
