"""Watching: the changes that are told add up to the picture of every moment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from pagedd.core.pages import PageState
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
    world_of,
)
from tests.core.watching import WatchedWorld
from tests.core.world import World, config, prompt

HISTORIES = settings(REPEATABLE, max_examples=200)


def watched(world: World) -> WatchedWorld:
    """One with the limits of ``world``. Whose turn it is makes no difference to who looks."""
    return WatchedWorld(replace(world.config, fair_share=False))


@HISTORIES
@given(limits=LIMITS, happenings=HAPPENINGS)
def test_looks_add_up(limits: bytes, happenings: list[bytes]) -> None:
    world = watched(world_of(limits))
    for value in happenings:
        act(world, value)
    finish(world)


@HISTORIES
@given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
def test_looks_add_up_with_swap_space(limits: bytes, mode: bytes, happenings: list[bytes]) -> None:
    world = watched(swap_world_of(limits, mode))
    for value in happenings:
        act(world, value)
    finish(world)


@settings(REPEATABLE, max_examples=40)
@given(limits=LIMITS, happenings=PUSHES)
def test_who_looks_again_sees_all(limits: bytes, happenings: list[bytes]) -> None:
    look_now_and_then(limits, happenings)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=800)
@given(limits=LIMITS, happenings=PUSHES)
def test_longer_search_by_who_looks_again(limits: bytes, happenings: list[bytes]) -> None:
    look_now_and_then(limits, happenings)


def look_now_and_then(limits: bytes, happenings: list[bytes]) -> None:
    world = watched(tense_world_of(limits))
    for number, value in enumerate(happenings):
        if number % 7 == 3:
            world.watched = False
            world.scheduler.watch(wanted=False)
            assert world.scheduler.look() is None
        push(world, value)
        if number % 7 == 5 and not world.watched:
            world.watched = True
            world.scheduler.watch(wanted=True)
            assert world.look().key
    finish(world)


def test_a_look_tells_what_changed_and_no_more() -> None:
    world = WatchedWorld(config(num_pages=64, max_num_seqs=8))
    first = world.submit(prompt(1, 9), max_tokens=20)
    world.submit(prompt(2, 9), max_tokens=20)
    for _ in range(3):
        world.step()
    told = world.picture.told
    assert world.look().rows == []
    assert world.look().pages == []
    assert world.picture.told == told
    world.submit(prompt(3, 5))
    assert world.picture.told == told + 1  # the new one alone
    world.cancel(first)
    changes = world.look()
    assert changes.gone == [first]
    assert all(world.picture.cells[page] != PageState.OWNED for page in changes.pages)


def test_choices_that_go_on_are_told_again_when_one_ends() -> None:
    world = WatchedWorld(config(num_pages=64, max_num_seqs=8))
    handle = world.submit(prompt(1, 9), max_tokens=20, n=3)
    for _ in range(2):
        world.step()
    world.end_choice(handle, 1)
    changes = world.look()
    assert changes.gone == [handle]
    assert [(row.handle, row.choice) for row in changes.rows] == [(handle, 0), (handle, 2)]
