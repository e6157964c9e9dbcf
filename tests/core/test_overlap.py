"""Steps that are decided while one is carried out: everybody gets the same, one step later."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pagedd.core import policies
from pagedd.core.events import Token
from tests.core.histories import (
    HAPPENINGS,
    LIMITS,
    MODE,
    PUSHES,
    REPEATABLE,
    act,
    finish,
    push,
    swap_world_of,
    tense_world_of,
)
from tests.core.overlapped import OverlappedWorld
from tests.core.symbolic import INVALID
from tests.core.world import World, config

HISTORIES = settings(REPEATABLE, max_examples=80)


@HISTORIES
@given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
def test_everybody_gets_what_it_would_get_alone(
    limits: bytes, mode: bytes, happenings: list[bytes]
) -> None:
    world = OverlappedWorld(swap_world_of(limits, mode).config)
    for value in happenings:
        act(world, value)
    finish(world)


@settings(HISTORIES, max_examples=25)
@given(limits=LIMITS, happenings=PUSHES)
def test_nobody_gives_way_for_ever(limits: bytes, happenings: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies, "MAX_PREEMPTIONS", 1)  # so that short histories come to it
        world = OverlappedWorld(tense_world_of(limits).config)
        for value in happenings:
            push(world, value)
        finish(world)


@pytest.mark.slow
@settings(HISTORIES, max_examples=800)
@given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
def test_longer_search(limits: bytes, mode: bytes, happenings: list[bytes]) -> None:
    world = OverlappedWorld(swap_world_of(limits, mode).config)
    for value in happenings:
        act(world, value)
    finish(world)


def outcome(world: World, **params: object) -> list[Token]:
    """One request alone; its tokens."""
    handle = world.submit(range(1, 10), **params)
    world.run()
    return world.stories[handle].tokens.get(0, [])


def distinct(count: int) -> tuple[int, tuple[int, ...]]:
    """A seed, and what it draws first: ``count`` different tokens."""
    for seed in range(100):
        world = World(config(eos_ids=frozenset()))
        drawn = tuple(token.token for token in outcome(world, seed=seed, max_tokens=count))
        if len(set(drawn)) == count:
            return seed, drawn
    raise AssertionError("no seed does")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ends", [{}, {"stop_token_ids": (3, 4, 5)}, {"ignore_eos": True}])
def test_tokens_are_those_of_single_steps(seed: int, ends: dict[str, object]) -> None:
    single, overlapped = World(config()), OverlappedWorld(config())
    tokens = outcome(overlapped, seed=seed, **ends)
    assert tokens == outcome(single, seed=seed, **ends)
    wasted = 0 if not tokens or tokens[-1].finish == "length" else 1
    assert sum(overlapped.runner.wasted.values()) == (wasted if seed != INVALID else 1)
    assert overlapped.steps == single.steps + wasted


def test_a_last_token_that_is_known_ahead_wastes_nothing() -> None:
    world = OverlappedWorld(config(eos_ids=frozenset()))
    handles = [world.submit(range(1, 6 + i), max_tokens=3 + i, ignore_eos=True) for i in range(4)]
    world.run()
    assert [len(world.stories[handle].drawn()) for handle in handles] == [3, 4, 5, 6]
    assert not world.runner.wasted


def started(world: OverlappedWorld, **params: object) -> int:
    handle = world.submit(range(1, 10), **({"ignore_eos": True, "seed": 1} | params))
    world.step()
    world.step()
    return handle


@pytest.mark.parametrize("n", [1, 3])
def test_a_cancel_takes_effect_at_once_and_its_step_is_thrown_away(n: int) -> None:
    world = OverlappedWorld(config())
    handle = started(world, n=n)
    heard = sum(map(len, world.stories[handle].tokens.values()))
    world.cancel(handle)
    world._observe()
    assert world.stories[handle].finished is not None
    assert world.scheduler.idle
    assert world.flight is not None
    other = world.submit(range(50, 66), ignore_eos=True)
    world.run()
    assert sum(map(len, world.stories[handle].tokens.values())) == heard == n
    assert len(world.stories[other].drawn()) == 8


def test_what_a_wasted_step_computes_is_not_found() -> None:
    """The last token fills a page: its keys and values were computed in vain, and stay unknown."""
    world = OverlappedWorld(config(eos_ids=frozenset()))
    seed, drawn = distinct(3)
    handle = world.submit(range(1, 10), max_tokens=8, stop_token_ids=drawn[-1:], seed=seed)
    world.run()
    assert world.stories[handle].drawn() == drawn
    assert world.runner.wasted == {(handle, 0): 1}
    text = [*range(1, 10), *world.stories[handle].drawn()]
    again = world.submit([*text, 5], max_tokens=1)
    world.run()
    assert len(text) % world.config.page_size == 0
    assert world.stories[again].cached_tokens == len(text) - world.config.page_size


def test_what_ends_gives_its_pages_back_without_a_preemption() -> None:
    """Its last token is under way when another needs a page: it needs them no more."""
    world = OverlappedWorld(config(num_pages=4, eos_ids=frozenset()))
    first = world.submit(range(1, 8), max_tokens=2, ignore_eos=True)
    world.submit(range(20, 27), max_tokens=9, ignore_eos=True)
    world.run()
    assert not world.preempted
    assert len(world.stories[first].drawn()) == 2


def test_the_token_of_a_preempted_sequence_is_heard_of_once() -> None:
    world = OverlappedWorld(config(max_num_seqs=1))
    handle = started(world, max_tokens=6)
    before = len(world.stories[handle].drawn())
    urgent = world.submit((3, 4), priority=-1, seed=1)
    world.step()
    assert world.stories[handle].away == {0}
    assert len(world.stories[handle].drawn()) == before + 1
    world.run()
    assert len(world.stories[handle].drawn()) == 6
    assert world.stories[urgent].finished is not None


def test_a_token_that_ends_a_preempted_sequence() -> None:
    world = OverlappedWorld(config(max_num_seqs=1, eos_ids=frozenset()))
    seed, drawn = distinct(2)
    handle = started(world, max_tokens=9, stop_token_ids=drawn[-1:], seed=seed)
    world.submit((3, 4), priority=-1)
    world.step()
    assert world.stories[handle].preemptions == 1
    assert world.stories[handle].finished is not None
    world.run()


def test_invalid_logits_end_that_request_alone() -> None:
    world = OverlappedWorld(config())
    bad = world.submit(range(1, 10), seed=INVALID, ignore_eos=True)
    good = world.submit(range(2, 11), seed=1, ignore_eos=True)
    world.run()
    failed = world.stories[bad].failed
    assert failed is not None
    assert (failed.code, failed.detail) == ("invalid_logits", {"index": 0, "position": 11})
    assert len(world.stories[good].drawn()) == 8
    again = world.submit(range(1, 10), seed=1)
    world.run()
    assert world.stories[again].cached_tokens == 0, "what it computed must not be found"


def test_halves_come_in_their_order() -> None:
    world = World(config())
    world.submit((1, 2), ignore_eos=True)
    scheduler, runner = world.scheduler, world.runner
    first = scheduler.plan(0.0)
    assert first is not None
    with pytest.raises(AssertionError, match="no step is under way"):
        scheduler.collected(first, runner.execute(first), 0.0)
    scheduler.launched(first, 0.0)
    second = scheduler.plan(0.0)
    assert second is not None
    with pytest.raises(AssertionError, match="was not collected"):
        scheduler.launched(second, 0.0)
