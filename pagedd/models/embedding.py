"""The rows of the embedding matrix, in the form in which the matrix is kept."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pagedd_kernels.quantized import BlockQuantized


class Embedding:
    """``token_ids [tokens] → [tokens, hidden]`` in the activations' dtype.

    A dense matrix is looked up as it is. Of a quantised one the rows are dequantised when they are
    asked for, and codes of 4 bits lie two in a byte.
    """

    def __init__(self, weight: Tensor | BlockQuantized) -> None:
        self.dtype = weight.dtype
        self._rows: Callable[[Tensor], Tensor]
        self.tensors: tuple[Tensor, ...]  # all that is kept, for sums of memory
        if isinstance(weight, Tensor):
            self._rows = lambda ids: weight.index_select(0, ids)
            self.tensors = (weight,)
            return
        codes = weight.codes
        self._rows = weight.rows
        if weight.bits == 4:
            half = codes.shape[1] // 2
            codes = codes[:, :half] | codes[:, half:] << 4
            self._rows = self._unpacked
        self.tensors = (codes, weight.scales, weight.offsets)

    def __call__(self, token_ids: Tensor) -> Tensor:
        return self._rows(token_ids)

    def _unpacked(self, ids: Tensor) -> Tensor:
        codes, scales, offsets = (part.index_select(0, ids) for part in self.tensors)
        codes = torch.cat((codes & 15, codes >> 4), dim=1)
        return BlockQuantized(codes, scales, offsets, 4, self.dtype).dequantize()
