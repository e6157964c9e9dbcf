"""HostPool: references, keys and the free list."""

from __future__ import annotations

import pytest

from pagedd.core.host import HostPool


def test_a_shared_content_stays_until_its_last_holder_lets_go() -> None:
    pool = HostPool(3)
    page = pool.allocate(b"key")
    assert pool.find(b"key") == page
    pool.retain(page)
    assert pool.counts == (3, 2, 1, 0)
    pool.release(page)
    assert pool.find(b"key") == page
    pool.release(page)
    assert pool.find(b"key") is None
    assert pool.counts == (3, 3, 0, 0)


def test_a_forgotten_page_keeps_its_holder() -> None:
    pool = HostPool(2)
    page = pool.allocate(b"key")
    pool.forget(page)
    assert pool.find(b"key") is None
    other = pool.allocate(b"key")
    assert other != page
    pool.release(page)
    assert pool.find(b"key") == other


def test_misuse_is_noticed() -> None:
    pool = HostPool(2)
    pool.allocate(b"key")
    with pytest.raises(AssertionError, match="two host pages"):
        pool.allocate(b"key")
    pool = HostPool(2)
    page = pool.allocate(None)
    pool.release(page)
    with pytest.raises(AssertionError, match="twice"):
        pool.release(page)
    with pytest.raises(AssertionError, match="free"):
        pool.retain(page)
