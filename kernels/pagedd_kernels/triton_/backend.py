"""The Triton kernels as a backend."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from pagedd_kernels.graph_backend import KernelShape, Progress
from pagedd_kernels.inputs import PagedInputs, SamplingInputs
from pagedd_kernels.quantized import BlockQuantized, dense
from pagedd_kernels.reference import Linear, refused_dtype
from pagedd_kernels.triton_ import (
    attention_launch,
    kv_write,
    page_moves,
    rows,
    sample,
    tuning,
    variants,
)
from pagedd_kernels.triton_.attention import attention_kernel
from pagedd_kernels.triton_.compile_cache import use_cache
from pagedd_kernels.triton_.launch import interpreted

OLDEST = 80  # architecture: the first with bf16 tensor cores and asynchronous copies


class TritonBackend:
    """Triton kernels on a CUDA device, or on CPU tensors in Triton's interpreter (tests)."""

    name = "triton"
    quantized = False
    capturable = True

    def __init__(self) -> None:
        """Compiled kernels are kept in the user's cache."""
        use_cache(os.environ)

    @staticmethod
    def unavailable(
        device: torch.device, dtype: torch.dtype, cache_dtype: torch.dtype | None = None
    ) -> str | None:
        """The device, its capability or the dtypes may be refused."""
        reason = refused_dtype(dtype, cache_dtype)
        if reason is not None:
            return reason
        if device.type == "cpu" and interpreted(attention_kernel):
            return None
        if interpreted(attention_kernel):
            return "TRITON_INTERPRET is set, and the interpreter takes CPU tensors only"
        if device.type != "cuda" or not torch.cuda.is_available():
            return "no CUDA device"
        found = _architecture(device)
        if found < OLDEST:
            return f"needs compute capability {OLDEST / 10}, the device has {found / 10}"
        if cache_dtype == torch.float8_e4m3fn and found < tuning.FP8_E4M3_SINCE:
            return (
                f"a cache of {cache_dtype} needs compute capability "
                f"{tuning.FP8_E4M3_SINCE / 10}, the device has {found / 10}; float8_e5m2 is served"
            )
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
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> Tensor:
        """See ``GraphBackend.paged_attention``."""
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
            splits=tuning.decode_splits(programs, _processors(q.device), keys),
            out=out,
            lse=lse,
        )
        for launch in launches:
            launch.run()
        return out

    def page_copy(self, source: Tensor, target: Tensor, pairs: Tensor) -> None:
        """See ``GraphBackend.page_copy``."""
        page_moves.page_copy(source, target, pairs).run()

    def page_gather(self, source: Tensor, pages: Tensor, target: Tensor) -> None:
        """See ``GraphBackend.page_gather``."""
        page_moves.page_gather(source, pages, target).run()

    def page_scatter(self, source: Tensor, pages: Tensor, target: Tensor) -> None:
        """See ``GraphBackend.page_scatter``."""
        page_moves.page_scatter(source, pages, target).run()

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

    def sample(self, logits: Tensor, inputs: SamplingInputs, out: Tensor | None = None) -> Tensor:
        """See ``GraphBackend.sample``."""
        launch, tokens = sample.sample(logits, inputs, out)
        launch.run()
        return tokens

    def warm_up(self, shape: KernelShape, device: torch.device, progress: Progress) -> None:
        """See ``GraphBackend.warm_up``."""
        wanted = variants.of_model(shape, _architecture(device), _processors(device))
        with torch.cuda.device(device):
            for done, (name, launch) in enumerate(wanted):
                progress(done, len(wanted), name)
                launch.load()
        progress(len(wanted), len(wanted), "")


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
