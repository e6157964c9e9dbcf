"""The kernel variants of a model: its launches over tensors that have shapes and no memory.

The functions that describe the launches are those that the backend runs, so what is compiled from
here, for a warm-up or ahead of time for another machine, is what will run.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pagedd_kernels.graph_backend import KernelShape
from pagedd_kernels.inputs import FP8, PagedInputs, SamplingInputs
from pagedd_kernels.triton_ import attention_launch, kv_write, page_moves, rows, sample
from pagedd_kernels.triton_.attention import merge_splits_kernel
from pagedd_kernels.triton_.launch import Launch
from pagedd_kernels.triton_.tuning import decode_splits

Named = tuple[str, Launch]
LONG = 1024  # rows of a sequence in the prefill's example; more than any tile has


def of_model(shape: KernelShape, architecture: int, processors: int) -> list[Named]:
    """Every distinct variant, with a name for people, that a model of ``shape`` launches.

    ``architecture``: compute capability as 80, 90, …; ``processors``: multiprocessors.
    """
    distinct: dict[str, Named] = {}
    for window in sorted(shape.windows):
        for found in _attention_of_model(shape, window, architecture, processors):
            distinct.setdefault(found[1].key(), found)
    for found in others(shape):
        distinct.setdefault(found[1].key(), found)
    return list(distinct.values())


def _attention_of_model(
    shape: KernelShape, window: int, architecture: int, processors: int
) -> Iterator[Named]:
    """For every batch size, doubled up to the largest: decode rows, few rows, many rows."""
    longest = min(window, shape.max_model_len) if window else shape.max_model_len
    batch = 1
    while batch < 2 * shape.max_num_seqs:
        for keys in (1, longest):
            splits = decode_splits(batch * shape.num_kv_heads, processors, keys)
            yield from attention(shape, window, architecture, batch, 1, splits)
        for rows_each in (2, LONG):
            yield from attention(shape, window, architecture, batch, rows_each, 1)
        batch *= 2


def attention(
    shape: KernelShape, window: int, architecture: int, batch: int, rows_each: int, splits: int
) -> Iterator[Named]:
    """The launches for ``batch`` sequences of ``rows_each`` rows (1: decode rows)."""
    inputs = _inputs(shape, batch, rows_each)
    tokens = inputs.positions.shape[0]
    heads = shape.num_heads + 2 * shape.num_kv_heads
    qkv = _meta(tokens, heads, shape.head_dim, dtype=shape.dtype)
    q = qkv[:, : shape.num_heads]
    launches, _ = attention_launch.paged_attention(
        q,
        _cache(shape),
        0,
        inputs,
        scale=1.0,
        window=window,
        architecture=architecture,
        splits=splits,
    )
    phase = "decode" if rows_each == 1 else "prefill"
    name = phase + (" split" if splits > 1 else "") + (" window" if window else "")
    for launch in launches:
        yield ("merge" if launch.kernel is merge_splits_kernel else name), launch


def others(shape: KernelShape) -> Iterator[Named]:
    """What is launched beside attention."""
    inputs, cache = _inputs(shape, 8, 1), _cache(shape)
    norm = _meta(shape.head_dim, dtype=shape.dtype) if shape.qk_norm else None
    width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    for rotates in sorted(shape.rope_layers):
        rope = _meta(8, shape.rope_dim, dtype=torch.float32) if rotates else None
        qkv = _meta(8, width, dtype=shape.dtype)
        launch, _ = kv_write.kv_write(qkv, cache, 0, inputs, rope, norm, norm, 1e-6)
        yield (
            "kv_write" + (" norm" if shape.qk_norm else "") + ("" if rotates else " plain"),
            launch,
        )
    x, weight = (_meta(*size, shape.hidden_size, dtype=shape.dtype) for size in ((8,), ()))
    yield "rms_norm", rows.rms_norm(x, None, weight, 1e-6)[0]
    yield "add_rms_norm", rows.rms_norm(x, x, weight, 1e-6)[0]
    gate_up = _meta(8, 2 * shape.intermediate_size, dtype=shape.dtype)
    yield "silu_mul", rows.silu_mul(gate_up)[0]
    pages = _meta(4, 2, dtype=torch.int64)
    yield "page_copy", page_moves.page_copy(cache, cache, pages)
    yield "page_gather", page_moves.page_gather(cache, pages[0], cache)
    yield "page_scatter", page_moves.page_scatter(cache, pages[0], cache)
    logits = _meta(8, shape.vocab_size, dtype=torch.float32)
    yield "sample", sample.sample(logits, _sampling(8), None)[0]


def _meta(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _cache(shape: KernelShape) -> Tensor:
    """[2, layers, 2, kv_heads, page_size, head_dim]: the number of pages changes no code."""
    page = (shape.num_layers, 2, shape.num_kv_heads, shape.page_size, shape.head_dim)
    return _meta(2, *page, dtype=shape.cache_dtype)


def _inputs(shape: KernelShape, batch: int, rows_each: int) -> PagedInputs:
    """``batch`` sequences of ``rows_each`` rows."""
    scaled = shape.cache_dtype in FP8
    return PagedInputs(
        positions=_meta(batch * rows_each, dtype=torch.int64),
        slots=_meta(batch * rows_each, dtype=torch.int64),
        cu_seqlens=_meta(batch + 1, dtype=torch.int32),
        seq_lens=_meta(batch, dtype=torch.int32),
        page_table=_meta(batch, 16, dtype=torch.int32),
        num_decode=batch if rows_each == 1 else 0,
        max_query_len=rows_each,
        max_seq_len=shape.max_model_len,
        kv_scales=_meta(shape.num_layers, 2, dtype=torch.float32) if scaled else None,
    )


def _sampling(rows: int) -> SamplingInputs:
    """``SamplingInputs`` of so many rows."""
    shares = [_meta(rows, dtype=torch.float32) for _ in range(3)]
    wide = [_meta(rows, dtype=torch.int64) for _ in range(2)]
    inverse_temperature, top_p, min_p = shares
    top_k = _meta(rows, dtype=torch.int32)
    return SamplingInputs(inverse_temperature, top_k, top_p, min_p, *wide)
