"""Explanations of random histories, against the state, the next step and a silent scheduler."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings

from pagedd.core.events import MAX_HOLDERS, Waiting
from pagedd.core.plan import StepPlan
from pagedd.core.sequence import Sequence, SequenceState
from tests.core.histories import HAPPENINGS, LIMITS, MODE, REPEATABLE, act, finish, swap_world_of
from tests.core.test_explain import explained, head
from tests.core.world import World

HISTORIES = settings(REPEATABLE, max_examples=200)


def starts_next(world: World, mine: Waiting) -> bool:
    """Step; whether the sequence got a slot with that.

    What displaces others can be short of a page even so, when choices of one request have to part
    with one that they share: then it goes before anybody heard of it, and comes in the next step.
    """
    state, heard = world.scheduler._state, len(world.preempted)
    group = state.groups[mine.handle]
    sequence = next(each for each in group.sequences if each.index == mine.choice)
    put_backs, seen = state.put_backs, [False]
    world.step((lambda: seen.append(sequence.slot >= 0),))
    unheard = state.put_backs - put_backs > len(world.preempted) - heard
    return seen[-1] or (mine.limit == "turn" and unheard)


def timeless(limits: bytes, mode: bytes) -> World:
    """A world in which the queue has the same first before and in the next step."""
    return World(replace(swap_world_of(limits, mode).config, priority_aging=None))


def test_the_next_step_admits_who_lacks_nothing() -> None:
    seen: Counter[str] = Counter()

    @HISTORIES
    @given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
    def check(limits: bytes, mode: bytes, happenings: list[bytes]) -> None:
        world = timeless(limits, mode)
        for value in happenings:
            act(world, value)
            mine = head(world)
            if mine is not None:
                assert (mine.ahead, mine.first) == (0, mine.handle)
                assert starts_next(world, mine) == (mine.limit == "turn"), mine
                seen[mine.limit] += 1
        finish(world)

    check()
    assert min(seen[limit] for limit in ("slots", "pages", "tokens", "turn")) > 0


@HISTORIES
@given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
def test_explanations_are_true_of_the_state(
    limits: bytes, mode: bytes, happenings: list[bytes]
) -> None:
    world = swap_world_of(limits, mode)
    for value in happenings:
        act(world, value)
        check_all(world)
        world.step((check_all, world))
    finish(world)


def check_all(world: World) -> None:
    state = world.scheduler._state
    in_flight = world.scheduler._in_flight
    for handle, group in state.groups.items():
        result = explained(world, handle)
        assert (result.ref, result.handle) == (7, handle)
        remaining = [each for each in group.sequences if each.state is not SequenceState.ENDED]
        there = [each.index for each in remaining if each.slot >= 0]
        away = [(handle, each.index) for each in remaining if each.slot < 0]
        assert [each.choice for each in result.running] == there
        told = [(each.handle, each.choice) for each in result.waiting]
        first = state.waiting.first if away else None
        if first is not None and first.handle != handle:
            assert told.pop() == (first.handle, first.index)
        assert told == away
        for waiting in result.waiting:
            check_waiting(world, waiting, in_flight)
        names = names_of(world)
        tables = {each.index: each.table.pages for each in remaining}
        for running in result.running:
            table = tables[running.choice]
            assert running.state in ("prefilling", "decoding")
            assert running.pages == len(table)
            assert running.shared == sum(1 for page in table if names[page] > 1)


def names_of(world: World) -> Counter[int]:
    """How many sequences name each page."""
    names: Counter[int] = Counter()
    for sequence in world.scheduler._state.running:
        names.update(sequence.table.pages)
    return names


def found(world: World, sequence: Sequence) -> list[int]:
    """The pages that hold its beginning, by digests made here."""
    state = world.scheduler._state
    size, request = world.config.page_size, sequence.group.request
    entries, pages = state.memory.index.entries(), []
    key = state.memory.index.root(bytes(8) + request.salt)
    for start in range(0, len(sequence.tokens) - size, size):
        key = state.memory.index.digest(key, sequence.tokens[start : start + size])
        if key not in entries:
            break
        pages.append(entries[key])
    return pages


def check_waiting(world: World, waiting: Waiting, in_flight: StepPlan | None) -> None:
    """Everything in ``waiting`` against tables, slots and queue, counted anew."""
    state = world.scheduler._state
    queue = list(state.waiting)
    places = [(each.handle, each.index) for each in queue]
    place = places.index((waiting.handle, waiting.choice))
    sequence, names = queue[place], names_of(world)
    if waiting.limit == "turn" and sequence is state.waiting.claimant and not waiting.ahead:
        assert waiting.first == waiting.handle
    else:
        assert (waiting.ahead, waiting.first) == (place, places[0][0])
    assert waiting.short == max(waiting.needed - waiting.available, 0)
    forked = sequence.group.forked
    slots = 1 if forked else sequence.group.request.params.n
    taken = sum(1 + len(each.group.reserved) for each in state.running)
    free_slots = world.config.max_num_seqs - taken
    hits = found(world, sequence)
    available = world.config.num_pages - len(names) - sum(1 for page in hits if not names[page])
    pages = -(-len(sequence.tokens) // world.config.page_size) - len(hits)
    if waiting.limit == "slots":
        assert (waiting.needed, waiting.available) == (slots, free_slots)
        assert waiting.short > 0
    elif waiting.limit == "pages":
        assert slots <= free_slots
        assert (waiting.needed - waiting.headroom, waiting.available) == (pages, available)
        assert waiting.short > 0
    elif waiting.limit == "tokens":
        assert (waiting.needed, waiting.available) == (1, 0)
        rows = in_flight.num_tokens if in_flight else sum(each.missing for each in state.running)
        assert rows >= world.config.max_num_batched_tokens
    else:
        assert waiting.limit == "turn"
        less_urgent = [each for each in state.running if each.priority > sequence.priority]
        assert less_urgent or (slots <= free_slots and pages <= available)
        spare = in_flight is None or in_flight.num_tokens < world.config.max_num_batched_tokens
        assert less_urgent or spare
        assert (waiting.needed, waiting.available) == (0, 0)
    check_holders(world, waiting, names)


def check_holders(world: World, waiting: Waiting, names: Counter[int]) -> None:
    running = {(each.handle, each.index): each for each in world.scheduler._state.running}
    if waiting.limit not in ("slots", "pages"):
        assert (waiting.holders, waiting.others) == ((), 0)
        return
    for holder in waiting.holders:
        sequence = running.pop((holder.handle, holder.choice))
        pages = sequence.table.pages
        assert holder.priority == sequence.priority
        assert (holder.pages, holder.alone) == (
            len(pages),
            sum(1 for page in pages if names[page] == 1),
        )
        assert waiting.limit == "slots" or holder.pages
    rest = [each for each in running.values() if waiting.limit == "slots" or each.table.pages]
    assert waiting.others == len(rest)
    assert not rest or len(waiting.holders) == MAX_HOLDERS
    if waiting.limit == "pages":
        least = min((each.pages for each in waiting.holders), default=0)
        assert all(len(each.table.pages) <= least for each in rest)
        if not rest:
            alone = sum(each.alone for each in waiting.holders)
            shared = sum(1 for times in names.values() if times > 1)
            assert alone + shared == len(names)


def test_what_is_short_is_all_that_is_short() -> None:
    """Holders go until as much is free as was short; then it starts, or meets a later limit."""
    seen: Counter[str] = Counter()

    @HISTORIES
    @given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
    def check(limits: bytes, mode: bytes, happenings: list[bytes]) -> None:
        world = timeless(limits, mode)
        for value in happenings:
            act(world, value)
            before = head(world)
            after = before and without_shortage(world, before)
            if before and after:
                assert LATER.index(after.limit) > LATER.index(before.limit)
                assert starts_next(world, after) == (after.limit == "turn")
                seen[before.limit, after.limit] += 1
        finish(world)

    check()
    assert min(seen[limit, "turn"] for limit in ("slots", "pages")) >= 20


LATER = ["slots", "pages", "tokens", "turn"]


def without_shortage(world: World, mine: Waiting) -> Waiting | None:
    """Cancel holders, those named last first, until what was short is free; None if that fails."""
    now = mine
    while mine.limit in ("slots", "pages") and now.limit == mine.limit and now.short:
        others = [each.handle for each in now.holders if each.handle != mine.handle]
        if not others:
            return None  # its own choices hold it
        world.cancel(others[-1])
        world._observe()
        later = head(world)
        assert later is not None
        assert (later.handle, later.choice) == (mine.handle, mine.choice)
        assert later.limit != now.limit or later.available >= now.available
        now = later
    return None if now is mine else now


@pytest.mark.parametrize("examples", [80, pytest.param(1000, marks=pytest.mark.slow)])
def test_explaining_changes_nothing(examples: int) -> None:
    """Two schedulers live through one history; of the second, everything is asked all the time."""

    @settings(REPEATABLE, max_examples=examples)
    @given(limits=LIMITS, mode=MODE, happenings=HAPPENINGS)
    def check(limits: bytes, mode: bytes, happenings: list[bytes]) -> None:
        silent, asked = swap_world_of(limits, mode), swap_world_of(limits, mode)
        for value in happenings:
            act(silent, value)
            act(asked, value)
            ask(asked)
            silent.step((int,))
            asked.step((ask, asked))
            assert asked.plans == silent.plans
            assert asked.scheduler.snapshot() == silent.scheduler.snapshot()
        finish(silent)
        finish(asked)
        assert asked.plans == silent.plans
        assert asked.waiting == silent.waiting

    check()


def ask(world: World) -> None:
    for handle in range(len(world.stories) + 2):
        explained(world, handle)
