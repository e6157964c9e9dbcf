"""The checks of the host pool: a fault in its bookkeeping does not go unnoticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pagedd.core.state import SchedulerState
from tests.core.world import World, config, prompt


def swapped() -> World:
    """A sequence in host memory."""
    world = World(config(num_pages=12, num_host_pages=20, preemption_mode="swap"))
    for which in range(3):
        world.submit(prompt(which, 5 + which), max_tokens=24, ignore_eos=True)
    while not world.scheduler.stats().swapped:
        world.step()
    world.scheduler.audit()
    return world


def lose_a_host_page(state: SchedulerState) -> None:
    state.memory.host.allocate(None)


def free_a_host_page_in_use(state: SchedulerState) -> None:
    state.memory.host.release(state.waiting.first.host[0])


def lose_a_host_key(state: SchedulerState) -> None:
    host = state.memory.host
    host.keys[host.find(host.keys[state.waiting.first.host[0]] or b"") or 0] = None


def forget_what_was_saved(state: SchedulerState) -> None:
    state.memory.discard(state.waiting.first)


def save_less(state: SchedulerState) -> None:
    state.waiting.first.num_saved -= state.config.page_size


def count_a_swapped_one_too_much(state: SchedulerState) -> None:
    state.totals.swapped += 1


@pytest.mark.parametrize(
    "fault",
    [
        lose_a_host_page,
        free_a_host_page_in_use,
        lose_a_host_key,
        forget_what_was_saved,
        save_less,
        count_a_swapped_one_too_much,
    ],
)
def test_faults_of_the_host_pool_are_found(fault: Callable[[SchedulerState], None]) -> None:
    world = swapped()
    fault(world.scheduler._state)
    with pytest.raises(AssertionError):
        world.scheduler.audit()


def found_in_host_memory() -> World:
    """A sequence that was admitted with pages of both memories, before its first chunk."""
    world = World(config(num_pages=12, num_host_pages=20, max_num_batched_tokens=64))
    for tokens in (range(70, 75), range(1, 18), range(20, 58)):
        world.submit(tokens, max_tokens=1)
        world.run()
    world.submit(range(1, 18), max_tokens=1)
    state = world.scheduler._state
    sequence = state.waiting.first
    state.admit(sequence, state.memory.hits(sequence))
    world.scheduler.audit()
    assert (len(sequence.table), len(sequence.host)) == (2, 2)
    return world


def evict_what_is_referred_to(state: SchedulerState) -> None:
    host = state.memory.host
    page = state.running.first.host[0]
    host.release(page)
    host.forget(page)


def cache_it_without_a_key(state: SchedulerState) -> None:
    host = state.memory.host
    page = next(page for page, refs in enumerate(host.refs) if not refs and host.keys[page])
    host.keys[page] = None


def free_it_with_a_key(state: SchedulerState) -> None:
    host = state.memory.host
    free, _ = host.resting()
    host.keys[free[0]] = b"key"


def lose_a_cached_host_page(state: SchedulerState) -> None:
    _, cached = state.memory.host.resting()
    del state.memory.host._cached[cached[0]]


def evict_between_two_plans(state: SchedulerState) -> None:
    state.memory.tier.evict(0, b"key")


def leave_a_hole(state: SchedulerState) -> None:
    state.running.first.host_start += 1


def count_more_than_was_found(state: SchedulerState) -> None:
    state.running.first.num_saved += state.config.page_size


def join_before_the_copies(state: SchedulerState) -> None:
    state.join(state.running.first)


@pytest.mark.parametrize(
    "fault",
    [
        evict_what_is_referred_to,
        cache_it_without_a_key,
        free_it_with_a_key,
        lose_a_cached_host_page,
        evict_between_two_plans,
        leave_a_hole,
        count_more_than_was_found,
        join_before_the_copies,
    ],
)
def test_faults_of_the_second_tier_are_found(fault: Callable[[SchedulerState], None]) -> None:
    world = found_in_host_memory()
    fault(world.scheduler._state)
    with pytest.raises(AssertionError):
        world.scheduler.audit()
