"""Weights made narrow on request: blocks of 32 in 8 bits (as Q8_0) or 4 bits (as Q4_1)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pagedd_kernels.quantized import BLOCK, BlockQuantized

# Blocks that are worked on at a time: what lies in between fits a core's second-level cache.
_CHUNK = 2048
# Where the search of 4 bits starts: the least and the greatest code at these shares of the block's
# range, since it pays to cut off the outermost values; then so many rounds of least squares.
_SHARES = (1.0, 0.92, 0.84)
_ROUNDS = 2
_HALF_ONE_UP = 1  # the next float16 of a positive one, as an integer

Parts = tuple[Tensor, Tensor, Tensor]  # codes [n, BLOCK], scales and offsets [n, 1] float16


def quantizable(weight: Tensor) -> bool:
    """Whether it is a matrix of whole blocks whose blocks have float16 scales."""
    if weight.ndim != 2 or weight.shape[1] % BLOCK:
        return False
    limit = torch.finfo(torch.float16).max
    # one pass without a copy of the absolute values; false for NaN too
    low, high = torch.aminmax(weight)
    return bool((low >= -limit / 2) & (high <= limit / 2))


def quantize(weight: Tensor, bits: int, dtype: torch.dtype) -> BlockQuantized:
    """``weight [out, in]`` (any float dtype, :func:`quantizable`) in 8 or 4 bits, for ``dtype``.

    8 bits: ``scale · (code - 128)``, the scale as small as the block's largest value allows.
    4 bits: ``scale · code + offset`` of about the least squared error (see :func:`_four_bits`).
    Scales and offsets are float16: 1.125 and 0.625 bytes a weight.
    """
    rows, columns = weight.shape
    blocks = weight.reshape(-1, BLOCK)
    codes = torch.empty(blocks.shape, dtype=torch.uint8)
    scales = torch.empty((blocks.shape[0], 1), dtype=torch.float16)
    offsets = torch.empty_like(scales)
    convert: Callable[[Tensor], Parts] = {4: _four_bits, 8: _eight_bits}[bits]
    for first in range(0, blocks.shape[0], _CHUNK):
        part = slice(first, first + _CHUNK)
        codes[part], scales[part], offsets[part] = convert(blocks[part].float())
    groups = (rows, columns // BLOCK)
    return BlockQuantized(
        codes.view(rows, columns), scales.view(groups), offsets.view(groups), bits, dtype
    )


def _eight_bits(blocks: Tensor) -> Parts:
    """Symmetric: codes 1 to 255 around 128. The scale is rounded up, so that no value is cut."""
    exact = blocks.abs().amax(1, keepdim=True) / 127
    scale = exact.half()
    short = scale.float() < exact
    scale = (scale.view(torch.int16) + short * _HALF_ONE_UP).to(torch.int16).view(torch.float16)
    codes = (blocks * _inverse(scale.float())).round_().add_(128)
    return codes.to(torch.uint8), scale, scale * -128


def _four_bits(blocks: Tensor) -> Parts:
    """The best of a few starts, each improved by turns: codes for a line, the line for the codes.

    The line through given codes is that of least squares; the codes for a line are the nearest.
    """
    low, high = blocks.amin(1, keepdim=True), blocks.amax(1, keepdim=True)
    mean = blocks.mean(1, keepdim=True)
    best: tuple[Tensor, ...] = ()
    for share in _SHARES:
        scale = (high - low) * (share / 15)
        offset = (high + low) / 2 - 7.5 * scale
        for _ in range(_ROUNDS):
            scale, offset = _line(_nearest(blocks, scale, offset), blocks, mean)
        found = _rounded(blocks, scale, offset)
        if best:
            better = found[0] < best[0]
            pairs = zip(found, best, strict=True)
            found = tuple(torch.where(better, new, old) for new, old in pairs)
        best = found
    _, codes, scale, offset = best
    return codes.to(torch.uint8), scale.half(), offset.half()


def _rounded(blocks: Tensor, scale: Tensor, offset: Tensor) -> tuple[Tensor, ...]:
    """Error, codes, scale and offset after the latter two have become float16."""
    scale, offset = scale.half().float(), offset.half().float()
    codes = _nearest(blocks, scale, offset)
    error = (codes * scale + offset - blocks).square_().sum(1, keepdim=True)
    return error, codes, scale, offset


def _nearest(blocks: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    return ((blocks - offset) * _inverse(scale)).round_().clamp_(0, 15)


def _line(codes: Tensor, blocks: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and intercept of least squares of ``blocks`` over ``codes``, both ``[n, 1]``."""
    middle = codes.mean(1, keepdim=True)
    apart = codes - middle
    spread = apart.square().sum(1, keepdim=True)
    slope = torch.where(spread > 0, (apart * blocks).sum(1, keepdim=True) / spread, 0.0)
    return slope, mean - slope * middle


def _inverse(scale: Tensor) -> Tensor:
    """1 / scale, and 0 of 0: a block of equal values has the code 0."""
    return torch.where(scale > 0, 1 / scale, 0.0)
