"""Why each request is where it is, compared with the state and with what happens next."""

from __future__ import annotations

from pagedd.core.events import MAX_HOLDERS, Explained, Waiting
from tests.core.world import World, config, prompt


def explained(world: World, handle: int) -> Explained:
    world.scheduler.explain(handle, 7, world.now)
    if world._audit:
        world.scheduler.audit()
    return world.scheduler._state.events.explained.pop()


def head(world: World) -> Waiting | None:
    """What the first of the queue waits for."""
    queue = world.scheduler._state.waiting
    if not len(queue):
        return None
    (mine,) = [
        each
        for each in explained(world, queue.first.handle).waiting
        if (each.handle, each.choice) == (queue.first.handle, queue.first.index)
    ]
    return mine


def test_nobody_knows_the_request() -> None:
    world = World(config())
    handle = world.submit((1, 2), max_tokens=1)
    world.run()
    assert explained(world, handle) == Explained(7, handle, "", (), (), None)


def test_slots_are_short() -> None:
    world = World(config(max_num_seqs=3))
    first = world.submit(prompt(0, 9), n=2, ignore_eos=True)
    second = world.submit(prompt(1, 5), ignore_eos=True)
    world.step()
    third = world.submit(prompt(2, 5), n=2)
    last = world.submit(prompt(3, 5))
    world.step()
    (waiting,) = explained(world, third).waiting
    assert (waiting.limit, waiting.needed, waiting.available, waiting.short) == ("slots", 2, 0, 2)
    assert (waiting.ahead, waiting.first, waiting.headroom) == (0, third, 0)
    holders = [(each.handle, each.choice, each.pages, each.alone) for each in waiting.holders]
    assert holders == [(first, 0, 3, 1), (first, 1, 3, 1), (second, 0, 2, 2)]
    assert waiting.others == 0
    behind, of_first = explained(world, last).waiting
    assert (behind.limit, behind.ahead, behind.first) == ("slots", 1, third)
    assert of_first == waiting


def test_pages_are_short() -> None:
    world = World(config(num_pages=8, watermark=0.25))
    first = world.submit(prompt(0, 18), ignore_eos=True, max_tokens=9)
    world.step()
    second = world.submit(prompt(0, 8) + (99,) * 13)
    third = world.submit(prompt(5, 4))
    world.step()
    (waiting,) = explained(world, second).waiting
    # 6 pages for 21 tokens, 2 of them those of the first request, and 2 by the watermark
    assert (waiting.limit, waiting.needed, waiting.headroom) == ("pages", 6, 2)
    assert (waiting.available, waiting.short, waiting.ahead) == (3, 3, 0)
    assert [tuple(each) for each in waiting.holders] == [(first, 0, 0, 5, 5)]
    turn, of_first = explained(world, third).waiting
    assert (turn.limit, turn.ahead, turn.first, turn.holders) == ("turn", 1, second, ())
    assert of_first == waiting
    world.step()  # the first request's 20th token: the 21st takes a page in the next step
    (waiting,) = explained(world, second).waiting
    assert (waiting.needed, waiting.headroom, waiting.available) == (7, 3, 3)
    world.run()


def test_copies_of_a_shared_page_are_left_room_for() -> None:
    world = World(config(num_pages=8, max_num_seqs=5, watermark=0.0))
    world.submit(prompt(0, 10), n=3, max_tokens=3, ignore_eos=True)
    world.step()
    handle = world.submit(prompt(1, 16))
    (waiting,) = explained(world, handle).waiting
    # Three write to the page that they share: two of them get a copy, the last one keeps it.
    assert (waiting.limit, waiting.needed, waiting.headroom) == ("pages", 4 + 2, 2)
    assert waiting.available == 5
    world.run()


def test_choices_that_are_to_come_are_left_room_for() -> None:
    world = World(config(num_pages=8, max_num_batched_tokens=8, watermark=0.0, prefix_cache=False))
    low = world.submit(prompt(0, 16), priority=1, max_tokens=9, ignore_eos=True)
    for _ in range(3):
        world.step()
    world.submit(prompt(1, 20), n=2, ignore_eos=True)
    while not world.preempted:
        world.step()
    (waiting,) = explained(world, low).waiting
    # 5 pages; one for each choice of the other, and one that the rest of its prompt takes
    assert (waiting.limit, waiting.needed, waiting.headroom) == ("pages", 5 + 3, 3)
    world.run()


def test_tokens_are_short() -> None:
    world = World(config(max_num_batched_tokens=8))
    world.submit(prompt(0, 30), max_tokens=1)
    handle = world.submit(prompt(1, 3))
    world.step()
    (waiting,) = explained(world, handle).waiting
    assert (waiting.limit, waiting.needed, waiting.available) == ("tokens", 1, 0)
    assert (waiting.short, waiting.holders) == (1, ())
    world.run()


def test_what_goes_next_waits_for_nothing() -> None:
    world = World(config())
    handle = world.submit(prompt(0, 5))
    result = explained(world, handle)
    (waiting,) = result.waiting
    assert (waiting.limit, waiting.ahead, waiting.first, waiting.short) == ("turn", 0, handle, 0)
    assert (result.state, result.running) == ("waiting", ())
    world.run()


def test_the_urgent_does_not_wait_for_what_it_takes() -> None:
    world = World(config(max_num_seqs=2, num_pages=10))
    low = [world.submit(prompt(which, 14), priority=2, ignore_eos=True) for which in range(2)]
    world.step()
    urgent = [world.submit(prompt(5 + which, 14), priority=which) for which in range(3)]
    waits = [explained(world, handle).waiting[0].limit for handle in urgent]
    assert waits == ["turn", "turn", "slots"]  # the third is no more urgent than what runs
    world.step()
    assert [explained(world, handle).state for handle in urgent[:2]] == ["decoding", "prefilling"]
    world.step()
    assert {explained(world, handle).state for handle in urgent[:2]} == {"decoding"}
    waiting, first = explained(world, urgent[2]).waiting
    assert (waiting.limit, waiting.ahead, waiting.first) == ("slots", 2, low[0])
    assert (first.limit, first.handle, first.short) == ("slots", low[0], 1)
    world.run()


def test_the_urgent_passes_those_that_only_waited() -> None:
    world = World(config(max_num_seqs=1, priority_aging=0.05))
    world.submit(prompt(0, 4), priority=2, max_tokens=40, ignore_eos=True)
    world.step()
    aged = world.submit(prompt(1, 4), priority=3)
    for _ in range(15):
        world.step()
    urgent = world.submit(prompt(2, 4), priority=1)
    first = world.scheduler._state.waiting.first
    assert (first.handle, first.priority) == (aged, 0)
    waiting, of_first = explained(world, urgent).waiting
    assert (waiting.limit, waiting.ahead, waiting.first) == ("turn", 0, urgent)
    assert (of_first.handle, of_first.limit) == (aged, "slots")
    world.step()
    assert len(world.stories[urgent].drawn()) == 1
    world.run()


def test_choices_of_one_request_here_and_there() -> None:
    world = World(config(num_pages=8, max_num_seqs=3, watermark=0.0, prefix_cache=False))
    handle = world.submit(prompt(0, 10), n=3, max_tokens=16, ignore_eos=True)
    while not world.preempted:
        world.step()
    away = {(each.handle, each.choice) for each in world.preempted}
    result = explained(world, handle)
    assert result.state == "decoding"
    assert {(each.handle, each.choice) for each in result.waiting} == away
    assert {each.choice for each in result.running} == {0, 1, 2} - {choice for _, choice in away}
    assert all(each.pages == 5 and each.shared == 2 for each in result.running)
    assert {each.first for each in result.waiting} == {handle}
    world.run()


def test_swapped_pages_are_needed_again() -> None:
    world = World(
        config(
            num_pages=12,
            max_num_seqs=2,
            num_host_pages=20,
            preemption_mode="swap",
            prefix_cache=False,
            watermark=0.0,
        )
    )
    low = world.submit(prompt(0, 16), priority=1, max_tokens=20, ignore_eos=True)
    for _ in range(3):
        world.step()
    world.submit(prompt(1, 30), ignore_eos=True)
    world.step()
    result = explained(world, low)
    (waiting,) = result.waiting
    # 5 pages of 19 tokens, and one that the other could take
    assert (result.state, waiting.limit, waiting.needed) == ("swapped", "pages", 5 + 1)
    assert (waiting.available, waiting.headroom) == (4, 1)
    world.run()


def test_holders_beyond_the_named_are_counted() -> None:
    world = World(config(max_num_seqs=12, num_pages=40, max_num_batched_tokens=64))
    for which in range(12):
        world.submit((which + 1,) * (1 + which % 5), ignore_eos=True, max_tokens=20)
    world.step()
    (waiting,) = explained(world, world.submit((50,))).waiting
    assert len(waiting.holders) == MAX_HOLDERS
    assert waiting.others == 12 - MAX_HOLDERS
    pages = [each.pages for each in waiting.holders]
    assert pages == sorted(pages, reverse=True)
    world.run()
