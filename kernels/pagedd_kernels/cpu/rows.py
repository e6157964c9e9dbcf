"""The rows of a matrix by their numbers, read where they lie."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from pagedd_kernels.cpu.engine import Engine
from pagedd_kernels.cpu.library import DTYPE_CODES, RowsStruct
from pagedd_kernels.cpu.weights import Arena
from pagedd_kernels.quantized import BlockQuantized


class Rows:
    """``ids [n] int64 → [n, columns]`` of the weight's dtype, for a matrix ``[rows, columns]``.

    Quantised rows are kept so that each lies in one piece; a dense matrix stays where it is.
    IndexError: an id is no row.
    """

    def __init__(self, engine: Engine, arena: Arena, weight: Tensor | BlockQuantized) -> None:
        self._engine = engine
        self.dtype = weight.dtype
        count, self._columns = weight.shape
        if isinstance(weight, BlockQuantized):
            form = (weight.bits, DTYPE_CODES[weight.scales.dtype])
            stride = engine.library.row_bytes(*form, self._columns)
            data = _packed(engine, arena.take(count * stride), weight, form)
        else:
            form = (0, 0)
            data = weight if weight.stride(1) == 1 else weight.contiguous()
            stride = data.stride(0) * data.element_size()
        self.tensors: tuple[Tensor, ...] = (data,)
        self._struct = RowsStruct(
            DTYPE_CODES[self.dtype], count, self._columns, data.data_ptr(), stride, *form
        )

    def __call__(self, ids: Tensor) -> Tensor:
        assert ids.dtype is torch.int64
        ids = ids.contiguous()
        out = torch.empty((ids.shape[0], self._columns), dtype=self.dtype)
        library, engine = self._engine.library, self._engine.handle
        address = ctypes.addressof(self._struct)
        if not library.take_rows(engine, address, ids.data_ptr(), ids.shape[0], out.data_ptr()):
            raise IndexError(f"an id is not one of {self._struct.n} rows")
        return out


def _packed(engine: Engine, to: Tensor, weight: BlockQuantized, form: tuple[int, int]) -> Tensor:
    parts = [part.contiguous() for part in (weight.codes, weight.scales, weight.offsets)]
    addresses = (part.data_ptr() for part in parts)
    engine.library.pack_rows(engine.handle, *form, *addresses, *weight.shape, to.data_ptr())
    return to
