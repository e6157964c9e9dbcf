"""When it is told that the first of the queue waits, and for what."""

from __future__ import annotations

from collections import Counter

from hypothesis import given

from pagedd.core.events import Waiting
from tests.core.histories import HAPPENINGS, LIMITS, MODE, act, finish, swap_world_of
from tests.core.test_explain import head
from tests.core.test_explain_histories import HISTORIES
from tests.core.world import World, config, prompt


def test_a_long_wait_is_told_once() -> None:
    world = World(config(num_pages=12, max_num_seqs=2, max_model_len=48))
    for which in range(2):
        world.submit(prompt(which, 4), max_tokens=12 + 8 * which, ignore_eos=True)
    world.step()
    first = world.submit(prompt(2, 9), max_tokens=2, ignore_eos=True)
    second = world.submit(prompt(3, 9), max_tokens=2, ignore_eos=True)
    world.run()
    assert [(each.handle, each.limit) for each in world.waiting] == [
        (first, "slots"),
        (second, "slots"),
    ]
    assert {holder.handle for holder in world.waiting[0].holders} == {1, 2}


def test_waiting_is_news_only_when_it_changes() -> None:
    seen: Counter[str] = Counter()

    @HISTORIES
    @given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
    def check(limits: bytes, mode: bytes, happenings: list[bytes]) -> None:
        world = swap_world_of(limits, mode)
        for value in happenings:
            act(world, value)
            old: Waiting | None = None
            for _ in range(3):
                new, events = stays_behind(world)
                for event in events:
                    seen[event.limit] += 1
                    assert event[:-2] == new[:-2]
                    # With copies ahead, what has to wait for none may fork after that.
                    assert event == new or world.config.swap_in_ahead
                    assert old is None or event[:3] != old[:3], "that is known"
                old = new
        finish(world)

    check()
    assert min(seen[limit] for limit in ("slots", "pages", "tokens")) >= 5


def stays_behind(world: World) -> tuple[Waiting | None, list[Waiting]]:
    """Step; what the first of the queue waits for in it, unless somebody gave way, and events."""
    heard, put_backs = len(world.waiting), world.scheduler._state.put_backs
    seen: list[Waiting | None] = []
    world.step((lambda: seen.append(head(world)),))
    events = world.waiting[heard:]
    if world.scheduler._state.put_backs > put_backs:
        assert not events
        return None, events
    (mine,) = seen
    if mine is not None and mine.limit == "turn":
        return (events[0] if events else None), events  # it takes what it lacks in the next step
    return mine, events
