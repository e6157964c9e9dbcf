"""Query/key norm, rotary embedding and the write into the cache, in one pass over the rows."""

# Triton reads the annotations of a kernel: its parameters have none but constexpr.
# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagedd_kernels.inputs import FP8, PagedInputs
from pagedd_kernels.triton_.launch import Launch

ELEMENTS = 1024  # of a program's tile: heads · head_dim


@triton.jit
def _weights(q_norm, k_norm, is_query, is_key, dimension, inside):
    """Norm weights ``[heads, dimensions]`` float32 of a tile, 1 where a head has no norm."""
    weights = tl.full([is_query.shape[0], dimension.shape[0]], 1.0, tl.float32)
    if q_norm is not None:
        of_query = tl.load(q_norm + dimension, mask=inside, other=0.0).to(tl.float32)
        weights = tl.where(is_query[:, None], of_query[None, :], weights)
    if k_norm is not None:
        of_key = tl.load(k_norm + dimension, mask=inside, other=0.0).to(tl.float32)
        weights = tl.where(is_key[:, None], of_key[None, :], weights)
    return weights


@triton.jit
def _cached(values, scale, dtype: tl.constexpr, LIMIT: tl.constexpr):
    """``values [heads, dimensions]`` as the cache holds them; NaN stays NaN."""
    if LIMIT > 0:
        values = values.to(tl.float32) / scale[:, None]
        values = tl.where(values > LIMIT, LIMIT, tl.where(values < -LIMIT, -LIMIT, values))
    return values.to(dtype)


@triton.jit(do_not_specialize=["layer"], do_not_specialize_on_alignment=["slots", "kv_scales"])
def kv_write_kernel(
    qkv,
    cache,
    rope,
    q_norm,
    k_norm,
    slots,
    kv_scales,
    eps,
    layer,
    stride_token,
    stride_rope,
    stride_page,
    stride_layer,
    stride_kind,
    stride_head,
    stride_slot,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    LIMIT: tl.constexpr,
) -> None:
    """A program does ``HEAD_BLOCK`` of the heads (queries, keys, values) of one token.

    ``qkv [tokens, (HEADS + 2·KV_HEADS)·HEAD_DIM]`` in place; ``rope [tokens, 2·HALF]`` float32 or
    None (HALF = 0); ``q_norm``, ``k_norm [HEAD_DIM]`` or None; ``slots [tokens]`` int64. A cache in
    8 bits holds values / scale, no larger than LIMIT, its largest number (0: a cache in the
    activations' dtype); ``kv_scales [layers, 2]`` float32, None: 1. The pairs (i, i + HALF) of the
    rotation (Su et al. 2021) are two tiles of the same program and layout, so no thread reads what
    another one writes; what is left of the head is a third.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEAD_BLOCK + tl.arange(0, HEAD_BLOCK)
    exists = head < HEADS + 2 * KV_HEADS
    is_query = head < HEADS
    is_key = (head >= HEADS) & (head < HEADS + KV_HEADS)
    turns = is_query | is_key
    slot = tl.load(slots + token)
    stored = exists & (head >= tl.where(slot >= 0, HEADS, HEADS + 2 * KV_HEADS))
    kind = (head - HEADS) // KV_HEADS
    source = qkv + token * stride_token + head * HEAD_DIM
    target = cache + (slot // PAGE_SIZE) * stride_page + layer.to(tl.int64) * stride_layer
    target += (slot % PAGE_SIZE) * stride_slot
    target += kind * stride_kind + ((head - HEADS) % KV_HEADS) * stride_head

    squares = tl.zeros([HEAD_BLOCK], dtype=tl.float32)
    if HALF > 0:
        low = tl.arange(0, HALF_BLOCK)
        low_in = low < HALF
        pair = exists[:, None] & low_in[None, :]
        first = tl.load(source[:, None] + low[None, :], mask=pair, other=0.0).to(tl.float32)
        second = tl.load(source[:, None] + (low + HALF)[None, :], mask=pair, other=0.0)
        second = second.to(tl.float32)
        squares += tl.sum(first * first + second * second, axis=1)
    if HEAD_DIM > 2 * HALF:
        tail = 2 * HALF + tl.arange(0, REST_BLOCK)
        tail_in = tail < HEAD_DIM
        single = exists[:, None] & tail_in[None, :]
        rest = tl.load(source[:, None] + tail[None, :], mask=single, other=0.0).to(tl.float32)
        squares += tl.sum(rest * rest, axis=1)

    factor = tl.zeros([HEAD_BLOCK], dtype=tl.float32) + 1.0
    if q_norm is not None:
        factor = tl.where(is_query, tl.rsqrt(squares / HEAD_DIM + eps), factor)
    if k_norm is not None:
        factor = tl.where(is_key, tl.rsqrt(squares / HEAD_DIM + eps), factor)

    dtype = qkv.dtype.element_ty
    cache_dtype = cache.dtype.element_ty
    scale = tl.zeros([HEAD_BLOCK], dtype=tl.float32) + 1.0
    if kv_scales is not None:
        scale *= tl.where(
            is_key, tl.load(kv_scales + 2 * layer), tl.load(kv_scales + 2 * layer + 1)
        )
    if HALF > 0:
        first *= factor[:, None] * _weights(q_norm, k_norm, is_query, is_key, low, low_in)
        second *= factor[:, None] * _weights(q_norm, k_norm, is_query, is_key, low + HALF, low_in)
        angle = rope + token * stride_rope + low
        cos = tl.load(angle, mask=low_in, other=1.0)[None, :]
        sin = tl.load(angle + HALF, mask=low_in, other=0.0)[None, :]
        turned = turns[:, None]
        new_first = tl.where(turned, first * cos - second * sin, first).to(dtype)
        new_second = tl.where(turned, second * cos + first * sin, second).to(dtype)
        in_place = pair & turned
        tl.store(source[:, None] + low[None, :], new_first, mask=in_place)
        tl.store(source[:, None] + (low + HALF)[None, :], new_second, mask=in_place)
        cached = pair & stored[:, None]
        kept_first = _cached(new_first, scale, cache_dtype, LIMIT)
        kept_second = _cached(new_second, scale, cache_dtype, LIMIT)
        tl.store(target[:, None] + low[None, :], kept_first, mask=cached)
        tl.store(target[:, None] + (low + HALF)[None, :], kept_second, mask=cached)
    if HEAD_DIM > 2 * HALF:
        rest *= factor[:, None] * _weights(q_norm, k_norm, is_query, is_key, tail, tail_in)
        new_rest = rest.to(dtype)
        tl.store(source[:, None] + tail[None, :], new_rest, mask=single & turns[:, None])
        kept_rest = _cached(new_rest, scale, cache_dtype, LIMIT)
        tl.store(target[:, None] + tail[None, :], kept_rest, mask=single & stored[:, None])


def kv_write(
    qkv: Tensor,
    cache: Tensor,
    layer: int,
    inputs: PagedInputs,
    rope: Tensor | None,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    eps: float,
) -> tuple[Launch, Tensor]:
    """See ``Backend.kv_write`` → the launch and the view of the queries."""
    kv_heads, page_size, head_dim = cache.shape[3:]
    rows = qkv.view(qkv.shape[0], -1, head_dim)
    heads = rows.shape[1] - 2 * kv_heads
    half = 0 if rope is None else rope.shape[1] // 2
    all_heads = heads + 2 * kv_heads
    block = max(ELEMENTS // triton.next_power_of_2(head_dim), 1)
    block = min(block, triton.next_power_of_2(all_heads))
    page, layers, kinds, head, slot = cache.stride()[:5]
    arguments = {
        "qkv": qkv,
        "cache": cache,
        "rope": rope,
        "q_norm": q_norm,
        "k_norm": k_norm,
        "slots": inputs.slots,
        "kv_scales": inputs.kv_scales if cache.dtype in FP8 else None,
        "eps": eps,
        "layer": layer,
        "stride_token": qkv.stride(0),
        "stride_rope": 0 if rope is None else rope.stride(0),
        "stride_page": page,
        "stride_layer": layers,
        "stride_kind": kinds,
        "stride_head": head,
        "stride_slot": slot,
        "HEADS": heads,
        "KV_HEADS": kv_heads,
        "HEAD_DIM": head_dim,
        "PAGE_SIZE": page_size,
        "HALF": half,
        "HALF_BLOCK": triton.next_power_of_2(max(half, 1)),
        "REST_BLOCK": triton.next_power_of_2(max(head_dim - 2 * half, 1)),
        "HEAD_BLOCK": block,
        "LIMIT": torch.finfo(cache.dtype).max if cache.dtype in FP8 else 0.0,
    }
    grid = (qkv.shape[0], triton.cdiv(all_heads, block))
    return Launch(kv_write_kernel, grid, arguments, 4), rows[:, :heads]
