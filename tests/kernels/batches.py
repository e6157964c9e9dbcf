"""Small paged batches for the kernel tests, with NaN wherever nothing may be read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pagedd_kernels.inputs import PagedInputs
from pagedd_kernels.quantized import BLOCK, BlockQuantized

LAYERS = 2
LAYER = 1
SCALES = ((float("nan"), float("nan")), (0.5, 1.75))  # [LAYERS, 2]: keys, values
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@dataclass(frozen=True)
class Shape:
    """One model's attention geometry over one pool."""

    group: int = 2
    kv_heads: int = 2
    head_dim: int = 16
    page_size: int = 4
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    fp8: torch.dtype | None = None  # of the cache, if not that of the activations

    @property
    def heads(self) -> int:
        return self.group * self.kv_heads

    def on(self, device: str, dtype: torch.dtype) -> Shape:
        """The same geometry elsewhere."""
        return replace(self, device=device, dtype=dtype)


@dataclass(frozen=True)
class Batch:
    """Packed rows with a filled cache. ``sequences`` of (rows of this step, total length)."""

    shape: Shape
    sequences: tuple[tuple[int, int], ...]
    inputs: PagedInputs
    qkv: Tensor  # [tokens, (heads + 2·kv_heads)·head_dim]
    cache: Tensor  # [num_pages, LAYERS, 2, kv_heads, page_size, head_dim]

    def clone(self) -> Batch:
        """The same batch with tensors of its own, for a second backend to write into."""
        return replace(self, qkv=self.qkv.clone(), cache=self.cache.clone())

    def queries(self) -> Tensor:
        """[tokens, heads, head_dim], strided as a view of ``qkv``."""
        rows = self.qkv.view(self.qkv.shape[0], -1, self.shape.head_dim)
        return rows[:, : self.shape.heads]

    def history(self, sequence: int, kind: int) -> Tensor:
        """Keys (kind 0) or values (1) of a sequence, contiguous: [length, kv_heads, head_dim]."""
        length = self.sequences[sequence][1]
        pages = self.inputs.page_table[sequence, : -(-length // self.shape.page_size)].long()
        return self.cache[pages, LAYER, kind].transpose(1, 2).flatten(0, 1)[:length]


def make_batch(shape: Shape, sequences: tuple[tuple[int, int], ...], seed: int = 0) -> Batch:
    """A batch whose cache holds every token of every sequence in LAYER, in shuffled pages.

    Unused slots, unused pages and the other layers are NaN; unused table entries name a NaN page.
    A cache in 8 bits has scales of its own for every layer, keys and values.
    """
    generator = torch.Generator().manual_seed(seed)
    page_size, head_dim = shape.page_size, shape.head_dim
    needed = [-(-length // page_size) for _, length in sequences]
    num_pages = sum(needed) + 2
    order = torch.randperm(num_pages, generator=generator)
    table = torch.full((len(sequences), max(needed) + 1), int(order[-1]), dtype=torch.int32)
    cache = torch.full(
        (num_pages, LAYERS, 2, shape.kv_heads, page_size, head_dim), float("nan")
    ).to(shape.fp8 or shape.dtype)
    positions: list[int] = []
    slots: list[int] = []
    taken = 0
    for i, (rows, length) in enumerate(sequences):
        table[i, : needed[i]] = order[taken : taken + needed[i]]
        taken += needed[i]
        for position in range(length):
            page, offset = int(table[i, position // page_size]), position % page_size
            kv = torch.randn(2, shape.kv_heads, head_dim, generator=generator)
            cache[page, LAYER, :, :, offset] = kv.to(cache.dtype)
            if position >= length - rows:
                positions.append(position)
                slots.append(page * page_size + offset)
    width = (shape.heads + 2 * shape.kv_heads) * head_dim
    qkv = torch.randn(len(positions), width, generator=generator).to(shape.dtype)
    rows_of = [rows for rows, _ in sequences]
    starts = torch.tensor([0, *rows_of]).cumsum(0)
    num_decode = next((i for i, rows in enumerate(rows_of) if rows != 1), len(rows_of))
    inputs = PagedInputs(
        positions=torch.tensor(positions, device=shape.device),
        slots=torch.tensor(slots, device=shape.device),
        cu_seqlens=starts.to(torch.int32).to(shape.device),
        seq_lens=torch.tensor([n for _, n in sequences], dtype=torch.int32, device=shape.device),
        page_table=table.to(shape.device),
        num_decode=num_decode,
        max_query_len=max(rows_of),
        max_seq_len=max(length for _, length in sequences),
        kv_scales=None if shape.fp8 is None else torch.tensor(SCALES, device=shape.device),
    )
    return Batch(shape, sequences, inputs, qkv.to(shape.device), cache.to(shape.device))


def make_rope(batch: Batch, rope_dim: int) -> Tensor:
    """[tokens, rope_dim] float32: cosines, then sines, of the rows' positions."""
    frequency = 10000.0 ** (-torch.arange(0, rope_dim, 2) / rope_dim)
    angle = batch.inputs.positions.cpu()[:, None].float() * frequency
    return torch.cat((angle.cos(), angle.sin()), dim=-1).to(batch.shape.device)


def quantized(
    rows: int,
    columns: int,
    bits: int,
    dtype: torch.dtype,
    seed: int = 0,
    scale_dtype: torch.dtype = torch.float16,
) -> BlockQuantized:
    """A weight matrix of random codes, scales and offsets."""
    made = torch.Generator().manual_seed(seed)
    shape = (rows, columns // BLOCK)
    return BlockQuantized(
        torch.randint(1 << bits, (rows, columns), dtype=torch.uint8, generator=made),
        # at most 16 significant bits, so that products with codes are exact in float32
        (torch.randint(1 << 16, shape, generator=made) * 2.0**-22).to(scale_dtype),
        (torch.randn(shape, generator=made) * 0.1).to(scale_dtype),
        bits,
        dtype,
    )
