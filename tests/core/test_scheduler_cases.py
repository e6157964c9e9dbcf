"""The named faults of schedulers (kind 2) that concern the core, one by one."""

from __future__ import annotations

import pytest

from tests.core.world import World, config, prompt


class TestB10HalfPrefilled:
    """Requests that each hold what the other needs."""

    @pytest.mark.parametrize("num_pages", [12, 8])
    @pytest.mark.parametrize("prefix_cache", [True, False])
    @pytest.mark.parametrize("budget", [1, 3, 8])
    def test_two_long_prompts(self, num_pages: int, prefix_cache: bool, budget: int) -> None:
        world = World(
            config(num_pages=num_pages, prefix_cache=prefix_cache, max_num_batched_tokens=budget)
        )
        for family in range(2):
            world.submit(prompt(family, 30), max_tokens=2)
        world.run()
        assert world.scheduler.stats().preemptions_recompute <= 1

    @pytest.mark.parametrize("num_pages", [12, 8, 7])
    @pytest.mark.parametrize("prefix_cache", [True, False])
    def test_six_that_grow(self, num_pages: int, prefix_cache: bool) -> None:
        world = World(config(num_pages=num_pages, max_num_seqs=6, prefix_cache=prefix_cache))
        handles = [
            world.submit(prompt(family, 4), max_tokens=24, ignore_eos=True) for family in range(6)
        ]
        world.run()
        stats = world.scheduler.stats()
        assert 0 < stats.preemptions_recompute < 60
        # A request that is brought back is no second question to the prefix index.
        assert stats.prefix_queries == (24 if prefix_cache else 0)
        assert all(len(world.stories[handle].drawn()) == 24 for handle in handles)

    def test_who_was_preempted_waits_until_it_would_not_have_to_go_again_at_once(self) -> None:
        world = World(config(num_pages=9, watermark=0.0, prefix_cache=False))
        for family, (length, drawn) in enumerate(((8, 10), (6, 14), (7, 16), (4, 11))):
            world.submit(prompt(family, length), max_tokens=drawn, ignore_eos=True)
        world.run()
        assert world.scheduler.stats().preemptions_recompute == 2

    def test_choices_that_do_not_fit_together(self) -> None:
        world = World(config(num_pages=8, max_num_seqs=8))
        handle = world.submit(prompt(0, 10), n=8, max_tokens=20, ignore_eos=True)
        world.run()
        assert all(len(world.stories[handle].drawn(index)) == 20 for index in range(8))


class TestB15Priority:
    """Urgent work comes first, at the cost of less urgent work only, and nobody plays ping-pong."""

    @pytest.mark.parametrize("slots", [1, 2])
    @pytest.mark.parametrize("budget", [1, 2, 32])
    def test_urgent_job_overtakes(self, slots: int, budget: int) -> None:
        world = World(config(num_pages=40, max_num_seqs=slots, max_num_batched_tokens=budget))
        low = [
            world.submit(prompt(which, 3), priority=5, max_tokens=50, ignore_eos=True)
            for which in range(slots)
        ]
        for _ in range(6):
            world.step()
        urgent = world.submit(prompt(9, 6), priority=-1, max_tokens=3, ignore_eos=True)
        for _ in range(9):
            world.step()
        assert world.stories[urgent].finished is not None
        assert not any(world.stories[handle].over for handle in low)
        world.run()
        assert all(len(world.stories[handle].drawn()) == 50 for handle in low)
        # With fewer tokens a step than slots, a slot was free and nobody had to go.
        assert world.scheduler.stats().preemptions_recompute == (budget >= slots)

    def test_urgent_job_takes_pages(self) -> None:
        world = World(config(num_pages=8))
        low = [
            world.submit(prompt(which, 13), priority=1, max_tokens=12, ignore_eos=True)
            for which in range(2)
        ]
        for _ in range(2):
            world.step()
        urgent = world.submit(prompt(9, 17), priority=0, max_tokens=2, ignore_eos=True)
        world.step()
        assert world.stories[urgent].started is not None
        world.run()
        assert world.stories[low[0]].preemptions + world.stories[low[1]].preemptions >= 1

    def test_urgent_job_that_all_of_the_others_could_not_make_room_for_takes_nothing(self) -> None:
        world = World(config(num_pages=8))
        equal = world.submit(prompt(0, 20), priority=0, max_tokens=10, ignore_eos=True)
        low = world.submit(prompt(1, 4), priority=1, max_tokens=3, ignore_eos=True)
        world.step()
        world.submit(prompt(2, 20), priority=0)
        world.step()
        world.step()
        assert world.stories[low].finished is not None
        world.run()
        assert world.stories[equal].preemptions == world.stories[low].preemptions == 0

    def test_equals_do_not_displace_each_other(self) -> None:
        world = World(config(num_pages=40, max_num_seqs=2))
        for which in range(5):
            world.submit(prompt(which, 10), max_tokens=10, ignore_eos=True)
            world.step()
        world.run()
        assert world.scheduler.stats().preemptions_recompute == 0

    @pytest.mark.parametrize("pages_each", [4, 7])
    @pytest.mark.parametrize("mode", ["swap", "recompute"])
    def test_five_equals_that_just_fit_never_preempt_each_other(
        self, pages_each: int, mode: str
    ) -> None:
        world = World(
            config(
                num_pages=5 * pages_each,
                max_num_seqs=5,
                num_host_pages=10,
                preemption_mode=mode,
                prefix_cache=False,
            )
        )
        for which in range(5):
            length = 4 + which
            # The last token that is drawn is not computed: it needs no page.
            drawn = pages_each * 4 + 1 - length
            world.submit(prompt(which, length), max_tokens=drawn, ignore_eos=True)
        world.run()
        assert not world.preempted
        peaks = [story.pages_peak for story in world.stories.values()]
        assert peaks == [pages_each] * 5

    def test_admission_is_by_priority_then_arrival(self) -> None:
        world = World(config(max_num_seqs=1))
        handles = [
            world.submit(prompt(which, 4), priority=priority)
            for which, priority in enumerate((1, 0, 1, 0, -1))
        ]
        world.run()
        started = sorted(handles, key=lambda handle: world.stories[handle].started or 0.0)
        assert started == [handles[i] for i in (4, 1, 3, 0, 2)]

    def test_low_job_ends_when_the_flow_of_urgent_ones_leaves_a_slot(self) -> None:
        world = World(config(max_num_seqs=2, num_pages=40))
        low = world.submit(prompt(0, 4), priority=1, max_tokens=10, ignore_eos=True)
        for which in range(40):
            world.submit(prompt(which, 4), priority=0, max_tokens=2, ignore_eos=True)
            world.step()
            world.step()
        assert world.stories[low].over
        assert world.stories[low].preemptions == 0
        world.run()

    def test_long_prompt_does_not_stop_streams(self) -> None:
        world = World(
            config(num_pages=300, max_num_seqs=4, max_num_batched_tokens=16, max_model_len=1100)
        )
        streams = [
            world.submit(prompt(which, 4), max_tokens=100, ignore_eos=True) for which in range(3)
        ]
        world.step()
        long = world.submit(prompt(9, 1000), max_tokens=1)
        before = [len(world.stories[handle].drawn()) for handle in streams]
        for passed in range(1, 70):
            plan = world.step()
            assert plan is not None
            assert plan.num_tokens == 16
            drawn = [len(world.stories[handle].drawn()) for handle in streams]
            assert drawn == [count + passed for count in before]
        assert world.stories[long].started is not None
        world.run()

    def test_victim_is_the_latest_of_the_least_urgent(self) -> None:
        world = World(config(num_pages=8))
        first, urgent, last = (
            world.submit(prompt(which, 7), priority=priority, max_tokens=12, ignore_eos=True)
            for which, priority in enumerate((1, 0, 1))
        )
        while not world.scheduler.stats().preemptions_recompute:
            world.step()
        assert world.stories[last].away == {0}
        assert not world.stories[first].away
        world.run()
        assert world.stories[urgent].preemptions == 0
