"""From the bytes of a quantised GGUF tensor to codes, scales and offsets, without a loss.

The block formats are those of github.com/ggml-org/ggml (ggml-common.h, ggml-quants.c). All that is
read here is of the form ``scale · code + offset`` over 32 neighbours, and float32 holds the product
exactly, so the values are those of a reader that computes them one after another in float32. Types
of another form (Q6_K: 16 neighbours) are dequantised by :mod:`.gguf_blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from torch import Tensor

from pagedd.models.gguf_blocks import num_bytes
from pagedd.models.gguf_meta import TensorInfo
from pagedd_kernels.quantized import BLOCK, BlockQuantized

_Type = gguf.GGMLQuantizationType
Parts = tuple[Tensor, Tensor, Tensor]  # codes [n, values], scales and offsets [n, values / BLOCK]


class _Format(NamedTuple):
    """A block type: how many bits its codes need, 4 or 8, and how its bytes are taken apart."""

    bits: int
    split: Callable[[Tensor], Parts]  # of uint8 [blocks, bytes]


def read_quantized(
    data: np.ndarray[Any, Any], info: TensorInfo, dtype: torch.dtype
) -> BlockQuantized | None:
    """The matrix that stands for its dequantised values in ``dtype``; None if it has no such form.

    That is: another type, no matrix, or scales that are not finite. ``data``: the whole file as
    uint8. The info must have passed ``check_tensor``.
    """
    kind = _FORMATS.get(info.type_id)
    if kind is None or len(info.shape) != 2:
        return None
    rows, columns = info.shape
    # A copy: the map is read-only, and a file cut short later must not kill the engine.
    raw = np.array(data[info.offset : info.offset + num_bytes(info)])
    values, size = gguf.GGML_QUANT_SIZES[_Type(info.type_id)]
    blocks = torch.from_numpy(raw).view(math.prod(info.shape) // values, size)
    codes, scales, offsets = kind.split(blocks)
    if not (scales.isfinite().all() and offsets.isfinite().all()):
        return None
    groups = (rows, columns // BLOCK)
    return BlockQuantized(
        codes.view(rows, columns), scales.view(groups), offsets.view(groups), kind.bits, dtype
    )


def _q4_0(blocks: Tensor) -> Parts:
    scale = _half(blocks, 0)
    return _nibbles(blocks[:, 2:]), *_shifted(scale, 8)


def _q4_1(blocks: Tensor) -> Parts:
    return _nibbles(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Parts:
    codes = _nibbles(blocks[:, 6:])
    _add_fifth_bits(codes, blocks[:, 2:6])
    return codes, *_shifted(_half(blocks, 0), 16)


def _q5_1(blocks: Tensor) -> Parts:
    codes = _nibbles(blocks[:, 8:])
    _add_fifth_bits(codes, blocks[:, 4:8])
    return codes, _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Parts:
    # a signed byte plus 128 is the same byte with the other sign bit
    return blocks[:, 2:] ^ 128, *_shifted(_half(blocks, 0), 128)


def _q4_k(blocks: Tensor) -> Parts:
    return _k_codes(blocks[:, 16:]), *_k_scales(blocks)


def _q5_k(blocks: Tensor) -> Parts:
    codes = _k_codes(blocks[:, 48:]).view(-1, 8, BLOCK)
    # bit g of byte i is the fifth bit of value i in group g
    for group in range(8):
        codes[:, group] |= (blocks[:, 16:48] >> group & 1) << 4
    return codes.view(-1, 8 * BLOCK), *_k_scales(blocks)


_FORMATS = {
    int(_Type.Q4_0): _Format(4, _q4_0),
    int(_Type.Q4_1): _Format(4, _q4_1),
    int(_Type.Q5_0): _Format(8, _q5_0),
    int(_Type.Q5_1): _Format(8, _q5_1),
    int(_Type.Q8_0): _Format(8, _q8_0),
    int(_Type.Q4_K): _Format(4, _q4_k),
    int(_Type.Q5_K): _Format(8, _q5_k),
}


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte ``at`` of each block, ``[n, 1]``."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16)


def _shifted(scale: Tensor, zero: int) -> tuple[Tensor, Tensor]:
    """Scale and offset of ``scale · (code - zero)``; in float32 where float16 would overflow.

    ``zero`` is a power of two: the product is exact.
    """
    offset = scale * -zero
    if offset.isfinite().all():
        return scale, offset
    return scale.float(), scale.float() * -zero


def _nibbles(quants: Tensor) -> Tensor:
    """``[n, 16]`` bytes → ``[n, 32]`` codes: all low halves, then all high ones."""
    codes = torch.empty((quants.shape[0], BLOCK), dtype=torch.uint8)
    torch.bitwise_and(quants, 15, out=codes[:, :16])
    torch.bitwise_right_shift(quants, 4, out=codes[:, 16:])
    return codes


def _add_fifth_bits(codes: Tensor, high: Tensor) -> None:
    """Bit i of the little-endian ``high [n, 4]`` is the fifth of code i, ``codes [n, 32]``."""
    bits = high.contiguous().unsqueeze(2) >> torch.arange(8, dtype=torch.uint8) & 1
    codes |= bits.flatten(1) << 4


def _k_codes(quants: Tensor) -> Tensor:
    """``[n, 128]`` bytes → ``[n, 256]`` codes: of each 32 bytes the low halves, then the high."""
    pairs = quants.reshape(-1, 4, BLOCK)
    codes = torch.empty((quants.shape[0], 4, 2, BLOCK), dtype=torch.uint8)
    torch.bitwise_and(pairs, 15, out=codes[:, :, 0])
    torch.bitwise_right_shift(pairs, 4, out=codes[:, :, 1])
    return codes.view(-1, 8 * BLOCK)


def _k_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and offsets ``[n, 8]`` float32 of a super-block: a float16 times 6 bits each.

    Bytes 4 to 15 hold a, b, c of four bytes each: scales 0 to 3 are the low six bits of a, minima
    0 to 3 those of b; of the others c has the low halves (scales) and high halves (minima), and the
    top two bits of a and b the rest.
    """
    scale, minimum = _half(blocks, 0).float(), _half(blocks, 2).float()
    a, b, c = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    steps = torch.cat((a & 63, c & 15 | a >> 2 & 48), dim=1)
    depths = torch.cat((b & 63, c >> 4 | b >> 2 & 48), dim=1)
    return scale * steps, -(minimum * depths)
