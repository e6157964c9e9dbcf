"""The checks themselves: a fault in the bookkeeping, or in a plan, does not go unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pagedd.core.audit import check_plan
from pagedd.core.plan import Chunk, Copy, StepPlan
from pagedd.core.state import SchedulerState
from tests.core.world import World, config


def busy() -> World:
    """Two choices that share a page, one waiting request, and cached pages."""
    world = World(config(max_num_seqs=3))
    world.submit(range(40, 45), max_tokens=1)
    world.run()
    world.submit(range(1, 7), n=2, ignore_eos=True)
    world.submit(range(20, 30), ignore_eos=True)
    world.submit(range(30, 33), ignore_eos=True)
    world.step()
    world.step()
    world.scheduler.audit()
    return world


def lose_a_page(state: SchedulerState) -> None:
    state.memory.pool.allocate()


def free_a_page_in_use(state: SchedulerState) -> None:
    state.memory.pool.release(state.running.first.table.pages[-1])


def name_a_page_twice(state: SchedulerState) -> None:
    pages = state.running.last.table.pages
    pages[-1] = pages[0]


def keep_a_key_of_an_evicted_page(state: SchedulerState) -> None:
    _, cached, _ = state.memory.pool.resting()
    state.memory.pool.forget(cached[0])


def lose_a_key(state: SchedulerState) -> None:
    key = next(iter(state.memory.index.entries()))
    state.memory.index.remove(key)


def lose_a_slot(state: SchedulerState) -> None:
    state.slots.append(0)


def swap_slots(state: SchedulerState) -> None:
    state.by_slot[0], state.by_slot[1] = state.by_slot[1], state.by_slot[0]


def forget_a_sequence(state: SchedulerState) -> None:
    state.waiting.remove(state.waiting.first)


def count_a_page_too_much(state: SchedulerState) -> None:
    state.running.first.group.book.hold(15, state.now)


def run_ahead(state: SchedulerState) -> None:
    state.running.first.num_computed += 40


def count_a_request_too_much(state: SchedulerState) -> None:
    state.totals.running += 1


def leave_a_page_pinned(state: SchedulerState) -> None:
    state.memory.pool.pin(0)


@pytest.mark.parametrize(
    "fault",
    [
        lose_a_page,
        free_a_page_in_use,
        name_a_page_twice,
        keep_a_key_of_an_evicted_page,
        lose_a_key,
        lose_a_slot,
        swap_slots,
        forget_a_sequence,
        count_a_page_too_much,
        run_ahead,
        count_a_request_too_much,
        leave_a_page_pinned,
    ],
)
def test_state_faults_are_found(fault: Callable[[SchedulerState], None]) -> None:
    world = busy()
    fault(world.scheduler._state)
    with pytest.raises(AssertionError):
        world.scheduler.audit()


def swap_two_out_to_one(plan: StepPlan) -> StepPlan:
    return replace(plan, swap_out=(Copy(1, 3), Copy(2, 3)))


def swap_in_for_nobody(plan: StepPlan) -> StepPlan:
    return replace(plan, swap_in=(Copy(0, 15),))


def copy_what_is_swapped_in(plan: StepPlan) -> StepPlan:
    return replace(plan, swap_in=(Copy(0, plan.copies[0].dst),))


def write_the_past(plan: StepPlan) -> StepPlan:
    first, *rest = plan.chunks
    return replace(plan, chunks=(Chunk(first.slot, 0, 2, ()), *rest))


def write_twice(plan: StepPlan) -> StepPlan:
    return replace(plan, chunks=plan.chunks + plan.chunks[:1])


def copy_a_target(plan: StepPlan) -> StepPlan:
    return replace(plan, copies=(Copy(1, 2), Copy(2, 3)))


def copy_twice_to_one_page(plan: StepPlan) -> StepPlan:
    return replace(plan, copies=(Copy(1, 3), Copy(2, 3)))


def draw_too_early(plan: StepPlan) -> StepPlan:
    first, *rest = plan.chunks
    return replace(plan, chunks=(first._replace(samples=()), *rest))


def name_an_empty_slot(plan: StepPlan) -> StepPlan:
    first, *rest = plan.chunks
    return replace(plan, chunks=(first._replace(slot=2), *rest))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (write_the_past, "another owner"),
        (write_twice, "written twice"),
        (copy_a_target, "another writes"),
        (copy_twice_to_one_page, "two copies"),
        (draw_too_early, "last token"),
        (name_an_empty_slot, "empty"),
        (swap_two_out_to_one, "swapped to one"),
        (swap_in_for_nobody, "for nobody"),
        (copy_what_is_swapped_in, "meet in a page"),
    ],
)
def test_plan_faults_are_found(fault: Callable[[StepPlan], StepPlan], message: str) -> None:
    world = World(config())
    world.submit(range(1, 7), n=2, ignore_eos=True)
    world.step()
    plan = world.scheduler.plan(world.now)
    assert plan is not None
    world.scheduler.audit()
    with pytest.raises(AssertionError, match=message):
        check_plan(world.scheduler._state, fault(plan))


def test_the_runner_of_these_tests_notices_foreign_content() -> None:
    world = World(config())
    world.submit(range(1, 7), ignore_eos=True)
    world.step()
    page = world.scheduler._state.running.first.table.pages[0]
    world.runner.cells[page][2] += 1
    with pytest.raises(AssertionError):
        world.step()
