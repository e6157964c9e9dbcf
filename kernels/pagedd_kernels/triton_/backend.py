"""The Triton kernels as a backend."""

from __future__ import annotations

import torch
from torch import Tensor

from pagedd_kernels.inputs import PagedInputs
from pagedd_kernels.quantized import BlockQuantized, dense
from pagedd_kernels.reference import Linear
from pagedd_kernels.triton_ import attention_launch, kv_write, pages, rows, tiles
from pagedd_kernels.triton_.attention import attention_kernel
from pagedd_kernels.triton_.launch import interpreted

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OLDEST = 80  # architecture: the first with bf16 tensor cores and asynchronous copies


class TritonBackend:
    """Triton kernels on a CUDA device, or on CPU tensors in Triton's interpreter (tests)."""

    name = "triton"
    quantized = False

    @staticmethod
    def unavailable(device: torch.device, dtype: torch.dtype) -> str | None:
        """The device, its capability or the dtype may be refused."""
        if dtype not in DTYPES:
            return f"{dtype} is no activation dtype"
        if device.type == "cpu" and interpreted(attention_kernel):
            return None
        if interpreted(attention_kernel):
            return "TRITON_INTERPRET is set, and the interpreter takes CPU tensors only"
        if device.type != "cuda" or not torch.cuda.is_available():
            return "no CUDA device"
        found = _architecture(device)
        if found < OLDEST:
            return f"needs compute capability {OLDEST / 10}, the device has {found / 10}"
        return None

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
        launch, q = kv_write.kv_write(qkv, cache, layer, inputs, rope, q_norm, k_norm, eps)
        launch.run()
        return q

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
        keys = min(inputs.max_seq_len, window) if window else inputs.max_seq_len
        programs = inputs.num_decode * cache.shape[3]
        launches, out = attention_launch.paged_attention(
            q,
            cache,
            layer,
            inputs,
            scale=scale,
            window=window,
            architecture=_architecture(q.device),
            splits=tiles.decode_splits(programs, _processors(q.device), keys),
        )
        for launch in launches:
            launch.run()
        return out

    def page_copy(self, source: Tensor, target: Tensor, pairs: Tensor) -> None:
        """See ``Backend.page_copy``."""
        pages.page_copy(source, target, pairs).run()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See ``Backend.rms_norm``."""
        launch, out = rows.rms_norm(x.flatten(0, -2), None, weight, eps)
        launch.run()
        return out.view(x.shape)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See ``Backend.add_rms_norm``."""
        shape = (-1, x.shape[-1])
        launch, out = rows.rms_norm(x.reshape(shape), residual.view(shape), weight, eps)
        launch.run()
        return out.view(x.shape)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See ``Backend.silu_mul``."""
        launch, out = rows.silu_mul(gate_up)
        launch.run()
        return out

    def linear(
        self,
        weight: Tensor | BlockQuantized,
        bias: Tensor | None,
        out_dtype: torch.dtype | None = None,
    ) -> Linear:
        """See ``Backend.linear``: the vendor's library through torch, the weight as it is."""
        return Linear(dense(weight), bias, out_dtype)


def _architecture(device: torch.device) -> int:
    """Compute capability as 80, 90, …; the interpreter counts as the oldest."""
    if device.type != "cuda":
        return OLDEST
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def _processors(device: torch.device) -> int:
    """Multiprocessors of the device; the interpreter has one."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
