"""Memory of the cache that is in place before it is needed."""

from __future__ import annotations

import sys

import pytest
import torch

from pagedd.runtime.host_memory import AheadOfUse, map_zeros

PAGE = 1 << 20
LEAST = 8 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="madvise(2) is Linux's")


def ahead(pages: int = 64) -> AheadOfUse:
    return AheadOfUse(map_zeros((pages, PAGE), torch.uint8), PAGE, LEAST)


def fill(memory: AheadOfUse) -> int:
    """Extends until there is enough: the bytes in place."""
    rounds = 0
    while memory.extend():
        rounds += 1
        assert rounds < 1000
    return memory.bytes_in_place


def test_before_any_use_the_least_is_in_place() -> None:
    assert fill(ahead()) == LEAST


def test_it_stays_as_far_ahead_as_use_has_come() -> None:
    memory = ahead()
    memory.use(2)
    assert fill(memory) == pytest.approx(3 * PAGE + LEAST, abs=2 << 20)
    memory.use(15)
    memory.use(4)
    assert fill(memory) == 32 * PAGE


def test_it_ends_with_the_memory() -> None:
    memory = ahead(pages=10)
    memory.use(9)
    assert fill(memory) == 10 * PAGE
    assert not memory.extend()
