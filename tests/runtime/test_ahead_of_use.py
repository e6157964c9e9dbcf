"""Memory of the cache that is in place before it is needed."""

from __future__ import annotations

import ctypes
import mmap
import sys

import pytest
import torch

from pagedd.runtime.host_memory import AheadOfUse, map_zeros

PAGE = 1 << 20
LEAST = 8 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="madvise(2) is Linux's")


def ahead(pages: int = 64) -> AheadOfUse:
    return AheadOfUse([map_zeros((pages, PAGE), torch.uint8)], LEAST)


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


def test_every_part_of_the_pages_used_is_in_place_wherever_it_begins() -> None:
    pages, layers, part = 40, 5, 600_000  # no multiple of a page of memory
    cache = map_zeros((layers, pages, part), torch.uint8).transpose(0, 1)
    memory = AheadOfUse(cache.unbind(1), layers * 4 * part)
    assert fill(memory) == pytest.approx(layers * 4 * part, abs=layers * (2 << 20))
    memory.use(9)
    fill(memory)
    for layer in range(layers):
        assert resident_bytes(cache[:10, layer]) >= 10 * part
    memory.use(pages - 1)
    assert fill(memory) == cache.nbytes
    assert not cache.any()


def resident_bytes(part: torch.Tensor) -> int:
    """Of the memory pages that ``part`` lies in, as mincore(2) tells."""
    size = mmap.PAGESIZE
    begin = part.data_ptr() // size * size
    length = part.data_ptr() + part.nbytes - begin
    pages = (ctypes.c_ubyte * -(-length // size))()
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    assert mincore(begin, length, pages) == 0
    return sum(page & 1 for page in pages) * size
