"""The second tier in service: what leaves the device comes back from host memory, whole."""

from __future__ import annotations

from pagedd.core.sequence import SequenceState
from tests.core.tiers import SYSTEM, copies, pool, serve
from tests.core.world import World, config, prompt


def test_a_system_prompt_survives_a_full_device_pool() -> None:
    world = pool(preemption_mode="recompute")
    serve(world, (*SYSTEM, 1, 2))
    since = len(world.plans)
    for which in range(1, 4):
        serve(world, prompt(which, 40))
    assert copies(world, since)[1] == 0
    stats = world.scheduler.stats()
    assert stats.spilled_pages == copies(world)[0] > 4
    since = len(world.plans)
    assert serve(world, (*SYSTEM, 3, 4)) == 16
    assert copies(world, since)[1] == 4
    assert len(world.plans) == since + 1
    assert world.plans[-1].num_tokens == 2
    after = world.scheduler.stats()
    assert after.host_hits == 16 == after.prefix_hits
    assert after.swapped_bytes == after.swapped == 0


def test_what_is_found_on_the_device_goes_on_in_host_memory() -> None:
    world = pool()
    serve(world, (*SYSTEM, 1))
    serve(world, prompt(1, 38))  # ten pages: the last two of the four that are cached go
    assert copies(world)[0] == 2
    assert serve(world, (*SYSTEM, 1)) == 16
    assert copies(world)[1] == 2
    assert world.scheduler.stats().host_hits == 8


def test_a_hit_in_host_memory_leaves_a_token_to_compute() -> None:
    world = pool()
    serve(world, SYSTEM)
    serve(world, prompt(1, 45))
    assert serve(world, SYSTEM) == 12
    assert copies(world)[1] == 3


def test_a_content_is_copied_out_once_however_often_it_is_evicted() -> None:
    world = pool()
    for again in range(5):
        assert serve(world, (*SYSTEM, 1)) == (16 if again else 0)
        for which in (1, 2):
            assert serve(world, prompt(which, 45)) == (44 if again else 0)
    assert copies(world)[0] == 4 + 11 + 11
    assert world.scheduler.stats().spilled_pages >= 4 * (4 + 11 + 11)


def test_the_plan_that_evicts_says_so_once() -> None:
    world = pool(num_host_pages=3)
    serve(world, (*SYSTEM, 1))
    serve(world, prompt(1, 41))
    assert world.evicted == [(3, 3, 0)]
    serve(world, prompt(2, 37))
    # Of the eleven cached pages nine go, and of 3 + 9 contents host memory has room for the last 3.
    assert world.evicted == [(3, 3, 0), (9, 3, 9)]
    assert [len(plan.swap_out) for plan in world.plans] == [0, 3, 3]
    assert world.scheduler.stats().spilled_pages == 6


def test_evicted_and_found_in_one_plan() -> None:
    """What is copied out comes back at once, though its page has another owner by then."""
    world = pool()
    serve(world, prompt(0, 9))  # two pages, the least recently used ones
    serve(world, prompt(1, 21))  # five
    first = world.submit(prompt(2, 23), ignore_eos=True)  # five free pages and an evicted one
    second = world.submit(prompt(0, 9), ignore_eos=True)
    plan = world.step()
    assert plan is not None
    (back,) = plan.swap_in
    (out,) = [copy for copy in plan.swap_out if copy.dst == back.src]
    owners = {join.handle: join.pages for join in plan.join}
    assert out.src in owners[first]
    assert back.dst == owners[second][1]
    assert world.stories[second].cached_tokens == 8
    world.run()


def test_what_a_plan_copies_in_is_not_overwritten_by_what_it_copies_out() -> None:
    world = pool(num_host_pages=2)
    serve(world, prompt(0, 9))
    serve(world, prompt(1, 45))  # both of its pages go to host memory, which is full now
    assert world.scheduler.stats().host_pages.cached == 2
    handle = world.submit(prompt(0, 9))
    plan = world.step()
    assert plan is not None
    assert world.stories[handle].cached_tokens == 8
    assert len(plan.swap_in) == 2
    assert world.scheduler.stats().pages.cached < 11, "pages were evicted for it"
    assert not plan.swap_out, "there was no room for them"
    world.run()
    assert world.scheduler.stats().host_pages.cached == 2


def test_what_is_used_stays_and_what_is_not_goes() -> None:
    """Evicted again and again, the system prompt is never the least recently used one."""
    world = pool(num_host_pages=16)
    serve(world, (*SYSTEM, 1))
    for which in range(1, 8):
        serve(world, prompt(which, 45))  # eleven full pages
        assert serve(world, (*SYSTEM, which)) == 16
    assert serve(world, prompt(1, 45)) == 0


def test_an_eviction_counts_as_a_use_of_the_copy_in_host_memory() -> None:
    world = pool(num_host_pages=13)
    serve(world, (*SYSTEM, 1))
    serve(world, prompt(1, 45))
    assert serve(world, (*SYSTEM, 1)) == 16  # in both memories; the host's other pages are younger
    for _ in range(6):
        serve(world, (*SYSTEM, 2))  # found on the device
    serve(world, prompt(2, 30))
    assert serve(world, prompt(2, 30)) == 28
    serve(world, prompt(3, 45))  # evicts it again
    assert serve(world, (*SYSTEM, 1)) == 16


def test_a_sequence_that_was_swapped_before_copies_out_only_what_is_new() -> None:
    world = World(config(num_pages=12, num_host_pages=40, preemption_mode="swap", max_num_seqs=1))
    low = world.submit(prompt(0, 17), max_tokens=20, ignore_eos=True, priority=1)
    world.step()
    needed: list[tuple[int, int]] = []
    for which in range(1, 4):
        drawn = len(world.stories[low].drawn())
        while len(world.stories[low].drawn()) < drawn + 4:
            world.step()
        world.submit(prompt(which, 41), max_tokens=2, ignore_eos=True)
        since = len(world.plans)
        world.step()
        event = world.preempted[-1]
        needed.append((event.pages, event.host_needed))
        assert len(world.plans[since].swap_out) >= event.host_needed
        while world.stories[low].away:
            world.step()
    assert needed == [(6, 6), (7, 2), (8, 2)]  # one page that became full since, and the last one
    assert world.scheduler.stats().recomputed_tokens == 0
    world.run()


def test_the_page_that_is_not_full_is_free_when_it_was_copied_back() -> None:
    world = World(config(num_pages=12, num_host_pages=40, preemption_mode="swap", max_num_seqs=1))
    low = world.submit(prompt(0, 18), max_tokens=20, ignore_eos=True, priority=1)
    world.step()
    world.submit(prompt(1, 41), max_tokens=2, ignore_eos=True)
    world.step()
    assert world.scheduler.stats().host_pages[2:] == (5, 0)
    while world.stories[low].away:
        world.step()
    assert world.scheduler.stats().host_pages[2:] == (0, 4 + world.witness.spilled)
    world.run()


def test_what_is_to_be_computed_again_is_not_copied() -> None:
    world = pool(preemption_mode="recompute")
    for which in range(3):
        world.submit(prompt(which, 4 + which), max_tokens=24, ignore_eos=True)
    while not world.scheduler.stats().finished_total:
        world.step()
    assert world.preempted
    assert sum(evicted.pages for evicted in world.evicted) > 0
    assert sum(evicted.saved for evicted in world.evicted) == 0
    assert copies(world) == (0, 0)
    world.run()
    assert world.scheduler.stats().recomputed_tokens > 0


def test_what_others_share_survives_even_so() -> None:
    """Both have found the system prompt, so its pages are worth a copy when both have gone."""
    world = pool(preemption_mode="recompute", max_num_seqs=2)
    serve(world, (*SYSTEM, 1))
    low = [
        world.submit((*SYSTEM, which), max_tokens=20, ignore_eos=True, priority=1)
        for which in (2, 3)
    ]
    for _ in range(6):
        world.step()
    world.submit(prompt(1, 40), n=2, max_tokens=2, ignore_eos=True)
    world.step()
    assert len(world.preempted) == 2
    assert world.plans[-1].swap_out
    since = len(world.plans)
    while any(world.stories[handle].away for handle in low):
        world.step()
    assert copies(world, since)[1] > 0
    first = world.resumed[0]
    assert (first.mode, first.kept) == ("recompute", 16)
    world.run()
    assert world.scheduler.stats().swapped_bytes == 0


def test_who_is_put_back_before_its_first_chunk_lets_go_of_host_pages() -> None:
    world = pool()
    serve(world, (*SYSTEM, 1))
    serve(world, prompt(1, 45))
    world.submit((*SYSTEM, 1), max_tokens=1)
    state = world.scheduler._state
    sequence = state.waiting.first
    before = state.memory.host.counts
    state.admit(sequence, state.memory.hits(sequence))
    assert state.memory.host.counts.swapped == 4
    assert sequence.num_computed == 16
    world.scheduler.audit()
    state.put_back(sequence)
    assert state.memory.host.counts == before
    assert (sequence.host, sequence.num_computed, sequence.state) == ([], 0, SequenceState.WAITING)
    world.scheduler.audit()
    world.run()
    assert world.scheduler.stats().host_hits == 16


def test_cancelled_before_its_first_chunk() -> None:
    world = pool()
    serve(world, (*SYSTEM, 1))
    serve(world, prompt(1, 45))
    handle = world.submit((*SYSTEM, 1), max_tokens=1)
    state = world.scheduler._state
    before = state.memory.host.counts
    state.admit(state.waiting.first, [])
    world.cancel(handle)
    world._observe()
    assert state.memory.host.counts == before
    world.run()


def test_nothing_is_spilled_or_found_without_a_prefix_cache() -> None:
    world = pool(prefix_cache=False, preemption_mode="recompute")
    for _ in range(2):
        serve(world, (*SYSTEM, 1))
        assert serve(world, prompt(1, 45)) == 0
    stats = world.scheduler.stats()
    assert (copies(world), stats.spilled_pages, stats.host_hits) == ((0, 0), 0, 0)


def test_salts_never_share_in_host_memory_either() -> None:
    world = pool()
    serve(world, (*SYSTEM, 1), salt=b"a")
    serve(world, prompt(1, 45))
    assert serve(world, (*SYSTEM, 1), salt=b"b") == 0
    serve(world, prompt(2, 45))
    assert serve(world, (*SYSTEM, 1), salt=b"a") == 16


def test_a_content_that_may_be_wrong_is_not_found_in_host_memory() -> None:
    world = pool()
    bad = next(seed for seed in range(64) if seed % 16 == 13)  # its third token cannot be drawn
    serve(world, (*SYSTEM, 1))
    serve(world, prompt(1, 45))
    assert serve(world, (*SYSTEM, 1), seed=bad, max_tokens=8, ignore_eos=True) == 16
    assert world.scheduler.stats().failed_total == 1
    assert serve(world, (*SYSTEM, 1)) == 0
    world.run()
