"""Memory for packed weights, and the linear layer that reads them."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from pagedd_kernels.cpu.engine import Engine
from pagedd_kernels.cpu.library import DTYPE_CODES, Library, LinearStruct
from pagedd_kernels.quantized import BlockQuantized

SLAB_BYTES = 64 << 20
HUGE_PAGE = 2 << 20
LINE = 64


class Arena:
    """Weights one after another in slabs of huge pages (fewer address translations in a step).

    A slab lives as long as some weight in it.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._slab = torch.empty(0, dtype=torch.uint8)

    def take(self, size: int) -> Tensor:
        """``size`` bytes, uint8, aligned to a cache line."""
        size = -(-size // LINE) * LINE
        if size > self._slab.shape[0]:
            self._slab = self._new_slab(max(size, SLAB_BYTES))
        taken, self._slab = self._slab[:size], self._slab[size:]
        return taken

    def _new_slab(self, size: int) -> Tensor:
        """``size`` bytes from a huge page's border on; not in memory before they are written."""
        memory = torch.empty(size + HUGE_PAGE, dtype=torch.uint8)
        self._library.huge_pages(memory.data_ptr(), memory.shape[0])
        begin = -memory.data_ptr() % HUGE_PAGE
        return memory[begin : begin + size]


class Linear:
    """``x [rows, in] → x · weightᵀ + bias [rows, out]``, sums in float32, rounded once.

    A row of the result does not depend on the other rows, bit for bit. Quantised weights stay as
    they are in memory, and give what their dense form would.
    """

    def __init__(
        self,
        engine: Engine,
        arena: Arena,
        weight: Tensor | BlockQuantized,
        bias: Tensor | None,
        out_dtype: torch.dtype | None = None,
    ) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        self.out_dtype = out_dtype or weight.dtype
        assert self.out_dtype in (self.dtype, torch.float32)
        self._bias = _padded(bias, self.out_features, engine.library.panel())
        form = (0, 0)
        if isinstance(weight, BlockQuantized):
            form = (weight.bits, DTYPE_CODES[weight.scales.dtype])
            self._panels = _packed_blocks(engine, arena, weight)
        else:
            self._panels = _packed(engine, arena, weight)
        self._engine = engine  # keeps the pool alive
        self._struct = LinearStruct(
            DTYPE_CODES[self.dtype],
            DTYPE_CODES[self.out_dtype],
            self.out_features,
            self.in_features,
            self._panels.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            *form,
        )
        self._handle = engine.handle
        self.address = ctypes.addressof(self._struct)  # of the native description
        self._run = engine.library.linear
        self._greedy = engine.library.greedy

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the layer keeps: the packed weight, and the bias."""
        return (self._panels,) if self._bias is None else (self._panels, self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        assert x.dtype is self.dtype
        assert x.shape[1] == self.in_features
        if x.stride(1) != 1:
            x = x.contiguous()
        rows = x.shape[0]
        out = torch.empty((rows, self.out_features), dtype=self.out_dtype)
        self._run(self._handle, self.address, x.data_ptr(), x.stride(0), out.data_ptr(), rows)
        return out

    def greedy(self, x: Tensor) -> Tensor:
        """See ``GreedyLayer.greedy``: what ``CpuBackend.argmax`` gives of the float32 result."""
        assert x.dtype is self.dtype
        assert x.shape[1] == self.in_features
        if x.stride(1) != 1:
            x = x.contiguous()
        out = torch.empty(x.shape[0], dtype=torch.int64)
        address, stride = x.data_ptr(), x.stride(0)
        self._greedy(self._handle, self.address, address, stride, x.shape[0], out.data_ptr())
        return out


def _padded(bias: Tensor | None, size: int, multiple: int) -> Tensor | None:
    """``bias [size]`` in float32 with zeros behind, up to a multiple."""
    if bias is None:
        return None
    padded = torch.zeros(-(-size // multiple) * multiple)
    padded[:size] = bias
    return padded


def _packed(engine: Engine, arena: Arena, weight: Tensor) -> Tensor:
    weight = weight if weight.stride(1) == 1 else weight.contiguous()
    code, library = DTYPE_CODES[weight.dtype], engine.library
    panels = arena.take(library.packed_bytes(code, *weight.shape))
    library.pack(
        engine.handle,
        code,
        weight.data_ptr(),
        weight.stride(0),
        *weight.shape,
        panels.data_ptr(),
    )
    return panels


def _packed_blocks(engine: Engine, arena: Arena, weight: BlockQuantized) -> Tensor:
    parts = [part.contiguous() for part in (weight.codes, weight.scales, weight.offsets)]
    form = (weight.bits, DTYPE_CODES[weight.scales.dtype])
    library = engine.library
    panels = arena.take(library.packed_block_bytes(*form, *weight.shape))
    library.pack_blocks(
        engine.handle,
        DTYPE_CODES[weight.dtype],
        *form,
        *(part.data_ptr() for part in parts),
        *weight.shape,
        panels.data_ptr(),
    )
    return panels
