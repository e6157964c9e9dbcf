"""The check of inversions itself: it finds one when there is one, and knows the reasons."""

from __future__ import annotations

import pytest

from pagedd.core import scheduler
from tests.core.inversion import limit_of
from tests.core.world import World, config, prompt


@pytest.fixture
def timid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler in which nobody displaces anybody."""
    monkeypatch.setattr(scheduler, "admit_urgent", lambda *_: None)


def submit(world: World, length: int, priority: int, **params: object) -> int:
    return world.submit(
        prompt(len(world.stories), length),
        priority,
        **({"max_tokens": 12, "ignore_eos": True} | params),
    )


@pytest.mark.usefixtures("timid")
@pytest.mark.parametrize(
    ("limits", "low", "urgent"),
    [
        ({"max_num_seqs": 1}, 4, 4),
        ({"num_pages": 8, "prefix_cache": False}, 20, 12),
        ({"max_num_batched_tokens": 2, "max_num_seqs": 2}, 30, 4),
    ],
    ids=["slot", "pages", "rows"],
)
def test_an_inversion_is_found(limits: dict[str, object], low: int, urgent: int) -> None:
    world = World(config(**limits))
    submit(world, low, priority=1)
    world.step()
    submit(world, urgent, priority=0)
    with pytest.raises(AssertionError, match="waits, and one of priority 1 runs"):
        world.step()


@pytest.mark.usefixtures("timid")
def test_one_that_could_have_been_served_is_no_reason_for_those_behind_it() -> None:
    world = World(config(max_num_seqs=1))
    submit(world, 4, priority=2)
    world.step()
    for _ in range(2):
        submit(world, 4, priority=0)
    with pytest.raises(AssertionError, match="request 2"):
        world.step()


def limits(world: World, *handles: int) -> list[str]:
    """What each of the waiting requests meets in the plan that is made now."""
    found: list[str] = []
    state = world.scheduler._state
    waiting = [each for each in state.waiting if each.handle in handles]

    def look() -> None:
        rows = state.config.max_num_batched_tokens
        found.extend(limit_of(state, world.plans[-1], each, rows) for each in waiting)

    world.step((look,))
    return found


def test_rows_are_a_reason() -> None:
    world = World(config(num_pages=40, max_num_seqs=2, max_num_batched_tokens=4))
    submit(world, 3, priority=1)
    world.step()
    submit(world, 30, priority=0)
    world.step()
    assert limits(world, submit(world, 3, priority=0)) == ["rows"]
    world.run()


def test_slots_are_a_reason() -> None:
    world = World(config(num_pages=40, max_num_seqs=3))
    submit(world, 3, priority=0)
    submit(world, 3, priority=1)
    world.step()
    assert limits(world, submit(world, 3, priority=0, n=3)) == ["slots"]
    world.run()


def test_pages_are_a_reason_and_who_meets_it_holds_up_the_line() -> None:
    world = World(config(num_pages=10, prefix_cache=False, max_num_seqs=3))
    submit(world, 16, priority=0)
    submit(world, 4, priority=1)
    world.step()
    large, small = submit(world, 24, priority=0), submit(world, 3, priority=0)
    assert limits(world, large, small) == ["pages", ""]
    assert world.stories[small].started is None
    world.run()
