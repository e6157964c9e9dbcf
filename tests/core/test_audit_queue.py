"""The checks themselves: faults of priorities, turns and what is counted for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pagedd.core.state import SchedulerState
from tests.core.world import World, config, prompt


def queued() -> World:
    """Clients that take turns, and one request that is first only for having waited."""
    world = World(config(max_num_seqs=1, fair_share=True, priority_aging=0.05))
    for client, priority in (("a", 0), ("a", 2), ("b", 2), ("b", 2)):
        tokens = prompt(len(world.stories), 5)
        world.submit(tokens, priority, client=client, max_tokens=30, ignore_eos=True)
    while world.stories[2].priority > 0:
        world.step()
        world.reprioritize(3, 1)
    world.scheduler.audit()
    waiting = world.scheduler._state.waiting
    assert waiting.first is not waiting.claimant
    return world


def count_a_request_of_a_client_twice(state: SchedulerState) -> None:
    account = state.waiting.first.group.account
    assert account is not None
    account.requests += 1


def keep_an_account_of_nobody(state: SchedulerState) -> None:
    assert state.clients is not None
    state.clients.enter("nobody")


def change_a_priority_in_place(state: SchedulerState) -> None:
    state.running.first.group.priority = 9


def ask_for_another_priority_in_place(state: SchedulerState) -> None:
    state.waiting.claimant.group.asked = 7


def miscount_what_waits(state: SchedulerState) -> None:
    state.waiting._by_order._count += 1  # type: ignore[attr-defined]


def miscount_what_is_unused(state: SchedulerState) -> None:
    state.memory.fill.unused += 1


def take_another_for_the_largest(state: SchedulerState) -> None:
    state.memory.fill._largest = state.waiting.first.group


@pytest.mark.parametrize(
    "fault",
    [
        count_a_request_of_a_client_twice,
        keep_an_account_of_nobody,
        change_a_priority_in_place,
        ask_for_another_priority_in_place,
        miscount_what_waits,
        miscount_what_is_unused,
        take_another_for_the_largest,
    ],
)
def test_faults_of_the_queue_are_found(fault: Callable[[SchedulerState], None]) -> None:
    world = queued()
    fault(world.scheduler._state)
    with pytest.raises(AssertionError):
        world.scheduler.audit()
