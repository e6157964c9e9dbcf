"""Memory and batches for ``bench``: decode attention over a cache of random keys and values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pagedd_kernels.cpu.backend import CpuBackend
from pagedd_kernels.cpu.library import load_library
from pagedd_kernels.cpu.weights import HUGE_PAGE
from pagedd_kernels.inputs import PagedInputs

DTYPE = torch.bfloat16


class Shape(NamedTuple):
    """Attention of one model: query heads, key heads, their size."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def numbers_per_token(self) -> int:
        """Of keys and values in one layer."""
        return 2 * self.kv_heads * self.head_dim


class Case:
    """One decode row for each of ``sequences`` over ``memory``, all of which is their cache.

    ``memory`` of DTYPE holds as many layers as it has room for, in the order that an engine gives
    them: layer by layer.
    """

    def __init__(
        self,
        shape: Shape,
        memory: Tensor,
        sequences: int,
        tokens: int,
        page_size: int,
        *,
        scattered: bool,
    ) -> None:
        assert tokens % page_size == 0
        generator = torch.Generator().manual_seed(0)
        each = tokens // page_size
        count = sequences * each
        block = (2, shape.kv_heads, page_size, shape.head_dim)
        self.cache = memory.view(-1, count, *block).transpose(0, 1)
        self.q = torch.randn(sequences, shape.heads, shape.head_dim, generator=generator).to(DTYPE)
        pages = torch.randperm(count, generator=generator) if scattered else torch.arange(count)
        self.scale = shape.head_dim**-0.5
        ends = torch.full((sequences,), tokens, dtype=torch.int32)
        self.inputs = PagedInputs(
            positions=ends.long() - 1,
            slots=torch.full((sequences,), -1, dtype=torch.int64),
            cu_seqlens=torch.arange(sequences + 1, dtype=torch.int32),
            seq_lens=ends,
            page_table=pages.to(torch.int32).view(sequences, each),
            num_decode=sequences,
            max_query_len=1,
            max_seq_len=tokens,
        )

    def attend(self, backend: CpuBackend) -> None:
        """All layers once."""
        for layer in range(self.cache.shape[1]):
            backend.paged_attention(self.q, self.cache, layer, self.inputs, scale=self.scale)


def filled_memory(numbers: int) -> Tensor:
    """So many random numbers of DTYPE."""
    memory = fresh_memory(numbers * DTYPE.itemsize).view(DTYPE)
    block = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0)).to(DTYPE)
    for part in torch.split(memory, block.numel()):
        part.copy_(block[: part.numel()])
    return memory


def fresh_memory(size: int) -> Tensor:
    """Bytes that were never used, as an engine's cache: in huge pages where the system has them.

    They begin at a page's border, as mapped memory does: tiles of 4 KB would else lie in two pages.
    """
    memory = torch.empty(size + HUGE_PAGE, dtype=torch.uint8)
    library = load_library()
    assert not isinstance(library, str)
    library.huge_pages(memory.data_ptr(), memory.nbytes)
    begin = -memory.data_ptr() % HUGE_PAGE
    return memory[begin : begin + size]
