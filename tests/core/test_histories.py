"""Random histories: whatever is asked in whatever order, everybody gets what it would get alone.

The world checks after every change that all adds up (``audit``), of every token that it is the one
that its request would draw alone, and of every plan that nobody less urgent is served in the place
of who waits (``inversion``).
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pagedd.core import policies
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
from tests.core.world import World

HISTORIES = settings(REPEATABLE, max_examples=250)
MANY = settings(REPEATABLE, max_examples=4000)


def play(world: World, happenings: list[bytes]) -> None:
    for value in happenings:
        act(world, value)
    finish(world)


@HISTORIES
@given(limits=LIMITS, happenings=HAPPENINGS)
def test_everybody_gets_what_it_would_get_alone(limits: bytes, happenings: list[bytes]) -> None:
    play(world_of(limits), happenings)


@HISTORIES
@given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
def test_swapping_changes_nothing_for_anybody(
    limits: bytes, mode: bytes, happenings: list[bytes]
) -> None:
    play(swap_world_of(limits, mode), happenings)


@pytest.mark.slow
@MANY
@given(limits=LIMITS, happenings=HAPPENINGS)
def test_longer_search(limits: bytes, happenings: list[bytes]) -> None:
    play(world_of(limits), happenings)


@pytest.mark.slow
@MANY
@given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
def test_longer_search_with_swap_space(limits: bytes, mode: bytes, happenings: list[bytes]) -> None:
    play(swap_world_of(limits, mode), happenings)


@settings(REPEATABLE, max_examples=60)
@given(limits=LIMITS, happenings=PUSHES)
def test_nobody_gives_way_for_ever(limits: bytes, happenings: list[bytes]) -> None:
    strain(limits, happenings)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=1000)
@given(limits=LIMITS, happenings=PUSHES)
def test_longer_search_for_who_gives_way_for_ever(limits: bytes, happenings: list[bytes]) -> None:
    strain(limits, happenings)


def strain(limits: bytes, happenings: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies, "MAX_PREEMPTIONS", 1)  # so that short histories come to it
        world = tense_world_of(limits)
        for value in happenings:
            push(world, value)
        finish(world)
