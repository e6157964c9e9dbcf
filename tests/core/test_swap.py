"""Swapping: what is preempted lies in host memory and comes back without being computed again."""

from __future__ import annotations

import pytest

from pagedd.core.events import Preempted, Resumed
from pagedd.core.policies import POLICIES
from tests.core.world import World, config, prompt


def tight(**changes: object) -> World:
    """A pool in which three requests of up to eight pages cannot stay together."""
    values: dict[str, object] = {
        "num_pages": 12,
        "num_host_pages": 40,
        "preemption_mode": "swap",
        "page_bytes": 1000,
    }
    return World(config(**(values | changes)))


def three(world: World, **params: object) -> list[int]:
    values = {"max_tokens": 24, "ignore_eos": True} | params
    return [world.submit(prompt(which, 4 + which), **values) for which in range(3)]


def until_preempted(world: World) -> Preempted:
    """Step to the first plan that preempts, and execute it; the event."""
    while True:
        heard = len(world.preempted)
        world.step()
        if len(world.preempted) > heard:
            return world.preempted[heard]


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_nothing_is_computed_again(policy: str, prefix_cache: bool) -> None:
    world = tight(preemption_policy=policy, prefix_cache=prefix_cache)
    three(world)
    world.run()
    stats = world.scheduler.stats()
    assert stats.preemptions_swap >= 2
    assert (stats.preemptions_recompute, stats.recomputed_tokens) == (0, 0)
    assert stats.swapped_bytes > 0
    assert {event.mode for event in world.resumed} == {"swap"}


def test_counters_while_a_sequence_is_away() -> None:
    world = tight()
    three(world)
    event = until_preempted(world)
    stats = world.scheduler.stats()
    assert (stats.swapped, stats.preemptions_swap) == (1, 1)
    assert stats.host_pages[1:] == (40 - event.pages, event.pages, 0)
    assert stats.swapped_bytes == 1000 * event.pages
    row = next(r for r in world.scheduler.snapshot().sequences if r.handle == event.handle)
    assert (row.state, row.pages) == ("swapped", event.pages)
    assert event.choice_of_mode == "configured"
    world.run()


def test_a_page_is_given_away_in_the_plan_that_copies_it_out() -> None:
    """B12: the runner copies out first, so what it reads is still whole."""
    world = tight(prefix_cache=False, max_num_batched_tokens=64)
    for which in range(2):
        world.submit(prompt(which, 18), priority=1, max_tokens=20, ignore_eos=True)
    world.step()
    world.step()
    world.submit(prompt(2, 9), max_tokens=4, ignore_eos=True)
    plan = world.step()
    assert plan is not None
    urgent = next(join for join in plan.join if join.handle == 3)
    assert {move.src for move in plan.swap_out} & set(urgent.pages)
    world.run()
    assert world.scheduler.stats().recomputed_tokens == 0


def test_twenty_rounds_and_the_victims_again() -> None:
    """B12: a poisoned page would be found by those who ask again."""
    world = World(config(num_pages=18, num_host_pages=100, preemption_mode="swap", max_num_seqs=8))
    for _ in range(20):
        handles = [
            world.submit(prompt(which, 5 + which), max_tokens=40, ignore_eos=True)
            for which in range(8)
        ]
        world.run(limit=5000)
        victims = [handle for handle in handles if world.stories[handle].preemptions]
        assert victims
        for victim in victims:
            world.submit(world.stories[victim].request.prompt, max_tokens=3)
        world.run()


@pytest.mark.parametrize("num_host_pages", [0, 1, 7, 100])
@pytest.mark.parametrize("mode", ["swap", "auto"])
def test_swap_space_that_is_short_is_no_error(num_host_pages: int, mode: str) -> None:
    """B11: four that grow, one of them with two choices."""
    world = tight(
        num_host_pages=num_host_pages, preemption_mode=mode, max_num_seqs=6, page_bytes=10**6
    )
    for which in range(4):
        world.submit(prompt(which, 6), n=2 if which == 1 else 1, max_tokens=24, ignore_eos=True)
    world.run()
    assert all(len(story.drawn()) == 24 for story in world.stories.values())
    stats = world.scheduler.stats()
    assert stats.failed_total == 0
    dropped = [event for event in world.preempted if event.mode == "recompute"]
    reasons = {event.choice_of_mode for event in dropped}
    if num_host_pages == 0:
        assert stats.preemptions_swap == 0
        assert reasons == {"no_swap_space"}
    elif num_host_pages == 1:
        full = [event for event in dropped if event.choice_of_mode == "swap_space_full"]
        assert full
        assert all(event.host_needed > event.host_available == 1 for event in full)
    elif num_host_pages == 7:
        assert stats.preemptions_swap > 0
        assert "swap_space_full" in reasons
    else:
        assert stats.preemptions_recompute == 0


@pytest.mark.parametrize(("page_bytes", "mode"), [(10, "swap"), (10**9, "recompute")])
def test_auto_takes_what_is_quicker_and_names_both(page_bytes: int, mode: str) -> None:
    world = tight(preemption_mode="auto", page_bytes=page_bytes)
    three(world)
    event = until_preempted(world)
    assert event.mode == mode
    assert event.choice_of_mode == "estimate"
    assert (event.swap_ms <= event.recompute_ms) == (mode == "swap")
    assert min(event.swap_ms, event.recompute_ms) > 0
    world.run()


def test_recompute_leaves_the_swap_space_alone() -> None:
    world = tight(preemption_mode="recompute")
    three(world)
    world.run()
    stats = world.scheduler.stats()
    assert stats.preemptions_recompute > 0
    assert (stats.preemptions_swap, stats.swapped_bytes) == (0, 0)


def test_cancel_of_a_swapped_request_gives_its_host_pages_back() -> None:
    world = tight()
    three(world)
    event = until_preempted(world)
    world.cancel(event.handle)
    world._observe()
    stats = world.scheduler.stats()
    story = world.stories[event.handle]
    full = (len(story.request.prompt) + len(story.drawn()) - 1) // 4
    assert stats.host_pages[1:] == (40 - full, 0, full)
    assert stats.swapped == 0
    world.run()


def test_what_choices_share_is_copied_out_once() -> None:
    world = tight(num_pages=16, prefix_cache=False, max_num_batched_tokens=64)
    world.submit(prompt(0, 24), n=3, max_tokens=30, ignore_eos=True, priority=1)
    for _ in range(4):
        world.step()
    world.submit(prompt(1, 44), max_tokens=8, ignore_eos=True)
    plan = world.step()
    assert plan is not None
    gone = [event for event in world.preempted if event.mode == "swap"]
    assert len(gone) >= 2
    once = sum(event.pages for event in gone) - 6 * (len(gone) - 1)  # six pages of the prompt
    assert len(plan.swap_out) == once == world.scheduler.stats().host_pages.swapped
    world.run()


def test_what_the_device_still_holds_is_not_copied_back() -> None:
    world = World(config(num_pages=16, num_host_pages=40, preemption_mode="swap", max_num_seqs=1))
    low = world.submit(prompt(0, 16), max_tokens=20, ignore_eos=True, priority=1)
    world.step()
    world.step()
    world.submit(prompt(1, 4), max_tokens=2, ignore_eos=True)
    world.run()
    out = sum(len(plan.swap_out) for plan in world.plans)
    back = sum(len(plan.swap_in) for plan in world.plans)
    assert (out, back) == (5, 1)  # four full pages are found in the index
    assert world.stories[low].preemptions == 1


def test_an_urgent_request_swaps_out_what_runs() -> None:
    world = tight(max_num_seqs=2, num_pages=20)
    low = [
        world.submit(prompt(which, 9), priority=2, max_tokens=20, ignore_eos=True)
        for which in range(2)
    ]
    for _ in range(3):
        world.step()
    urgent = world.submit(prompt(5, 9), priority=0, max_tokens=2, ignore_eos=True)
    world.step()
    assert len(world.stories[urgent].drawn()) == 1
    world.run()
    assert sum(world.stories[handle].preemptions for handle in low) == 1
    assert world.scheduler.stats().recomputed_tokens == 0
    assert [event.mode for event in world.resumed] == ["swap"]


def test_estimates_follow_what_was_measured() -> None:
    world = tight(preemption_mode="auto", page_bytes=1000)
    three(world)
    costs = world.scheduler._state.costs
    plan = world.scheduler.plan(world.now)
    assert plan is not None
    result = world.runner.execute(plan)
    before = costs.token_seconds
    world.scheduler.commit(plan, result, world.now, {"execute": plan.num_tokens * 10.0})
    assert before < costs.token_seconds < 10.0
    prior = costs.byte_seconds
    learned = costs.token_seconds
    while costs.byte_seconds == prior:
        plan = world.scheduler.plan(world.now)
        assert plan is not None
        result = world.runner.execute(plan)
        phases = {"execute": 1.0, "sample": 1.0} | ({"swap": 1e3} if plan.swap_out else {})
        world.scheduler.commit(plan, result, world.now, phases)
    assert costs.byte_seconds > prior
    assert costs.token_seconds == learned, "decoding says nothing about a prefill"


def test_events_name_the_way_there_and_back() -> None:
    world = tight()
    three(world, seed=3)
    world.run()
    assert isinstance(world.resumed[0], Resumed)
    assert len(world.preempted) == len(world.resumed)
    for away, back in zip(world.preempted, world.resumed, strict=True):
        assert away.mode == back.mode == "swap"
    back = world.resumed[0]
    assert back.kept == back.tokens - 1, "all but the token drawn last was saved"


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("mode", ["swap", "recompute", "auto"])
@pytest.mark.parametrize("params", [{}, {"min_tokens": 20}, {"n": 2}], ids=str)
def test_a_stream_that_gives_way_again_and_again(
    mode: str, prefix_cache: bool, params: dict[str, int]
) -> None:
    """B13: the world compares every token with what the request gives alone."""
    world = World(
        config(
            num_pages=20,
            num_host_pages=30,
            preemption_mode=mode,
            page_bytes=3_000_000,
            prefix_cache=prefix_cache,
        )
    )
    low = world.submit(prompt(0, 10), priority=1, max_tokens=30, ignore_eos=True, **params)
    for which in range(1, 4):
        drawn = len(world.stories[low].drawn())
        while len(world.stories[low].drawn()) < drawn + 3:
            world.step()
        for urgent in range(4):
            world.submit(prompt(which * 5 + urgent, 12), max_tokens=6, ignore_eos=True)
    world.run()
    story = world.stories[low]
    assert story.preemptions >= 2
    assert all(len(story.drawn(index)) == 30 for index in range(params.get("n", 1)))
    stats = world.scheduler.stats()
    assert mode == "auto" or (stats.recomputed_tokens == 0) == (mode == "swap")
