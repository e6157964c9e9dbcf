"""The named faults of page managers (kind 1) that concern the core, one by one."""

from __future__ import annotations

import random

import pytest

from tests.core.world import World, config, prompt


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
