"""PagePool: states, counts, and who is evicted."""

from __future__ import annotations

import pytest

from pagedd.core.pages import PagePool, PageState


def filled(num_pages: int) -> tuple[PagePool, list[bytes]]:
    evicted: list[bytes] = []
    return PagePool(num_pages, lambda page, key: evicted.append(key)), evicted


def test_a_page_goes_through_its_states() -> None:
    pool, _ = filled(2)
    page = pool.allocate()
    assert page is not None
    assert pool.state(page) is PageState.OWNED
    pool.retain(page)
    assert pool.state(page) is PageState.SHARED
    assert pool.counts == (2, 1, 0, 0, 1)
    pool.label(page, b"key")
    pool.release(page)
    pool.release(page)
    assert pool.state(page) is PageState.CACHED
    assert pool.counts == (2, 1, 1, 0, 0)
    pool.retain(page)
    assert pool.state(page) is PageState.OWNED
    assert pool.forget(page) == b"key"
    assert pool.forget(page) is None
    pool.release(page)
    assert pool.state(page) is PageState.FREE
    assert pool.counts == (2, 2, 0, 0, 0)


def test_full_is_an_answer() -> None:
    pool, _ = filled(2)
    assert {pool.allocate(), pool.allocate()} == {0, 1}
    assert pool.available == 0
    assert pool.allocate() is None


def test_the_least_recently_used_is_evicted_and_its_key_forgotten_at_once() -> None:
    pool, evicted = filled(3)
    pages = [pool.allocate() for _ in range(3)]
    for page in pages:
        assert page is not None
        pool.label(page, bytes([page]))
        pool.release(page)
    pool.retain(0)  # used again: now the last to go
    pool.release(0)
    assert [pool.allocate() for _ in range(3)] == [1, 2, 0]
    assert evicted == [b"\x01", b"\x02", b"\x00"]
    assert pool.keys == [None, None, None]


def test_free_pages_go_before_cached_ones() -> None:
    pool, evicted = filled(2)
    page = pool.allocate()
    assert page is not None
    pool.label(page, b"key")
    pool.release(page)
    assert pool.allocate() != page
    assert not evicted
    assert pool.allocate() == page


def test_a_cached_page_that_is_forgotten_is_free() -> None:
    pool, _ = filled(1)
    assert pool.allocate() == 0
    pool.label(0, b"key")
    pool.release(0)
    assert pool.forget(0) == b"key"
    assert pool.counts.free == 1


def test_a_pinned_page_is_not_given_away_before_the_plan_is_complete() -> None:
    pool, _ = filled(1)
    assert pool.allocate() == 0
    pool.pin(0)
    pool.release(0)
    assert pool.available == 0
    assert pool.allocate() is None
    pool.unpin()
    assert pool.counts.free == 1
    assert pool.allocate() == 0


def test_misuse_is_noticed() -> None:
    pool, _ = filled(2)
    assert pool.allocate() == 0
    pool.release(0)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(0)
    pool, _ = filled(1)
    with pytest.raises(AssertionError, match="free"):
        pool.retain(0)
    with pytest.raises(AssertionError, match="no owner"):
        pool.label(0, b"key")
    assert pool.allocate() == 0
    pool.label(0, b"key")
    with pytest.raises(AssertionError, match="key already"):
        pool.label(0, b"other")
