"""The CPU backend: the compiled kernels behind the ``Backend`` protocol.

Every result row depends on its own inputs alone, bit for bit: not on the rows beside it, the
chunks a prompt is cut into, the pages it lies in, or the number of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from pagedd_kernels.backend import BlockWeights
from pagedd_kernels.cpu.engine import Engine
from pagedd_kernels.cpu.library import DTYPE_CODES, load_library
from pagedd_kernels.cpu.rows import Rows
from pagedd_kernels.cpu.stack import Stack
from pagedd_kernels.cpu.threads import default_threads
from pagedd_kernels.cpu.views import Views, describe_pages, runs_of_pages
from pagedd_kernels.cpu.weights import Arena, Linear
from pagedd_kernels.inputs import PagedInputs
from pagedd_kernels.quantized import BlockQuantized


class CpuBackend:
    """The operations of a decoder step in C++; float32, bfloat16 and float16.

    ``threads``: how many threads share an operation, the calling one included; None takes the
    physical cores. ``isa``: see ``library.load_library``. Raises RuntimeError where
    ``unavailable`` gives a reason.
    """

    name = "cpu"
    quantized = True

    def __init__(self, threads: int | None = None, isa: str | None = None) -> None:
        library = load_library(isa)
        if isinstance(library, str):
            raise RuntimeError(library)
        self._library = library
        self._engine = Engine(library, threads or default_threads())
        self._handle = self._engine.handle
        self._arena = Arena(library)
        self._views = Views(library)

    @staticmethod
    def unavailable(
        device: torch.device, dtype: torch.dtype, cache_dtype: torch.dtype | None = None
    ) -> str | None:
        """Builds the library if need be (seconds, once), for the reason may be the compiler's."""
        if device.type != "cpu":
            return f"serves cpu devices, not {device.type}"
        if dtype not in DTYPE_CODES:
            return f"{dtype} is no activation dtype"
        if cache_dtype not in (None, dtype):
            return f"has no cache of {cache_dtype} beside activations of {dtype}"
        library = load_library()
        return library if isinstance(library, str) else None

    @property
    def isa(self) -> str:
        """The instruction set compiled for: avx512-amx, avx512-bf16, avx512, avx2 or generic."""
        return bytes(self._library.isa()).decode()

    @property
    def threads(self) -> int:
        """The threads that share an operation."""
        return self._engine.threads

    def set_threads(self, threads: int) -> None:
        """Change the number of threads (≥ 1), between operations."""
        self._engine.set_threads(threads)

    def kv_write(
        self,
        qkv: Tensor,
        cache: Tensor,
        layer: int,
        inputs: PagedInputs,
        *,
        rope: Tensor | None,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
    ) -> Tensor:
        """See ``Backend.kv_write``."""
        views = self._views
        views.see(cache, inputs)
        tokens, width = qkv.shape
        head_dim = views.cache.head_dim
        heads = width // head_dim - 2 * views.cache.kv_heads
        stride = qkv.stride(0)
        assert qkv.dtype is cache.dtype
        assert qkv.stride(1) == 1
        assert tokens == views.batch.tokens
        assert rope is None or (rope.dtype is torch.float32 and rope.is_contiguous())
        self._library.kv_write(
            self._handle,
            views.cache_address,
            views.batch_address,
            qkv.data_ptr(),
            stride,
            heads,
            layer,
            None if rope is None else rope.data_ptr(),
            0 if rope is None else rope.shape[1],
            None if q_norm is None else q_norm.data_ptr(),
            None if k_norm is None else k_norm.data_ptr(),
            eps,
        )
        return qkv.as_strided((tokens, heads, head_dim), (stride, head_dim, 1))

    def paged_attention(
        self,
        q: Tensor,
        cache: Tensor,
        layer: int,
        inputs: PagedInputs,
        *,
        scale: float,
        window: int = 0,
    ) -> Tensor:
        """See ``Backend.paged_attention``."""
        views = self._views
        views.see(cache, inputs)
        tokens, heads, head_dim = q.shape
        assert q.dtype is cache.dtype
        assert head_dim == views.cache.head_dim
        if q.stride(2) != 1 or q.stride(1) != head_dim:
            q = q.contiguous()
        out = torch.empty((tokens, heads * head_dim), dtype=q.dtype)
        self._library.attention(
            self._handle,
            views.cache_address,
            views.batch_address,
            q.data_ptr(),
            q.stride(0),
            heads,
            layer,
            scale,
            window,
            out.data_ptr(),
        )
        return out

    def page_copy(self, source: Tensor, target: Tensor, pairs: Tensor) -> None:
        """See ``Backend.page_copy``."""
        assert source.dtype is target.dtype
        assert source.shape[1:] == target.shape[1:]
        assert pairs.dtype is torch.int64
        pairs = pairs.contiguous()
        runs, run_bytes = runs_of_pages(source, target)
        self._library.page_copy(
            self._handle,
            ctypes.byref(describe_pages(source)),
            ctypes.byref(describe_pages(target)),
            runs,
            run_bytes,
            pairs.data_ptr(),
            pairs.shape[0],
        )

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See ``Backend.rms_norm``."""
        return self._norm(x.contiguous(), None, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See ``Backend.add_rms_norm``; the norm sees the sum as it is stored."""
        assert residual.is_contiguous()
        assert residual.dtype is x.dtype
        return self._norm(x.contiguous(), residual.data_ptr(), weight, eps)

    def _norm(self, x: Tensor, residual: int | None, weight: Tensor, eps: float) -> Tensor:
        assert weight.dtype is x.dtype
        assert weight.shape[0] == x.shape[-1]
        out = torch.empty_like(x)
        size = x.shape[-1]
        self._library.rms_norm(
            self._handle,
            DTYPE_CODES[x.dtype],
            x.data_ptr(),
            residual,
            weight.data_ptr(),
            eps,
            out.data_ptr(),
            x.numel() // size,
            size,
        )
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See ``Backend.silu_mul``."""
        gate_up = gate_up.contiguous()
        rows, width = gate_up.shape
        out = torch.empty((rows, width // 2), dtype=gate_up.dtype)
        code = DTYPE_CODES[gate_up.dtype]
        self._library.silu_mul(
            self._handle, code, gate_up.data_ptr(), out.data_ptr(), rows, width // 2
        )
        return out

    def linear(
        self,
        weight: Tensor | BlockQuantized,
        bias: Tensor | None,
        out_dtype: torch.dtype | None = None,
    ) -> Linear:
        """See ``Backend.linear``. ``out_dtype`` float32 gives the sums unrounded (for logits)."""
        return Linear(self._engine, self._arena, weight, bias, out_dtype)

    def embedding(self, weight: Tensor | BlockQuantized) -> Rows:
        """See ``StackingBackend.embedding``."""
        return Rows(self._engine, self._arena, weight)

    def stack(
        self, blocks: Sequence[BlockWeights], final_norm: Tensor, *, eps: float, scale: float
    ) -> Stack:
        """All layers of a decoder as one call; see ``Stack``."""
        return Stack(self._engine, self._views, blocks, final_norm, eps=eps, scale=scale)

    def argmax(self, logits: Tensor) -> Tensor:
        """The least id of the largest logit: ``[rows, vocab]`` float32 → ``[rows]`` int64.

        -1 for a row that holds NaN or nothing finite.
        """
        assert logits.dtype is torch.float32
        assert logits.stride(1) == 1
        rows, size = logits.shape
        out = torch.empty(rows, dtype=torch.int64)
        self._library.argmax(
            self._handle, logits.data_ptr(), logits.stride(0), rows, size, out.data_ptr()
        )
        return out

    def draw(self, logits: Tensor, inverse_temperature: Tensor, u: Tensor) -> Tensor:
        """Draw an id of each row with probability softmax(logits · inverse_temperature).

        ``logits [rows, vocab]`` float32 (-inf excludes an id), ``inverse_temperature [rows]``
        float32, finite and positive, ``u [rows]`` in [0, 1), float32 or float64 → ``[rows]``
        int64: the first id whose cumulative weight passes u (inverse of the distribution, ids
        ascending; Devroye 1986, II.2). Weights are float32, their sums float64 over blocks of
        512. -1 for a row that holds NaN or +inf, or nothing finite.
        """
        assert logits.dtype is torch.float32
        assert logits.stride(1) == 1
        rows, size = logits.shape
        assert inverse_temperature.dtype is torch.float32
        assert inverse_temperature.shape == u.shape == (rows,)
        inverse_temperature, u = inverse_temperature.contiguous(), u.double().contiguous()
        out = torch.empty(rows, dtype=torch.int64)
        self._library.draw(
            self._handle,
            logits.data_ptr(),
            logits.stride(0),
            rows,
            size,
            inverse_temperature.data_ptr(),
            u.data_ptr(),
            out.data_ptr(),
        )
        return out
