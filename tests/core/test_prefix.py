"""PrefixIndex: what a key stands for, and what is shared and what is not."""

from __future__ import annotations

from typing import Any

from pagedd.core.prefix import PrefixIndex
from tests.core.world import World, config


def keys(tokens: list[int], salt: bytes = b"", secret: bytes = b"k") -> list[bytes]:
    index, result = PrefixIndex(4, secret), list[bytes]()
    index.extend(result, tokens, len(tokens) // 4, salt)
    return result


def test_a_key_stands_for_everything_before_it() -> None:
    base = keys([1, 2, 3, 4, 5, 6, 7, 8])
    assert keys([1, 2, 3, 4, 5, 6, 7, 9])[0] == base[0]
    assert keys([1, 2, 3, 4, 5, 6, 7, 9])[1] != base[1]
    assert keys([9, 2, 3, 4, 5, 6, 7, 8])[1] != base[1]
    assert not set(keys([1, 2, 3, 4, 1, 2, 3, 4])[1:]) & set(base)
    assert {len(key) for key in base} == {16}


def test_salt_and_secret_change_every_key() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 7, 8]
    for other in (keys(tokens, salt=b"a"), keys(tokens, secret=b"other")):
        assert not set(other) & set(keys(tokens))


def test_extending_in_parts_gives_the_same_keys() -> None:
    index, parts = PrefixIndex(4, b"k"), list[bytes]()
    tokens = list(range(16))
    for count in (1, 1, 3, 4):
        index.extend(parts, tokens, count, b"")
    assert parts == keys(tokens)


def test_only_the_first_page_is_found() -> None:
    index = PrefixIndex(4, b"k")
    assert index.add(b"key", 3)
    assert not index.add(b"key", 5)
    assert index.find(b"key") == 3
    index.remove(b"key")
    assert index.find(b"key") is None
    assert len(index) == 0


def cached(first: dict[str, Any], second: dict[str, Any], **limits: Any) -> int:
    """Tokens that the second request finds after the first has ended."""
    world = World(config(**limits))
    world.submit(range(1, 14), **first)
    world.run()
    handle = world.submit(range(1, 14), **second)
    world.run()
    return world.stories[handle].cached_tokens


def test_salts_never_share() -> None:
    assert cached({"salt": b"a"}, {"salt": b"a"}) == 12
    assert cached({"salt": b"a"}, {"salt": b"b"}) == 0
    assert cached({"salt": b"a"}, {}) == 0


def test_prefix_cache_can_be_off() -> None:
    assert cached({}, {}, prefix_cache=False) == 0


def test_generated_tokens_are_found_by_the_next_turn() -> None:
    world = World(config())
    first = world.submit(range(1, 7), max_tokens=8, ignore_eos=True)
    world.run()
    conversation = (*range(1, 7), *world.stories[first].drawn(), 5)
    second = world.submit(conversation)
    world.run()
    assert world.stories[second].cached_tokens == 12  # 13 of 14 were computed


def test_nothing_is_found_before_it_is_computed() -> None:
    world = World(config(max_num_batched_tokens=8))
    world.submit(range(1, 14), max_tokens=2)
    world.submit(range(1, 14), max_tokens=2)
    plan = world.scheduler.plan(world.now)
    assert plan is not None
    assert len(world.scheduler._state.memory.index) == 0
    world.scheduler.commit(plan, world.runner.execute(plan), world.now)
    assert len(world.scheduler._state.memory.index) == 2
    world._observe()
    world.run()
    assert world.stories[2].cached_tokens == 8


def test_the_end_of_a_text_is_evicted_before_its_beginning() -> None:
    world = World(config(num_pages=6))
    world.submit(range(1, 18), max_tokens=1)
    world.run()
    world.submit(range(50, 62), max_tokens=1)  # takes two free pages and one of the four cached
    world.run()
    again = world.submit(range(1, 18), max_tokens=1)
    world.run()
    assert world.stories[again].cached_tokens == 12


def test_two_at_once_with_the_same_prompt_keep_one_copy_in_the_index() -> None:
    world = World(config())
    for _ in range(2):
        world.submit(range(1, 14), max_tokens=1)
    world.run()
    assert world.scheduler.stats().pages.cached == 3
