"""The named faults of page managers and schedulers that concern the core, one by one."""

from __future__ import annotations

import random

import pytest

from tests.core.world import World, config


def prompt(family: int, length: int) -> tuple[int, ...]:
    """Tokens that differ between families from the first on."""
    return tuple((family * 31 + i * 7) % 97 + 1 for i in range(length))


class TestB01RecycledPage:
    """A recycled page must not be found under its old hash."""

    def test_nothing_is_cached_after_every_page_was_reused(self) -> None:
        world = World(config(num_pages=8))
        first = world.submit(prompt(0, 13), max_tokens=4, ignore_eos=True)
        world.run()
        for family in (1, 2, 3):
            world.submit(prompt(family, 25), max_tokens=4, ignore_eos=True)
            world.run()
        again = world.submit(prompt(0, 13), max_tokens=4, ignore_eos=True)
        world.run()
        assert world.stories[again].cached_tokens == 0
        assert world.stories[again].drawn() == world.stories[first].drawn()

    def test_fifty_rounds_in_shuffled_order(self) -> None:
        world = World(config(num_pages=8))
        order, heard = list(range(5)), {}
        shuffle = random.Random(1).shuffle
        for _ in range(50):
            shuffle(order)
            for family in order:
                handle = world.submit(prompt(family, 13), max_tokens=3, ignore_eos=True)
                world.run()
                drawn = world.stories[handle].drawn()
                assert heard.setdefault(family, drawn) == drawn
        assert world.scheduler.stats().prefix_hits > 0


class TestB02WholePromptCached:
    """A prompt that is cached to its last page still has a token left to compute."""

    @pytest.mark.parametrize("budget", [32, 4, 1])
    @pytest.mark.parametrize("length", [3, 4, 5, 7, 8, 9, 11, 12, 13])
    def test_second_time_gives_the_same(self, length: int, budget: int) -> None:
        world = World(config(max_num_batched_tokens=budget))
        first = world.submit(prompt(0, length))
        world.run()
        second = world.submit(prompt(0, length))
        world.run()
        assert world.stories[second].drawn() == world.stories[first].drawn()
        assert world.stories[second].cached_tokens == (length - 1) // 4 * 4


class TestB05SharedPages:
    """Pages shared by the choices of one request are counted once a holder, no more, no less."""

    @pytest.mark.parametrize("num_pages", [4, 5, 6, 9, 40])
    def test_choices_do_not_depend_on_the_pool(self, num_pages: int) -> None:
        for seed in range(30):
            world = World(config(num_pages=num_pages, max_num_seqs=8))
            handles = [
                world.submit(prompt(which, 11), n=4, seed=seed * 64 + which, max_tokens=5)
                for which in range(2)
            ]
            world.run()
            for handle in handles:
                texts = {world.stories[handle].drawn(index) for index in range(4)}
                assert len(texts) > 1

    def test_prompt_is_computed_once_and_its_last_page_copied(self) -> None:
        world = World(config())
        world.submit(prompt(0, 11), n=4, max_tokens=4, ignore_eos=True)
        fork = world.step()
        assert fork is not None
        assert fork.num_tokens == 11
        assert len(fork.chunks[0].samples) == 4
        assert len({join.pages for join in fork.join}) == 1
        assert world.scheduler.stats().pages.shared == 3
        split = world.step()
        assert split is not None
        assert [copy.src for copy in split.copies] == [fork.join[0].pages[2]] * 3
        assert world.scheduler.stats().pages[3:] == (4, 2)  # owned: last pages, shared: the rest
        world.run()

    def test_prompt_that_fills_its_pages_needs_no_copy(self) -> None:
        world = World(config())
        world.submit(prompt(0, 8), n=3, max_tokens=4, ignore_eos=True)
        world.run()
        assert not any(plan.copies for plan in world.plans)


class TestB07NeverFits:
    """What can never fit is refused at once and holds nobody up."""

    def test_refused_with_the_numbers(self) -> None:
        world = World(config(num_pages=8, page_size=16, max_model_len=512))
        large = world.submit(prompt(0, 200))
        small = world.submit(prompt(1, 5))
        failed = world.stories[large].failed
        assert failed is not None
        assert failed.code == "prompt_too_long"
        assert "200" in failed.message
        assert "128" in failed.message
        assert failed.detail == {"prompt_tokens": 200, "max_model_len": 512, "pool_tokens": 128}
        world.run()
        assert world.stories[small].finished is not None

    def test_growth_ends_with_the_pool(self) -> None:
        world = World(config(num_pages=8, page_size=16, max_model_len=512))
        handle = world.submit(prompt(0, 100), max_tokens=400, ignore_eos=True)
        world.run()
        tokens = world.stories[handle].tokens[0]
        assert len(tokens) == 28
        assert tokens[-1].finish == "length"

    @pytest.mark.parametrize(("length", "code"), [(30, None), (31, None), (32, "prompt_too_long")])
    def test_one_token_must_be_left(self, length: int, code: str | None) -> None:
        world = World(config(max_model_len=32))
        handle = world.submit(prompt(0, length), max_tokens=1)
        failed = world.stories[handle].failed
        assert (failed and failed.code) == code
        world.run()

    def test_more_choices_than_slots(self) -> None:
        world = World(config(max_num_seqs=3))
        handle = world.submit(prompt(0, 4), n=4)
        failed = world.stories[handle].failed
        assert failed is not None
        assert (failed.code, failed.detail) == ("bad_request", {"n": 4, "max_num_seqs": 3})

    def test_no_token(self) -> None:
        world = World(config())
        failed = world.stories[world.submit(())].failed
        assert failed is not None
        assert failed.code == "bad_request"

    def test_full_queue(self) -> None:
        world = World(config(max_queue=2))
        handles = [world.submit(prompt(0, 4)) for _ in range(3)]
        failed = world.stories[handles[2]].failed
        assert failed is not None
        assert (failed.code, failed.detail) == ("queue_full", {"waiting": 2, "max_queue": 2})
        world.step()
        assert world.stories[world.submit(prompt(0, 4))].failed is None
        world.run()


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
