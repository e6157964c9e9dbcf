"""Clients take turns by the tokens they have used."""

from __future__ import annotations

from random import Random

import pytest

from pagedd.core.clients import MAX_PAST, Account, Clients
from pagedd.core.request import Request, SamplingParams
from pagedd.core.sequence import Group, Sequence, SequenceState
from pagedd.core.turns import TurnQueue
from tests.core.world import World, config, prompt


def submit(world: World, client: str, length: int = 4, priority: int = 0, **params: object) -> int:
    return world.submit(
        prompt(len(world.stories), length),
        priority,
        client=client,
        **({"max_tokens": 6, "ignore_eos": True} | params),
    )


def fair(audit: bool = True, **changes: object) -> World:
    values = {"num_pages": 60, "max_num_seqs": 2, "fair_share": True}
    return World(config(**(values | changes)), audit)


def started(world: World, handle: int) -> bool:
    return world.stories[handle].started is not None


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_one_request_does_not_wait_for_five_hundred_of_another_client(slots: int) -> None:
    world = fair(audit=False, max_num_seqs=slots, max_queue=600)
    many = [submit(world, "many") for _ in range(500)]
    for _ in range(20):
        world.step()
    one = submit(world, "one", n=min(slots, 2))
    asked = world.now
    while not started(world, one):
        world.step()
    starts = [world.stories[handle].started for handle in many if started(world, handle)]
    assert len(starts) > slots
    assert not [start for start in starts if asked < (start or 0.0) < world.now - 0.01]


def test_without_the_flag_they_go_by_arrival() -> None:
    world = fair(fair_share=False, max_num_seqs=1)
    handles = [submit(world, "many") for _ in range(5)]
    handles.append(submit(world, "one"))
    world.run()
    starts = [world.stories[handle].started or 0.0 for handle in handles]
    assert starts == sorted(starts)


def test_turns_are_by_tokens_not_by_requests() -> None:
    world = fair(audit=False, max_num_seqs=1, max_queue=500)
    for _ in range(40):
        submit(world, "long", length=20, max_tokens=20)
    for _ in range(200):
        submit(world, "short", length=4, max_tokens=4)
    for _ in range(300):
        world.step()
        assert abs(world.umpire.used["long"] - world.umpire.used["short"]) <= 40
    assert world.umpire.used["short"] > 100


def test_to_idle_earns_nothing() -> None:
    world = fair(audit=False, max_num_seqs=1, max_queue=500)
    for _ in range(40):
        submit(world, "busy")
    for _ in range(100):
        world.step()
    late = [submit(world, "late") for _ in range(40)]
    before = world.umpire.used["busy"]
    for _ in range(100):
        world.step()
    gained = world.umpire.used["busy"] - before
    assert gained >= 40
    assert sum(started(world, handle) for handle in late) <= 10


def test_to_go_and_come_again_earns_nothing() -> None:
    """One at a time, and long ones, against many that wait: each gets half of the tokens."""
    world = fair(audit=False, max_num_seqs=1, max_queue=500)
    for _ in range(200):
        submit(world, "many", length=2, max_tokens=2)
    first = submit(world, "single", length=20, max_tokens=20)
    spent = {"many": 0, "single": 0}
    while spent["single"] < 400:
        world.step()
        if world.stories[first].over:
            first = submit(world, "single", length=20, max_tokens=20)
        for client in spent:
            spent[client] = sum(
                len(story.drawn()) + len(story.request.prompt) * (story.started is not None)
                for story in world.stories.values()
                if story.request.client == client
            )
    assert spent["many"] >= 320


def test_priority_comes_before_the_turn() -> None:
    world = fair(max_num_seqs=1)
    submit(world, "a", max_tokens=20)
    world.step()
    turn = submit(world, "b", priority=1)
    urgent = submit(world, "a", priority=0)
    assert world.scheduler._state.waiting.first.handle == urgent
    world.reprioritize(turn, 0)
    assert world.scheduler._state.waiting.first.handle == turn
    world.run()


def test_what_had_begun_comes_before_the_turn() -> None:
    world = fair(max_num_seqs=1)
    begun = submit(world, "a", priority=1, max_tokens=20)
    for _ in range(4):
        world.step()
    turn = submit(world, "b", priority=1)
    submit(world, "b", priority=0)
    world.step()
    assert world.stories[begun].away
    assert [each.handle for each in world.scheduler._state.waiting] == [begun, turn]
    world.run()


def test_a_large_request_is_not_passed_for_ever() -> None:
    """It needs nearly all pages; the other client's small ones do not keep it out."""
    world = fair(num_pages=12, max_num_seqs=4, max_queue=500, prefix_cache=False)
    for _ in range(3):
        submit(world, "small", max_tokens=4)
    world.step()
    large = submit(world, "large", length=40, max_tokens=2)
    for _ in range(150):
        submit(world, "small", max_tokens=4)
        world.step()
        if started(world, large):
            break
    assert world.steps < 40
    world.run()


def test_ageing_bounds_what_a_turn_can_cost() -> None:
    """New clients come without end, and each is before the one that has had its share."""
    for aging, starts in ((None, False), (0.2, True)):
        world = fair(max_num_seqs=1, priority_aging=aging)
        submit(world, "old", max_tokens=40)
        for _ in range(10):
            world.step()
        again = submit(world, "old")
        for which in range(200):
            if world.scheduler.stats().waiting < 4:
                submit(world, f"new {which}")
            world.step()
        assert started(world, again) is starts


def test_a_prompt_found_in_the_cache_is_not_charged() -> None:
    world = fair(max_num_seqs=1)
    for client in ("a", "b"):
        world.submit(prompt(0, 17), client=client, max_tokens=1, ignore_eos=True)
    other = submit(world, "c", max_tokens=30)
    for _ in range(3):
        world.step()
    assert started(world, other)
    assert world.umpire.used["a"] == 18
    assert world.umpire.used["b"] == 2


def test_a_preemption_is_not_charged() -> None:
    world = fair(num_pages=12, max_num_seqs=4)
    for client in ("a", "b", "c"):
        submit(world, client, max_tokens=24)
    while not world.resumed:
        world.step()
    world.step()
    world.run()
    assert world.scheduler.stats().recomputed_tokens > 0
    assert world.umpire.used == {"a": 28, "b": 28, "c": 28}


class Waiter:
    """Makes sequences that wait."""

    def __init__(self) -> None:
        self.accounts = [Account(str(which), 0) for which in range(6)]
        self.arrivals = 0

    def make(self, random: Random) -> Sequence:
        account = random.choice(self.accounts)
        request = Request(self.arrivals, (1, 2), SamplingParams(max_tokens=2), random.randrange(3))
        group = Group(request, self.arrivals, 0.0, frozenset(), 9, account)
        self.arrivals += 1
        sequence = group.sequences[0]
        if random.randrange(5) == 0:
            sequence.state = SequenceState.PREEMPTED
        return sequence


def slow_order(waiting: list[Sequence]) -> list[Sequence]:
    """The definition: the priorities, what had begun, and rounds of one of each client."""
    order: list[Sequence] = []
    for priority in sorted({each.priority for each in waiting}):
        level = sorted((each for each in waiting if each.priority == priority), key=by_order)
        order += [each for each in level if each.has_begun]
        lines: dict[Account | None, list[Sequence]] = {}
        for each in level:
            if not each.has_begun:
                lines.setdefault(each.group.account, []).append(each)
        by_turn = sorted(lines.values(), key=lambda line: (used(line[0]), line[0].order))
        for rank in range(max(map(len, by_turn), default=0)):
            order += [line[rank] for line in by_turn if rank < len(line)]
    return order


def by_order(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.order


def used(sequence: Sequence) -> int:
    assert sequence.group.account is not None
    return sequence.group.account.used


@pytest.mark.parametrize("seed", range(8))
def test_the_queue_is_in_the_order_of_its_definition(seed: int) -> None:
    random, waiter, queue = Random(seed), Waiter(), TurnQueue()
    waiting: list[Sequence] = []
    for _ in range(600):
        what = random.randrange(4)
        if what < 2:
            waiting.append(waiter.make(random))
            queue.add(waiting[-1])
        elif what == 2 and waiting:
            gone = waiting.pop(random.randrange(len(waiting)))
            assert gone in queue
            queue.remove(gone)
            assert gone not in queue
        else:
            random.choice(waiter.accounts).used += random.randrange(5)
        order = slow_order(waiting)
        assert list(queue) == order
        assert len(queue) == len(order)
        if order:
            assert queue.first is order[0]
            some = random.choice(order)
            assert queue.place(some) == order.index(some)
    level = next(iter(queue._levels.values()))
    assert len(level._heap) <= 2 * 6 + 17


def test_clients_that_have_gone_are_forgotten() -> None:
    clients = Clients()
    busy = clients.enter("busy")
    for which in range(4 * MAX_PAST):
        account = clients.enter(f"client {which}")
        account.used += which % 7
        clients.leave(account)
        assert len(clients._past) <= MAX_PAST
        assert len(clients._heap) <= 20
    heavy = clients.enter("heavy")
    heavy.used += 100
    clients.leave(heavy)
    assert clients.enter("heavy").used == 100
    busy.used += 200
    clients.leave(clients.enter("new"))
    assert clients.enter("client 6").used == 100, "the least in service has used more since"
    for account in list(clients.accounts().values()):
        clients.leave(account)
    assert clients.enter("heavy").used == 0
