"""Attention over the paged cache: one kernel, launched for the decode rows and for the others."""

# Triton reads the annotations of a kernel: its parameters have none but constexpr.
# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _sequence_of_tile(cu_seqlens, tile, num_decode, num_seqs, BLOCK_Q: tl.constexpr):
    """The sequence whose rows tile ``tile`` covers, and the first of its tiles.

    Sequence i (after the decode rows) owns the tiles from ``rows before it // BLOCK_Q + i``: at
    least as many as it needs, so that the grid follows from the counts alone. By bisection.
    """
    low = num_decode
    high = num_seqs
    while low + 1 < high:
        middle = (low + high) // 2
        begins = (tl.load(cu_seqlens + middle) - num_decode) // BLOCK_Q + middle - num_decode
        low = tl.where(begins <= tile, middle, low)
        high = tl.where(begins <= tile, high, middle)
    first_tile = (tl.load(cu_seqlens + low) - num_decode) // BLOCK_Q + low - num_decode
    return low, first_tile


@triton.jit
def _key_range(
    position,
    length,
    split,
    splits,
    window,
    BLOCK_Q: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """What the rows from ``position`` on see: keys from ``begin``, and one split's part of them.

        0 ... begin ... split_begin ... split_end ... end of the last row's keys ... length

    ``split_begin`` is a multiple of BLOCK_N, so the first tile may begin before ``begin``.
    """
    end = tl.minimum(length, position + BLOCK_Q)
    begin = 0
    if WINDOWED:
        begin = tl.maximum(position - window + 1, 0)
    first_block = begin // BLOCK_N
    blocks = tl.cdiv(tl.cdiv(end, BLOCK_N) - first_block, splits)
    split_begin = (first_block + split * blocks) * BLOCK_N
    return begin, split_begin, tl.minimum(end, split_begin + blocks * BLOCK_N)


@triton.jit
def _softmax_step(score, v, top, total, acc):
    """Take one tile of keys into the running softmax, in base 2.

    ``score [rows, keys]`` (-inf: not seen), ``v [keys, dims]``; ``top`` the maximum so far,
    ``total [rows]`` and ``acc [rows, dims]`` the sums relative to it.
    """
    new_top = tl.maximum(top, tl.max(score, axis=1))
    # a row that has seen no key yet must not compute -inf - -inf
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    weight = tl.exp2(score - shift[:, None])
    shrink = tl.exp2(top - shift)
    total = total * shrink + tl.sum(weight, axis=1)
    acc = tl.dot(weight.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return new_top, total, acc


@triton.jit(
    do_not_specialize=["layer", "num_decode", "num_seqs", "splits", "window", "stride_table"],
    do_not_specialize_on_alignment=["page_table", "cu_seqlens", "seq_lens", "kv_scales", "lse"],
)
def attention_kernel(
    q,
    cache,
    kv_scales,
    out,
    lse,
    page_table,
    cu_seqlens,
    seq_lens,
    scale,
    layer,
    num_decode,
    num_seqs,
    splits,
    window,
    stride_token,
    stride_table,
    stride_page,
    stride_layer,
    stride_kind,
    stride_head,
    stride_slot,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DECODE: tl.constexpr,
    SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    """One tile of rows against the keys of its sequence, with a running softmax.

    FlashAttention-2 (Dao 2023) over the pages of PagedAttention (Kwon et al. 2023), the ``GROUP``
    query heads of a KV head packed into the rows: row m is query m // GROUP, head m % GROUP.
    Grid: decode (sequences, kv_heads, splits), else (tiles, kv_heads, 1).

    ``q [tokens, HEADS, HEAD_DIM]`` (heads dense), ``page_table [num_seqs, …]``, ``cu_seqlens``,
    ``seq_lens`` int32, ``scale`` with log2(e) in it. ``kv_scales [layers, 2]`` float32 or None: of
    a cache in 8 bits, which is computed with in the dtype of ``q``. ``out [tokens, HEADS,
    HEAD_DIM]``, ``lse [tokens, HEADS]`` natural logarithms or None; with SPLIT (Flash-Decoding)
    float32 ``[tokens, HEADS, splits, HEAD_DIM]`` and ``[tokens, HEADS, splits]`` in base 2, of an
    empty split only its -inf. UPCAST: the interpreter gets bf16 products wrong, so compute in
    float32. Only keys that a row of the tile can see are loaded; every other lane is 0, because
    what lies in unused slots may be NaN, and 0 · NaN is NaN.
    """
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    BLOCK_Q: tl.constexpr = 1 if DECODE else BLOCK_M // GROUP
    if DECODE:
        seq = tile
        first_query = 0
    else:
        seq, first_tile = _sequence_of_tile(cu_seqlens, tile, num_decode, num_seqs, BLOCK_Q)
        first_query = (tile - first_tile) * BLOCK_Q
    first_row = tl.load(cu_seqlens + seq)
    rows = tl.load(cu_seqlens + seq + 1) - first_row
    if first_query >= rows:
        return
    length = tl.load(seq_lens + seq)
    base = length - rows  # position of the sequence's first row

    m = tl.arange(0, BLOCK_M)
    query = first_query + m // GROUP
    row_in = (m < BLOCK_Q * GROUP) & (query < rows)
    token = (first_row + query).to(tl.int64)
    head = kv_head * GROUP + m % GROUP
    position = base + query
    d = tl.arange(0, BLOCK_D)
    d_in = d < HEAD_DIM
    q_at = q + token[:, None] * stride_token + head[:, None] * HEAD_DIM + d[None, :]
    queries = tl.load(q_at, mask=row_in[:, None] & d_in[None, :], other=0.0)
    if UPCAST:
        queries = queries.to(tl.float32)

    begin, split_begin, split_end = _key_range(
        base + first_query, length, split, splits, window, BLOCK_Q, BLOCK_N, WINDOWED
    )
    at_out = (token * HEADS + head) * splits + split
    if SPLIT and split_begin >= split_end:
        tl.store(lse + at_out, tl.full([BLOCK_M], float("-inf"), tl.float32), mask=row_in)
        return
    if kv_scales is not None:
        scale *= tl.load(kv_scales + 2 * layer)
    keys = cache + layer.to(tl.int64) * stride_layer + kv_head * stride_head
    table = page_table + seq.to(tl.int64) * stride_table
    key = tl.arange(0, BLOCK_N)
    top = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    for start in range(split_begin, split_end, BLOCK_N):
        key_in = (start + key >= begin) & (start + key < split_end)
        page = tl.load(table + (start + key) // PAGE_SIZE, mask=key_in, other=0).to(tl.int64)
        at = page * stride_page + ((start + key) % PAGE_SIZE) * stride_slot
        k_in = key_in[None, :] & d_in[:, None]
        k = tl.load(keys + at[None, :] + d[:, None], mask=k_in, other=0.0)
        v_in = key_in[:, None] & d_in[None, :]
        v = tl.load(keys + stride_kind + at[:, None] + d[None, :], mask=v_in, other=0.0)
        k = k.to(queries.dtype)
        v = v.to(queries.dtype)
        seen = key_in[None, :] & (start + key[None, :] <= position[:, None])
        if WINDOWED:
            seen &= start + key[None, :] > position[:, None] - window
        score = tl.dot(queries, k, input_precision="ieee") * scale
        top, total, acc = _softmax_step(tl.where(seen, score, float("-inf")), v, top, total, acc)

    acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    if kv_scales is not None:
        acc *= tl.load(kv_scales + 2 * layer + 1)
    out_in = row_in[:, None] & d_in[None, :]
    result = acc.to(out.dtype.element_ty)
    tl.store(out + at_out[:, None] * HEAD_DIM + d[None, :], result, mask=out_in)
    if lse is not None:
        level = top + tl.log2(total)
        tl.store(lse + at_out, level if SPLIT else level * 0.6931471805599453, mask=row_in)


@triton.jit(do_not_specialize=["splits"], do_not_specialize_on_alignment=["partial_lse", "lse"])
def merge_splits_kernel(
    partial,
    partial_lse,
    out,
    lse,
    splits,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
) -> None:
    """Combine the splits of one (token, head): weights 2^(lse − max), an empty split being -inf.

    ``partial [rows, splits, HEAD_DIM]`` float32 (an empty split holds any value), ``partial_lse
    [rows, splits]`` base 2 → ``out [rows, HEAD_DIM]`` and ``lse [rows]`` (natural logarithms, or
    None), a row being a (token, head). Flash-Decoding's reduction (Dao et al. 2023).
    """
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, MAX_SPLITS)
    d = tl.arange(0, BLOCK_D)
    d_in = d < HEAD_DIM
    place = partial_lse + row * splits + split
    level = tl.load(place, mask=split < splits, other=float("-inf"))
    top = tl.max(level, axis=0)
    weight = tl.exp2(level - tl.where(top == float("-inf"), 0.0, top))
    at = (row * splits + split)[:, None] * HEAD_DIM + d[None, :]
    parts = tl.load(partial + at, mask=(weight > 0.0)[:, None] & d_in[None, :], other=0.0)
    total = tl.sum(weight, axis=0)
    merged = tl.sum(parts * weight[:, None], axis=0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out + row * HEAD_DIM + d, merged.to(out.dtype.element_ty), mask=d_in)
    if lse is not None:
        tl.store(lse + row, (top + tl.log2(total)) * 0.6931471805599453)
