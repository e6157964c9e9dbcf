"""Row-wise operations of the decoder: RMS norm, with the residual added first, and SiLU · gate."""

# Triton reads the annotations of a kernel: its parameters have none but constexpr.
# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagedd_kernels.triton_.launch import Launch


@triton.jit
def rms_norm_kernel(
    x,
    residual,
    weight,
    out,
    eps,
    stride_x,
    stride_residual,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """RMS norm (Zhang & Sennrich 2019) of one row a program.

    ``x``, ``residual`` (or None) ``[rows, SIZE]`` with row strides, ``weight [SIZE]``, ``out``
    dense. With a residual: residual += x, rounded as it is stored, then the norm of that.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < SIZE
    values = tl.load(x + row * stride_x + column, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        place = residual + row * stride_residual + column
        values += tl.load(place, mask=inside, other=0.0).to(tl.float32)
        stored = values.to(residual.dtype.element_ty)
        tl.store(place, stored, mask=inside)
        values = stored.to(tl.float32)
    factor = tl.rsqrt(tl.sum(values * values, axis=0) / SIZE + eps)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    normed = (values * factor * scale).to(out.dtype.element_ty)
    tl.store(out + row * SIZE + column, normed, mask=inside)


@triton.jit
def silu_mul_kernel(gate_up, out, stride, SIZE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """SwiGLU's product (Shazeer 2020): ``gate_up [rows, 2·SIZE]`` → ``out [rows, SIZE]``, dense."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < SIZE
    gate = tl.load(gate_up + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * stride + SIZE + column, mask=inside, other=0.0).to(tl.float32)
    product = (gate / (1.0 + tl.exp(-gate)) * up).to(out.dtype.element_ty)
    tl.store(out + row * SIZE + column, product, mask=inside)


def rms_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor, eps: float
) -> tuple[Launch, Tensor]:
    """Norm of ``x [rows, size]`` (or of residual += x) → the launch and its output."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    arguments = {
        "x": x,
        "residual": residual,
        "weight": weight,
        "out": out,
        "eps": eps,
        "stride_x": x.stride(0),
        "stride_residual": 0 if residual is None else residual.stride(0),
        "SIZE": x.shape[1],
        "BLOCK": block,
    }
    warps = min(max(block // 512, 1), 16)
    return Launch(rms_norm_kernel, (x.shape[0],), arguments, warps), out


def silu_mul(gate_up: Tensor) -> tuple[Launch, Tensor]:
    """``gate_up [rows, 2·ffn]`` → the launch and its output ``[rows, ffn]``."""
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, size), dtype=gate_up.dtype, device=gate_up.device)
    block = min(triton.next_power_of_2(size), 1024)
    arguments = {
        "gate_up": gate_up,
        "out": out,
        "stride": gate_up.stride(0),
        "SIZE": size,
        "BLOCK": block,
    }
    return Launch(silu_mul_kernel, (rows, triton.cdiv(size, block)), arguments, 4), out
