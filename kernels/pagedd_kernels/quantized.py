"""Weights of 4 or 8 bits in blocks, as the GGUF formats hold them.

A block of ``BLOCK`` neighbours of the inner dimension shares a scale and an offset:
``w = scale · code + offset``, rounded once to float32 and then to the dtype computed in. Q4_0,
Q4_1, Q5_0, Q5_1, Q8_0, Q4_K and Q5_K (github.com/ggml-org/ggml, docs of the GGUF types) are of
this form without loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32  # weights that share a scale


@dataclass(frozen=True)
class BlockQuantized:
    """A weight matrix ``[out, in]``; ``in`` is a multiple of ``BLOCK``.

    ``codes [out, in]`` uint8, below ``1 << bits``; ``scales`` and ``offsets [out, in / BLOCK]``,
    both float16 or both float32; ``scale · code`` is exact in float32, as it is for all formats
    named above. ``bits``: 4 or 8. ``dtype``: what the matrix stands for in
    computing: float32, bfloat16 or float16.
    """

    codes: Tensor
    scales: Tensor
    offsets: Tensor
    bits: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        rows, columns = self.codes.shape
        assert self.bits in (4, 8)
        assert self.codes.dtype is torch.uint8
        assert columns % BLOCK == 0
        assert self.scales.shape == self.offsets.shape == (rows, columns // BLOCK)
        assert self.scales.dtype is self.offsets.dtype
        assert self.scales.dtype in (torch.float16, torch.float32)

    @property
    def shape(self) -> torch.Size:
        """``(out, in)``, as of the dense matrix."""
        return self.codes.shape

    def dequantize(self) -> Tensor:
        """The dense matrix ``[out, in]`` of ``dtype``; the specification of every kernel."""
        rows, columns = self.codes.shape
        codes = self.codes.view(rows, -1, BLOCK).float()
        # the product is exact: one rounding, as of a fused multiply and add
        weights = codes.mul_(self.scales.float()[..., None]).add_(self.offsets.float()[..., None])
        return weights.to(self.dtype).view(rows, columns)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows ``ids [n]`` (integers) of the dense matrix: ``[n, in]`` of ``dtype``."""
        parts = (self.codes, self.scales, self.offsets)
        codes, scales, offsets = (part.index_select(0, ids) for part in parts)
        return BlockQuantized(codes, scales, offsets, self.bits, self.dtype).dequantize()


def concatenate(parts: Sequence[BlockQuantized]) -> BlockQuantized:
    """Matrices of one ``in`` and ``dtype`` below each other; the wider codes and scales win."""
    assert len({part.dtype for part in parts}) == 1
    same = len({part.scales.dtype for part in parts}) == 1
    scale_dtype = parts[0].scales.dtype if same else torch.float32
    return BlockQuantized(
        torch.cat([part.codes for part in parts]),
        torch.cat([part.scales.to(scale_dtype) for part in parts]),
        torch.cat([part.offsets.to(scale_dtype) for part in parts]),
        max(part.bits for part in parts),
        parts[0].dtype,
    )


def dense(weight: Tensor | BlockQuantized) -> Tensor:
    """The matrix itself, for backends that compute with dense weights only."""
    return weight.dequantize() if isinstance(weight, BlockQuantized) else weight
