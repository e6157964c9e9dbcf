"""HostTier: what of the evicted pages goes to host memory, and what is copied for that."""

from __future__ import annotations

from pagedd.core.plan import Copy
from pagedd.core.tier import HostTier


def spilled(tier: HostTier, **pages: int) -> None:
    """A cached host page for each key, in a plan of its own."""
    for key, page in pages.items():
        tier.evict(page, key.encode())
    tier.take_copies()
    tier.settle()


def test_evicted_content_is_copied_and_found_at_once() -> None:
    tier = HostTier(4)
    tier.evict(7, b"a")
    tier.evict(3, b"b")
    assert tier.pool.counts == (4, 2, 0, 2)
    first, second = tier.pool.find(b"a"), tier.pool.find(b"b")
    assert first is not None
    assert second is not None
    assert tier.take_copies() == (Copy(7, first), Copy(3, second))
    assert tier.take_copies() == ()
    assert tier.settle() == (2, 2, 0)
    assert tier.settle() is None


def test_what_lies_there_already_is_only_touched() -> None:
    tier = HostTier(2)
    spilled(tier, a=7, b=3)
    tier.evict(5, b"a")
    assert tier.take_copies() == ()
    assert tier.settle() == (1, 1, 0)
    tier.evict(6, b"c")  # the least recently used one goes, which is b now
    assert tier.pool.entries().keys() == {b"a", b"c"}
    assert tier.settle() == (1, 1, 1)


def test_swapped_sequences_lose_nothing() -> None:
    tier = HostTier(2)
    kept = [tier.copy_out(page, bytes([page])) for page in (1, 2)]
    assert tier.take_copies() == (Copy(1, kept[0]), Copy(2, kept[1]))
    tier.evict(7, b"a")
    assert tier.take_copies() == ()
    assert tier.settle() == (1, 0, 0)


def test_two_contents_for_one_host_page_are_one_copy() -> None:
    tier = HostTier(1)
    tier.evict(7, b"a")
    tier.evict(3, b"b")
    assert tier.take_copies() == (Copy(3, 0),)
    assert tier.settle() == (2, 1, 1)
    tier = HostTier(1)
    tier.evict(7, b"a")
    assert tier.copy_out(3, None) == 0
    tier.evict(5, b"c")  # a swapped sequence has it now
    assert tier.take_copies() == (Copy(3, 0),)
    assert tier.settle() == (2, 0, 1)


def test_what_was_found_in_the_plan_is_not_replaced_in_it() -> None:
    tier = HostTier(1)
    tier.evict(7, b"a")
    tier.pool.retain(0)  # a hit
    tier.evict(3, b"b")
    assert tier.take_copies() == (Copy(7, 0),)
    assert tier.settle() == (2, 1, 0)


def test_what_is_computed_again_rather_than_copied_is_not_copied_later_either() -> None:
    tier = HostTier(4)
    tier.drop(7)
    tier.evict(7, b"a")
    assert tier.settle() == (1, 0, 0)
    tier.renew(7)
    tier.evict(7, b"b")
    assert tier.settle() == (1, 1, 0)


def test_whoever_finds_a_dropped_page_makes_it_worth_a_copy() -> None:
    for first in (True, False):
        tier = HostTier(4)
        tier.drop(7)
        tier.find(7, first=first)
        tier.evict(7, b"a")
        assert tier.settle() == (1, 1, 0)


def test_what_others_share_is_worth_a_copy_even_when_it_is_dropped() -> None:
    for first in (True, False):
        tier = HostTier(4)
        tier.find(7, first=first)  # the sequence that drops it may have found its own page
        tier.drop(7)
        tier.evict(7, b"a")
        assert tier.settle() == (1, int(first), 0)
    tier = HostTier(4)
    tier.find(7, first=True)
    tier.renew(7)
    tier.drop(7)
    tier.evict(7, b"a")
    assert tier.settle() == (1, 0, 0)


def test_without_host_memory_nothing_is_saved() -> None:
    tier = HostTier(0)
    tier.evict(7, b"a")
    assert tier.take_copies() == ()
    assert tier.settle() == (1, 0, 0)
