"""HostPool: references, keys, states, and who is evicted."""

from __future__ import annotations

import pytest

from pagedd.core.host import HostPool


def cached(pool: HostPool, *keys: bytes) -> list[int]:
    """A cached page for each key, in this order."""
    pages = [pool.allocate(key) for key in keys]
    for page in pages:
        pool.release(page)
    return pages


def test_a_shared_content_is_cached_when_its_last_holder_lets_go() -> None:
    pool = HostPool(3)
    page = pool.allocate(b"key")
    assert pool.find(b"key") == page
    pool.retain(page)
    assert pool.counts == (3, 2, 1, 0)
    pool.release(page)
    assert pool.counts == (3, 2, 1, 0)
    pool.release(page)
    assert pool.find(b"key") == page
    assert pool.counts == (3, 2, 0, 1)
    assert pool.available == 3
    pool.retain(page)
    assert pool.counts == (3, 2, 1, 0)
    assert pool.available == 2


def test_a_page_without_a_key_is_free_again() -> None:
    pool = HostPool(1)
    page = pool.allocate(None)
    assert pool.counts == (1, 0, 1, 0)
    pool.release(page)
    assert pool.counts == (1, 1, 0, 0)


def test_the_least_recently_used_is_evicted_and_free_pages_go_first() -> None:
    pool = HostPool(4)
    first, second, third = cached(pool, b"1", b"2", b"3")
    pool.retain(first)  # used again
    pool.release(first)
    pool.touch(second)
    pool.touch(third)
    pool.touch(second)
    assert pool.allocate(None) not in (first, second, third)
    assert pool.evictions == 0
    assert [pool.allocate(None) for _ in range(3)] == [first, third, second]
    assert pool.evictions == 3
    assert pool.entries() == {}
    assert pool.available == 0


def test_a_page_in_use_is_never_evicted() -> None:
    pool = HostPool(2)
    used, rests = cached(pool, b"used", b"rests")
    pool.retain(used)
    pool.touch(used)
    assert pool.allocate(b"new") == rests
    assert pool.available == 0
    assert pool.entries() == {b"used": used, b"new": rests}


def test_a_forgotten_page_keeps_its_holder() -> None:
    pool = HostPool(2)
    page = pool.allocate(b"key")
    pool.forget(page)
    assert pool.find(b"key") is None
    other = pool.allocate(b"key")
    assert other != page
    pool.release(page)
    assert pool.find(b"key") == other
    assert pool.counts == (2, 1, 1, 0)


def test_a_cached_page_that_is_forgotten_is_free() -> None:
    pool = HostPool(2)
    (page,) = cached(pool, b"key")
    pool.forget(page)
    assert pool.counts == (2, 2, 0, 0)
    pool.forget(page)
    assert pool.counts == (2, 2, 0, 0)


def test_misuse_is_noticed() -> None:
    pool = HostPool(2)
    pool.allocate(b"key")
    with pytest.raises(AssertionError, match="two host pages"):
        pool.allocate(b"key")
    pool = HostPool(2)
    page = pool.allocate(None)
    pool.release(page)
    with pytest.raises(AssertionError, match="free"):
        pool.retain(page)
    with pytest.raises(AssertionError, match="twice"):
        pool.release(page)
