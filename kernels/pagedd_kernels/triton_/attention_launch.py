"""How a batch's rows are spread over launches of the attention kernel."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from pagedd_kernels.inputs import PagedInputs
from pagedd_kernels.triton_.attention import attention_kernel, merge_splits_kernel
from pagedd_kernels.triton_.launch import Launch, interpreted
from pagedd_kernels.triton_.tiles import Phase, Tile, attention_tile

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
) -> tuple[list[Launch], Tensor]:
    """See ``Backend.paged_attention`` → the launches, in order, and their output.

    ``architecture``: compute capability as 80, 90, …; ``splits``: into how many parts the keys of
    decode rows are split, a power of two.
    """
    tokens, heads, head_dim = q.shape
    group = heads // cache.shape[3]
    out = torch.empty((tokens, heads * head_dim), dtype=q.dtype, device=q.device)
    common = _arguments(q, cache, layer, inputs, scale, window)
    launches = []
    if inputs.num_decode:
        tile = attention_tile(architecture, head_dim, "decode", q.element_size())
        tile = tile._replace(block_m=max(tile.block_m, triton.next_power_of_2(group)))
        launches += _decode(common, out, tile, splits, inputs.num_decode, q)
    if inputs.num_seqs > inputs.num_decode:
        short = inputs.max_query_len * group <= MIN_BLOCK
        phase: Phase = "decode" if short else "prefill"
        tile = attention_tile(architecture, head_dim, phase, q.element_size())
        tile = tile._replace(block_m=max(tile.block_m, triton.next_power_of_2(group)))
        block_q = tile.block_m // group
        tiles = (tokens - inputs.num_decode) // block_q + inputs.num_seqs - inputs.num_decode
        arguments = common | {"out": out, "lse": None, "DECODE": False, "SPLITS": 1}
        launches.append(_launch((tiles, cache.shape[3], 1), arguments, tile))
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
        "page_table": inputs.page_table,
        "cu_seqlens": inputs.cu_seqlens,
        "seq_lens": inputs.seq_lens,
        "scale": scale * math.log2(math.e),
        "layer": layer,
        "num_decode": inputs.num_decode,
        "num_seqs": inputs.num_seqs,
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
        "WINDOW": window,
        "UPCAST": interpreted(attention_kernel) and q.dtype == torch.bfloat16,
    }


def _decode(
    common: dict[str, Any], out: Tensor, tile: Tile, splits: int, num_decode: int, q: Tensor
) -> list[Launch]:
    """The decode rows, and the merge of their splits when there are several."""
    heads, head_dim = q.shape[1:]
    grid = (num_decode, heads // common["GROUP"], splits)
    flags = {"DECODE": True, "SPLITS": splits}
    if splits == 1:
        return [_launch(grid, common | {"out": out, "lse": None} | flags, tile)]
    shape = (num_decode, heads, splits)
    partial = torch.empty((*shape, head_dim), dtype=torch.float32, device=q.device)
    lse = torch.empty(shape, dtype=torch.float32, device=q.device)
    merge = {
        "partial": partial,
        "lse": lse,
        "out": out,
        "HEAD_DIM": head_dim,
        "BLOCK_D": common["BLOCK_D"],
        "SPLITS": splits,
    }
    return [
        _launch(grid, common | {"out": partial, "lse": lse} | flags, tile),
        Launch(merge_splits_kernel, (num_decode * heads,), merge, num_warps=4),
    ]


def _launch(grid: tuple[int, ...], arguments: dict[str, Any], tile: Tile) -> Launch:
    """A launch of the attention kernel with the tile's sizes."""
    sizes = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n}
    return Launch(attention_kernel, grid, arguments | sizes, tile.num_warps, tile.num_stages)
