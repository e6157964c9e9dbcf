"""Page copies of the CPU kernels: every byte of the pages named and no other, at any alignment."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pagedd_kernels.reference import TorchBackend
from tests.kernels.cpu_isas import NEEDED, backend_of

REFERENCE = TorchBackend()
PAIRS = torch.tensor([[4, 1], [0, 6], [2, 0], [4, 3]])
# bytes of a page: less than a line, around the four rows that go together, around a thread's piece
SIZES = [1, 63, 64, 1000, 16383, 16384, 16385, 70000, 262143, 262144, 262145, 524288, 737280]


def pages(size: int, offset: int, seed: int) -> Tensor:
    """Seven pages of ``size`` random bytes, ``offset`` bytes after a border of a cache line."""
    generator = torch.Generator().manual_seed(seed)
    memory = torch.randint(0, 256, (7 * size + 256,), dtype=torch.uint8, generator=generator)
    begin = -memory.data_ptr() % 64 + offset
    return memory[begin : begin + 7 * size].view(7, size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("isa", NEEDED)
def test_sizes_and_alignments(isa: str, size: int) -> None:
    backend = backend_of(isa, threads=3)
    for read, written in ((0, 0), (0, 1), (17, 0), (63, 32)):
        source, target = pages(size, read, seed=1), pages(size, written, seed=2)
        expected = target.clone()
        REFERENCE.page_copy(source, expected, PAIRS)
        backend.page_copy(source, target, PAIRS)
        assert torch.equal(target, expected)


@pytest.mark.parametrize("isa", NEEDED)
def test_nothing_around_the_pages_is_written(isa: str) -> None:
    backend = backend_of(isa)
    for size in (100, 20000, 300000):
        memory = torch.zeros(3 * size, dtype=torch.uint8)
        target = memory[size : 2 * size].view(1, size)
        backend.page_copy(
            torch.full((1, size), 7, dtype=torch.uint8), target, torch.zeros(1, 2).long()
        )
        assert target.eq(7).all()
        assert not memory[:size].any()
        assert not memory[2 * size :].any()


def test_a_strided_list_of_pairs() -> None:
    backend = backend_of("native")
    source, target = pages(1000, 0, seed=1), pages(1000, 0, seed=2)
    expected = target.clone()
    REFERENCE.page_copy(source, expected, PAIRS)
    backend.page_copy(source, target, PAIRS.repeat_interleave(2, dim=1)[:, ::2])
    assert torch.equal(target, expected)
