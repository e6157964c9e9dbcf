"""Drawing a token from each row of logits without sorting it."""

# Triton reads the annotations of a kernel: its parameters have none but constexpr.
# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagedd_kernels.inputs import SamplingInputs
from pagedd_kernels.triton_.launch import Launch

BLOCK = 2048  # logits a program looks at in one go


@triton.jit
def _mix(x):
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014) of an uint64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _uniform(key, counter):
    """Number ``counter`` of stream ``key`` (both int64): float64 in [0, 1) with 53 bits."""
    golden = tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    bits = _mix(_mix(key.to(tl.uint64) + golden * counter.to(tl.uint64)) + golden)
    return (bits >> 11).to(tl.float64) * 1.1102230246251565e-16  # 2^-53


@triton.jit
def _rank(values):
    """float32 → int32 in the same order, both zeros alike."""
    bits = tl.where(values == 0.0, 0.0, values).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _weights(row, start, size, inverse, peak, floor, BLOCK: tl.constexpr):
    """Weights exp((logit − peak) / temperature) of a block, 0 for those of a rank below floor."""
    at = start + tl.arange(0, BLOCK)
    logit = tl.load(row + at, mask=at < size, other=float("-inf"))
    kept = _rank(logit * inverse) >= floor
    return tl.where(kept, tl.exp((logit - peak) * inverse), 0.0)


@triton.jit
def _above(row, size, inverse, peak, rank, BLOCK: tl.constexpr):
    """How many tokens rank above ``rank``, and the sum of their weights."""
    count = tl.zeros([BLOCK], dtype=tl.int32)
    weight = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        logit = tl.load(row + at, mask=at < size, other=float("-inf"))
        above = (at < size) & (_rank(logit * inverse) > rank)
        count += above.to(tl.int32)
        weight += tl.where(above, tl.exp((logit - peak) * inverse), 0.0)
    return tl.sum(count, axis=0), tl.sum(weight, axis=0)


@triton.jit
def _above_three(row, size, inverse, peak, a, b, c, BY_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """Counts, then sums of weights (with BY_WEIGHT), above each of three ranks in one pass."""
    count_a = tl.zeros([BLOCK], dtype=tl.int32)
    count_b = tl.zeros([BLOCK], dtype=tl.int32)
    count_c = tl.zeros([BLOCK], dtype=tl.int32)
    sum_a = tl.zeros([BLOCK], dtype=tl.float32)
    sum_b = tl.zeros([BLOCK], dtype=tl.float32)
    sum_c = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        logit = tl.load(row + at, mask=at < size, other=float("-inf"))
        rank = tl.where(at < size, _rank(logit * inverse), -2147483648)
        count_a += (rank > a).to(tl.int32)
        count_b += (rank > b).to(tl.int32)
        count_c += (rank > c).to(tl.int32)
        if BY_WEIGHT:
            weight = tl.exp((logit - peak) * inverse)
            sum_a += tl.where(rank > a, weight, 0.0)
            sum_b += tl.where(rank > b, weight, 0.0)
            sum_c += tl.where(rank > c, weight, 0.0)
    counts = (tl.sum(count_a, axis=0), tl.sum(count_b, axis=0), tl.sum(count_c, axis=0))
    sums = (tl.sum(sum_a, axis=0), tl.sum(sum_b, axis=0), tl.sum(sum_c, axis=0))
    return counts, sums


@triton.jit
def _search(
    row, size, inverse, peak, low, high, mass, BY_WEIGHT: tl.constexpr, BLOCK: tl.constexpr
):
    """The least rank in (low, high] with less than ``mass`` above it, ``high`` if there is none.

    Mass is the number of tokens, or with BY_WEIGHT the sum of their weights. ``high`` is the rank
    of the peak. Four parts a pass instead of two, and an end as soon as one token is left between
    the borders: then ``low + 1`` cuts as that token's rank would.
    """
    low = low.to(tl.int64)
    high = high.to(tl.int64)
    count_low = size
    count_high = 0
    while (high - low > 1) & (count_low - count_high > 1):
        width = high - low
        a = low + tl.maximum(width // 4, 1)
        b = low + width // 2
        c = low + tl.maximum(3 * width // 4, 1)
        counts, sums = _above_three(
            row,
            size,
            inverse,
            peak,
            a.to(tl.int32),
            b.to(tl.int32),
            c.to(tl.int32),
            BY_WEIGHT,
            BLOCK,
        )
        if BY_WEIGHT:
            below_a, below_b, below_c = sums[0] < mass, sums[1] < mass, sums[2] < mass
        else:
            below_a, below_b, below_c = counts[0] < mass, counts[1] < mass, counts[2] < mass
        old_low, old_count = low, count_low
        low = tl.where(below_a, old_low, tl.where(below_b, a, tl.where(below_c, b, c)))
        count_low = tl.where(
            below_a,
            old_count,
            tl.where(below_b, counts[0], tl.where(below_c, counts[1], counts[2])),
        )
        high = tl.where(below_a, a, tl.where(below_b, b, tl.where(below_c, c, high)))
        count_high = tl.where(
            below_a,
            counts[0],
            tl.where(below_b, counts[1], tl.where(below_c, counts[2], count_high)),
        )
    return (low + 1).to(tl.int32)


@triton.jit
def _floor(row, size, inverse, peak, top_k, top_p, min_p, BLOCK: tl.constexpr):
    """The least rank that min-p, then top-k, then top-p of what is left keep."""
    highest = _rank(peak * inverse)
    lowest = _rank(tl.full([], float("-inf"), tl.float32))
    floor = lowest
    if min_p > 0.0:
        floor = _rank(peak * inverse + tl.log(min_p))
    if top_k > 0:
        kept = _search(row, size, inverse, peak, lowest - 1, highest, top_k, False, BLOCK)
        floor = tl.maximum(floor, kept)
    if top_p < 1.0:
        count, total = _above(row, size, inverse, peak, floor - 1, BLOCK)
        if (top_k > 0) & (count > top_k):
            # equals of the k-th are kept, but the share is of k tokens; floor is the k-th's rank
            value = (floor ^ ((floor >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
            total -= (count - top_k) * tl.exp(value - peak * inverse)
        floor = _search(row, size, inverse, peak, floor - 1, highest, top_p * total, True, BLOCK)
    return floor


@triton.jit
def _inverse(row, size, inverse, peak, floor, u, BLOCK: tl.constexpr):
    """The token at which the cumulative sum of the weights passes ``u`` of the whole.

    Sums of a block in float32, of blocks in float64: as exact as the weights, at the rate of
    float32 where float64 is slow.
    """
    total = tl.zeros([], dtype=tl.float64)
    for start in range(0, size, BLOCK):
        weight = _weights(row, start, size, inverse, peak, floor, BLOCK)
        total += tl.sum(weight, axis=0).to(tl.float64)
    target = u * total
    before = tl.zeros([], dtype=tl.float64)  # sum of the blocks before `block`
    block = 0
    passed = tl.zeros([], dtype=tl.float64)
    start = 0
    while (start < size) & (passed <= target):
        weight = _weights(row, start, size, inverse, peak, floor, BLOCK)
        some = tl.sum(weight, axis=0).to(tl.float64)
        block = tl.where(some > 0.0, start, block)  # the last with weight, if rounding finds none
        before = tl.where(some > 0.0, passed, before)
        passed += some
        start += BLOCK
    weight = _weights(row, block, size, inverse, peak, floor, BLOCK)
    place = tl.arange(0, BLOCK)
    beyond = (tl.cumsum(weight, axis=0) > (target - before).to(tl.float32)) & (weight > 0.0)
    first = tl.min(tl.where(beyond, place, BLOCK), axis=0)
    last = tl.max(tl.where(weight > 0.0, place, 0), axis=0)
    return block + tl.minimum(first, last)


@triton.jit(
    do_not_specialize=["size"],
    do_not_specialize_on_alignment=[
        "inverse_temperature",
        "top_k",
        "top_p",
        "min_p",
        "keys",
        "counters",
        "out",
    ],
)
def sample_kernel(
    logits,
    inverse_temperature,
    top_k,
    top_p,
    min_p,
    keys,
    counters,
    out,
    size,
    stride,
    BLOCK: tl.constexpr,
) -> None:
    """One row a program: ``logits [rows, size]`` float32 → ``out [rows]`` int64.

    The others are the fields of ``SamplingInputs``. Nothing is sorted: a threshold is searched for
    on the numbers' ranks, counting for top-k and summing exp(logit − peak) for top-p, as in the
    sampling kernels of FlashInfer (Ye et al. 2025), but to the exact cut. Then the cumulative
    distribution is inverted, which gives the text that the CPU gives for the same logits.
    """
    program = tl.program_id(0)
    row = logits + program.to(tl.int64) * stride
    best = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    where = tl.zeros([BLOCK], dtype=tl.int32)
    wrong = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        logit = tl.load(row + at, mask=at < size, other=float("-inf"))
        where = tl.where(logit > best, at, where)
        best = tl.where(logit > best, logit, best)
        wrong |= (logit != logit).to(tl.int32)
    peak = tl.max(best, axis=0)
    token = tl.min(tl.where(best == peak, where, size), axis=0)
    infinite = (peak == float("inf")) | (peak == float("-inf"))
    inverse = tl.load(inverse_temperature + program)
    if (tl.max(wrong, axis=0) > 0) | infinite:
        token = -1
    elif inverse > 0.0:
        k = tl.load(top_k + program)
        p = tl.load(top_p + program)
        floor = _floor(row, size, inverse, peak, k, p, tl.load(min_p + program), BLOCK)
        u = _uniform(tl.load(keys + program), tl.load(counters + program))
        token = _inverse(row, size, inverse, peak, floor, u, BLOCK)
    tl.store(out + program, token.to(tl.int64))


def sample(logits: Tensor, inputs: SamplingInputs, out: Tensor | None) -> tuple[Launch, Tensor]:
    """See ``GraphBackend.sample`` → the launch and its output."""
    rows, vocab = logits.shape
    assert logits.dtype == torch.float32
    assert logits.stride(1) == 1
    if out is None:
        out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    arguments = {
        "logits": logits,
        "inverse_temperature": inputs.inverse_temperature,
        "top_k": inputs.top_k,
        "top_p": inputs.top_p,
        "min_p": inputs.min_p,
        "keys": inputs.keys,
        "counters": inputs.counters,
        "out": out,
        "size": vocab,
        "stride": logits.stride(0),
        "BLOCK": min(triton.next_power_of_2(vocab), BLOCK),
    }
    return Launch(sample_kernel, (rows,), arguments, 8), out
