"""How a batch's rows are spread over launches of the attention kernel."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from pagedd_kernels.inputs import FP8, PagedInputs
from pagedd_kernels.triton_ import tuning
from pagedd_kernels.triton_.attention import attention_kernel, merge_splits_kernel
from pagedd_kernels.triton_.launch import Launch, interpreted
from pagedd_kernels.triton_.tuning import Phase, Tile

MIN_BLOCK = 16  # the smallest side of a tensor-core product


def paged_attention(
    q: Tensor,
    cache: Tensor,
    layer: int,
    inputs: PagedInputs,
    *,
    scale: float,
    window: int,
    architecture: int,
    splits: int,
    out: Tensor | None = None,
    lse: Tensor | None = None,
) -> tuple[list[Launch], Tensor]:
    """See ``GraphBackend.paged_attention`` → the launches, in order, and their output.

    ``architecture``: compute capability as 80, 90, …; ``splits``: into how many parts the keys of
    decode rows are split, a power of two.
    """
    tokens, heads, head_dim = q.shape
    if out is None:
        out = torch.empty((tokens, heads * head_dim), dtype=q.dtype, device=q.device)
    assert out.is_contiguous()
    assert lse is None or lse.is_contiguous()
    common = _arguments(q, cache, layer, inputs, scale, window)
    common |= {"out": out, "lse": lse}
    launches = []
    if inputs.num_decode:
        tile = _tile(architecture, common, "decode", inputs.num_decode)
        launches += _decode(common, tile, splits, inputs.num_decode)
    others = inputs.num_seqs - inputs.num_decode
    if others:
        group = common["GROUP"]
        phase: Phase = "decode" if inputs.max_query_len * group <= MIN_BLOCK else "prefill"
        tile = _tile(architecture, common, phase, others)
        tiles = (tokens - inputs.num_decode) // (tile.block_m // group) + others
        whole = {"splits": 1, "DECODE": False, "SPLIT": False}
        launches.append(_launch((tiles, cache.shape[3], 1), common | whole, tile))
    return launches, out


def _arguments(
    q: Tensor, cache: Tensor, layer: int, inputs: PagedInputs, scale: float, window: int
) -> dict[str, Any]:
    """What both launches have in common."""
    kv_heads, page_size, head_dim = cache.shape[3:]
    assert q.stride(1) == head_dim
    assert q.stride(2) == cache.stride(5) == 1
    page, layers, kinds, head, slot = cache.stride()[:5]
    return {
        "q": q,
        "cache": cache,
        "kv_scales": inputs.kv_scales if cache.dtype in FP8 else None,
        "page_table": inputs.page_table,
        "cu_seqlens": inputs.cu_seqlens,
        "seq_lens": inputs.seq_lens,
        "scale": scale * math.log2(math.e),
        "layer": layer,
        "num_decode": inputs.num_decode,
        "num_seqs": inputs.num_seqs,
        "window": window,
        "stride_token": q.stride(0),
        "stride_table": inputs.page_table.stride(0),
        "stride_page": page,
        "stride_layer": layers,
        "stride_kind": kinds,
        "stride_head": head,
        "stride_slot": slot,
        "HEADS": q.shape[1],
        "GROUP": q.shape[1] // kv_heads,
        "HEAD_DIM": head_dim,
        "BLOCK_D": max(triton.next_power_of_2(head_dim), MIN_BLOCK),
        "PAGE_SIZE": page_size,
        "WINDOWED": window > 0,
        "UPCAST": interpreted(attention_kernel) and q.dtype == torch.bfloat16,
    }


def _tile(architecture: int, common: dict[str, Any], phase: Phase, batch: int) -> Tile:
    """The table's tile for ``batch`` sequences."""
    return tuning.attention_tile(
        architecture,
        tuning.kind_of(common["q"].dtype, common["cache"].dtype),
        phase,
        common["HEAD_DIM"],
        group=common["GROUP"],
        page_size=common["PAGE_SIZE"],
        batch=batch,
    )


def _decode(common: dict[str, Any], tile: Tile, splits: int, num_decode: int) -> list[Launch]:
    """The decode rows, and the merge of their splits when there are several."""
    heads, head_dim, device = common["HEADS"], common["HEAD_DIM"], common["q"].device
    grid = (num_decode, heads // common["GROUP"], splits)
    flags = {"splits": splits, "DECODE": True, "SPLIT": splits > 1}
    if splits == 1:
        return [_launch(grid, common | flags, tile)]
    shape = (num_decode, heads, splits)
    partial = torch.empty((*shape, head_dim), dtype=torch.float32, device=device)
    partial_lse = torch.empty(shape, dtype=torch.float32, device=device)
    merge = {
        "partial": partial,
        "partial_lse": partial_lse,
        "out": common["out"],
        "lse": common["lse"],
        "splits": splits,
        "HEAD_DIM": head_dim,
        "BLOCK_D": common["BLOCK_D"],
        "MAX_SPLITS": tuning.MAX_SPLITS,
    }
    return [
        _launch(grid, common | {"out": partial, "lse": partial_lse} | flags, tile),
        Launch(merge_splits_kernel, (num_decode * heads,), merge, num_warps=4),
    ]


def _launch(grid: tuple[int, ...], arguments: dict[str, Any], tile: Tile) -> Launch:
    """A launch of the attention kernel with the tile's sizes."""
    sizes = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n}
    return Launch(attention_kernel, grid, arguments | sizes, tile.num_warps, tile.num_stages)
