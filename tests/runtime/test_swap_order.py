"""Copies and compute in any order that the waits leave open: nothing is used too early."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pagedd.core.plan import Chunk, Copy, Grow, Join, StepPlan
from pagedd.core.request import SamplingParams
from pagedd.runtime.deferred_swap import DeferredSwap
from pagedd.runtime.stream_swap import MARK_EVERY
from pagedd_kernels.reference import TorchBackend
from tests.core.world import World, config, prompt
from tests.runtime.queues import QueuedRunner

EVERYTHING = 10**9
# at least 26: in world 25 a page that is still to be copied out is overtaken by another
SEEDS = pytest.mark.parametrize("seeds", [30, pytest.param(300, marks=pytest.mark.slow)])


def tight(seed: int) -> tuple[World, random.Random]:
    """A world in which most requests are swapped, or find their prefix in host memory."""
    rng = random.Random(seed)
    return World(
        config(
            num_pages=rng.choice((8, 12, 17)),
            num_host_pages=rng.choice((4, 9, 40)),
            max_num_seqs=rng.choice((2, 4, 6)),
            preemption_mode=rng.choice(("swap", "swap", "auto")),
            prefix_cache=rng.random() < 0.7,
            swap_in_ahead=rng.random() < 0.5,
            swap_in_pages=rng.choice((None, 1, 2)),
            page_bytes=1000,
        )
    ), rng


def live(world: World, rng: random.Random) -> None:
    """Requests come and go at random; all that are not cancelled end with the right tokens."""
    for _ in range(14):
        world.submit(
            prompt(rng.randrange(3), rng.randrange(1, 20)),
            n=rng.choice((1, 1, 2)),
            max_tokens=rng.randrange(1, 24),
            priority=rng.choice((0, 0, 1, -1)),
            seed=rng.randrange(12),
        )
        for _ in range(rng.randrange(6)):
            world.step()
        if rng.random() < 0.2:
            world.step((world.cancel, rng.choice(list(world.stories))))
    while world.step() is not None:
        pass


def planned(world: World) -> int:
    return sum(len(plan.swap_out) + len(plan.swap_in) for plan in world.plans)


@SEEDS
@pytest.mark.parametrize("favour", ["compute", "copy", "both"])
def test_two_streams_give_what_one_would(favour: str, seeds: int) -> None:
    moved = 0
    for seed in range(seeds):
        world, rng = tight(seed)
        runner = QueuedRunner(world.config, favour, seed)
        world.runner = runner
        live(world, rng)
        runner.queues.work(EVERYTHING)
        assert runner.queues.idle
        moved += planned(world)
    assert moved > 20 * seeds


@SEEDS
@pytest.mark.parametrize("step_pages", [1, 3, 1000])
def test_deferred_copies_give_what_immediate_ones_would(step_pages: int, seeds: int) -> None:
    copied = moved = 0
    for seed in range(seeds):
        world, rng = tight(seed)
        runner = QueuedRunner(world.config, "compute", seed, hurry=(EVERYTHING,))
        budget = step_pages * runner.cache[0].nbytes
        runner.swap = DeferredSwap(runner.cache, runner.host_pages, TorchBackend(), budget)
        world.runner = runner
        live(world, rng)
        copied += runner.copied
        moved += planned(world)
    assert moved > 20 * seeds
    assert copied == moved if step_pages > 1 else copied < moved


LONG = 3 * MARK_EVERY  # pages of the sequence that gives way


def crowd(favour: str) -> QueuedRunner:
    """Pages of one token: slot 0 has computed LONG of them, slot 1 the one behind."""
    settings = config(page_size=1, num_pages=LONG + 9, num_host_pages=LONG, max_num_seqs=3)
    runner = QueuedRunner(settings, favour, 0, hurry=(0,))
    params = SamplingParams(max_tokens=9)
    pages = tuple(range(LONG + 1))
    joins = (
        Join(0, 0, 0, pages[:-1], LONG, params, pages[:-1]),
        Join(1, 1, 0, (7,), 1, params, pages[-1:]),
    )
    chunks = (Chunk(1, 0, 1, (1,)), Chunk(0, 0, LONG, (0,)))
    runner.execute(plan(join=joins, chunks=chunks))
    runner.queues.work(EVERYTHING)
    return runner


def plan(**parts: Any) -> StepPlan:
    names = ("swap_out", "copies", "swap_in", "leave", "join", "grow", "chunks")
    return StepPlan(0, **{name: parts.get(name, ()) for name in names})


def test_a_step_waits_for_no_copy_out_but_of_what_it_overwrites() -> None:
    runner = crowd("compute")
    out = tuple(Copy(page, page) for page in range(LONG))
    taken = LONG // 2
    grow, chunks = (Grow(1, 1, taken),), (Chunk(1, 1, 1, (1,)),)
    runner.execute(plan(swap_out=out, leave=(0,), grow=grow, chunks=chunks))
    before = runner.cache.clone()
    while runner.queues.compute.left:
        runner.queues.work(1)
    assert runner.host_pages[taken] == before[taken]
    assert runner.cache[taken] != before[taken]
    assert runner.queues.copy.left >= LONG - 1, "only that page was copied before"
    # a later step overwrites one of those that are still on their way
    runner.execute(plan(grow=(Grow(1, 2, 0),), chunks=(Chunk(1, 2, 1, (1,)),)))
    while runner.queues.compute.left:
        runner.queues.work(1)
    assert runner.queues.copy.left >= LONG - 1 - MARK_EVERY
    runner.queues.work(EVERYTHING)
    assert runner.host_pages.flatten().tolist() == before[:LONG].flatten().tolist()


def test_a_step_waits_for_no_copy_in_that_it_does_not_read() -> None:
    runner = crowd("compute")
    before = runner.cache.clone()
    out = tuple(Copy(page, page) for page in range(LONG))
    alone = Chunk(1, 1, 1, (1,))
    grow = (Grow(1, 1, LONG + 1),)
    runner.execute(plan(swap_out=out, leave=(0,), grow=grow, chunks=(alone,)))
    runner.queues.work(EVERYTHING)
    runner.cache[:LONG] = 0
    back = tuple(Copy(page, page) for page in range(LONG))
    grow = (Grow(1, 2, LONG + 2),)
    runner.execute(plan(swap_in=back, grow=grow, chunks=(Chunk(1, 2, 1, (1,)),)))
    while runner.queues.compute.left:
        runner.queues.work(1)
    assert runner.queues.copy.left >= LONG
    tokens = (*range(LONG), 3)
    join = Join(0, 0, 0, tokens, LONG, SamplingParams(max_tokens=9), (*range(LONG), LONG + 3))
    runner.execute(plan(join=(join,), chunks=(Chunk(0, LONG, 1, (0,)),)))
    while runner.queues.compute.left:
        runner.queues.work(1)
    assert not runner.queues.copy.left, "the step reads them all"
    assert runner.cache[:LONG].tolist() == before[:LONG].tolist()


@pytest.mark.parametrize("deferred", [False, True])
def test_copies_within_the_device_take_part(deferred: bool) -> None:
    runner = crowd("compute")
    if deferred:
        runner.swap = DeferredSwap(runner.cache, runner.host_pages, TorchBackend(), 0)
    before = runner.cache[: LONG + 1].clone()
    out = tuple(Copy(page, page) for page in range(LONG))
    grow, chunks = (Grow(1, 1, LONG + 1),), (Chunk(1, 1, 1, (1,)),)
    over = (Copy(LONG, 5), Copy(LONG, LONG - 1))
    runner.execute(plan(swap_out=out, leave=(0,), copies=over, grow=grow, chunks=chunks))
    runner.queues.work(EVERYTHING)
    assert runner.cache[[5, LONG - 1]].tolist() == before[[LONG, LONG]].tolist()
    grow, chunks = (Grow(1, 2, LONG + 2),), (Chunk(1, 2, 1, (1,)),)
    runner.execute(plan(swap_in=(Copy(5, 4), Copy(7, LONG + 5)), grow=grow, chunks=chunks))
    grow, chunks = (Grow(1, 3, LONG + 3),), (Chunk(1, 3, 1, (1,)),)
    runner.execute(plan(copies=(Copy(4, 8), Copy(6, LONG + 5)), grow=grow, chunks=chunks))
    runner.queues.work(EVERYTHING)
    assert runner.host_pages[5] == before[5], "saved before it was overwritten"
    assert runner.cache[8] == before[5], "read after it had arrived"
    assert runner.cache[LONG + 5] == before[6], "overwritten after something else had arrived"
