"""When an urgent request may take from others, and when it must wait like everybody."""

from __future__ import annotations

from pagedd.core.request import Request, SamplingParams
from pagedd.core.running import share
from pagedd.core.sequence import Group, Sequence
from tests.core.world import World, config


def submit(world: World, first: int, length: int, priority: int) -> int:
    """A request that goes on for 12 tokens; prompts with the same ``first`` begin alike."""
    prompt = range(first, first + length)
    return world.submit(prompt, priority=priority, max_tokens=12, ignore_eos=True)


def check_waits_and_takes_nothing(world: World, urgent: int, low: int) -> None:
    """``urgent`` did not begin in this step, and ``low`` keeps its place; later both end."""
    world.step()
    assert world.stories[urgent].started is None
    assert world.stories[low].preemptions == 0
    world.run()


def test_it_displaces_nobody_in_a_step_that_has_no_token_for_it() -> None:
    world = World(config(num_pages=40, max_num_seqs=2, max_num_batched_tokens=4))
    low = submit(world, 1, 3, priority=1)
    world.step()
    submit(world, 20, 30, priority=0)
    world.step()
    urgent = submit(world, 60, 3, priority=0)
    check_waits_and_takes_nothing(world, urgent, low)
    assert world.stories[low].preemptions == 1


def test_pages_shared_with_others_than_the_less_urgent_cannot_be_had() -> None:
    world = World(config(num_pages=8))
    submit(world, 1, 9, priority=0)
    world.step()
    low = submit(world, 1, 9, priority=1)
    world.step()
    assert world.scheduler.stats().pages[1:] == (4, 0, 2, 2)
    # It needs 6: 4 are free, and of the 3 that the less urgent one names, one is its own.
    check_waits_and_takes_nothing(world, submit(world, 60, 21, priority=0), low)


def test_pages_that_it_shares_itself_are_not_gained_once_more() -> None:
    world = World(config(num_pages=8))
    submit(world, 40, 9, priority=0)
    low = submit(world, 1, 9, priority=1)
    world.step()
    assert world.scheduler.stats().pages[1:] == (2, 0, 6, 0)
    # It finds 2 of its 6 pages. Of the 4 others, 2 are free and the less urgent one has one.
    check_waits_and_takes_nothing(world, submit(world, 1, 21, priority=0), low)


def test_pages_that_those_before_it_are_about_to_take_are_not_there_for_it() -> None:
    world = World(config(num_pages=10, max_num_batched_tokens=17))
    low = submit(world, 1, 9, priority=1)
    world.step()
    submit(world, 40, 20, priority=0)
    world.step()
    assert world.scheduler.stats().pages[1:] == (3, 0, 7, 0)
    # It needs 6: 3 are free, the less urgent one has 3, but the other prompt still takes one.
    check_waits_and_takes_nothing(world, submit(world, 60, 21, priority=0), low)


def sequence_of(arrival: int, missing: int, priority: int = 0) -> Sequence:
    request = Request(arrival, tuple(range(9)), SamplingParams(max_tokens=9), priority)
    sequence = Group(request, arrival, 0.0, frozenset(), 99).sequences[0]
    sequence.num_computed = 9 - missing
    return sequence


def test_a_small_budget_keeps_a_token_for_the_prefill_that_comes_first() -> None:
    first, second, third = sequence_of(0, 5), sequence_of(1, 1), sequence_of(2, 1)
    assert share([first, second, third], 9) == ([second, third], [(first, 5)])
    assert share([first, second, third], 3) == ([second, third], [(first, 1)])
    assert share([first, second, third], 2) == ([second], [(first, 1)])
    assert share([first, second, third], 1) == ([], [(first, 1)])
    last = sequence_of(3, 5)
    assert share([second, third, last], 2) == ([second, third], [])
    urgent = sequence_of(4, 5, priority=-1)
    assert share([urgent, second, third], 2) == ([second], [(urgent, 1)])
