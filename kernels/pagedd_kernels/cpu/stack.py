"""All layers of a decoder as one native call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from pagedd_kernels.backend import BlockWeights
from pagedd_kernels.cpu.engine import Engine
from pagedd_kernels.cpu.library import BlockStruct, StackStruct
from pagedd_kernels.cpu.views import Views
from pagedd_kernels.cpu.weights import Linear
from pagedd_kernels.inputs import PagedInputs


class Stack:
    """``residual [tokens, hidden]`` (the embeddings) → hidden states after the final norm.

    The same operations in the same order as one by one through the backend, so the same bits:
    rms_norm, then for each layer qkv, kv_write, paged_attention, output, add_rms_norm, gate_up,
    silu_mul, down, add_rms_norm. One call a step instead of nine a layer, and what lies between
    stays in the same memory. Layers have the same widths; ``scale`` is that of the scores.
    """

    def __init__(
        self,
        engine: Engine,
        views: Views,
        blocks: Sequence[BlockWeights],
        final_norm: Tensor,
        *,
        eps: float,
        scale: float,
    ) -> None:
        assert blocks
        self._engine, self._views = engine, views
        self._run = engine.library.stack
        self._kept = (tuple(blocks), final_norm)  # alive as long as their addresses are used
        self._blocks = (BlockStruct * len(blocks))(*(_describe(block) for block in blocks))
        attended = _linear(blocks[0].output).in_features
        self._attended = attended
        self._hidden = final_norm.shape[0]
        self._struct = StackStruct(
            ctypes.addressof(self._blocks),
            len(blocks),
            final_norm.data_ptr(),
            self._hidden,
            0,
            eps,
            scale,
        )
        self._address = ctypes.addressof(self._struct)

    def __call__(
        self,
        residual: Tensor,
        cache: Tensor,
        inputs: PagedInputs,
        rope: Tensor | None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """One step. ``residual`` is used up; ``cache``, ``inputs``, ``rope`` as in ``Backend``.

        ``wanted``: see ``StackingBackend.stack``.
        """
        self._views.see(cache, inputs)
        assert residual.is_contiguous()
        assert residual.dtype is cache.dtype
        assert residual.shape == (self._views.batch.tokens, self._hidden)
        assert cache.shape[1] == self._struct.count
        assert rope is None or (rope.dtype is torch.float32 and rope.is_contiguous())
        self._struct.heads = self._attended // self._views.cache.head_dim
        rows = residual.shape[0] if wanted is None else wanted.shape[0]
        assert wanted is None or (wanted.dtype is torch.int64 and wanted.is_contiguous())
        out = torch.empty((rows, self._hidden), dtype=residual.dtype)
        self._run(
            self._engine.handle,
            self._address,
            self._views.cache_address,
            self._views.batch_address,
            None if rope is None else rope.data_ptr(),
            0 if rope is None else rope.shape[1],
            None if wanted is None else wanted.data_ptr(),
            -1 if wanted is None else rows,
            residual.data_ptr(),
            out.data_ptr(),
        )
        return out


def _linear(layer: object) -> Linear:
    assert isinstance(layer, Linear)
    assert layer.out_dtype is layer.dtype
    return layer


def _describe(block: BlockWeights) -> BlockStruct:
    norms = (block.input_norm, block.post_norm, block.q_norm, block.k_norm)
    return BlockStruct(
        *(_linear(layer).address for layer in (block.qkv, block.output, block.gate_up, block.down)),
        *(None if norm is None else norm.data_ptr() for norm in norms),
        block.window,
        int(block.rope),
    )
