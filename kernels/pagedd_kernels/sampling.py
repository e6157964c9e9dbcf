"""Drawing tokens in plain torch: the specification of ``GraphBackend.sample``."""

from __future__ import annotations

import torch
from torch import Tensor

from pagedd_kernels.inputs import SamplingInputs

# As signed 64-bit integers: torch has no arithmetic on unsigned ones, and products wrap alike.
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
SECOND = 0x94D049BB133111EB - (1 << 64)


def uniform(keys: Tensor, counters: Tensor) -> Tensor:
    """The numbers ``counters [rows]`` of the streams ``keys [rows]``, both int64.

    → ``[rows]`` float64 in [0, 1) with 53 bits. The finaliser of SplitMix64 (Steele, Lea, Flood
    2014), twice, so that neighbouring keys give unrelated streams.
    """
    bits = _mix(_mix(keys + counters * GOLDEN) + GOLDEN)
    return _shifted(bits, 11).double() * 2.0**-53


def sample(logits: Tensor, inputs: SamplingInputs) -> Tensor:
    """See ``GraphBackend.sample``: sorts each row, then inverts the cumulative distribution."""
    peak = logits.amax(dim=1)  # NaN if any is NaN
    inverse = inputs.inverse_temperature[:, None]
    scaled = logits * inverse
    least = threshold(scaled, inputs)
    weights = ((logits - peak[:, None]) * inverse).exp()
    weights = torch.where(scaled >= least[:, None], weights, 0.0)
    cumulative = weights.cumsum(dim=1, dtype=torch.float64)
    target = uniform(inputs.keys, inputs.counters) * cumulative[:, -1]
    drawn = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
    # rounding may put the target on the very end: take the last token that has any weight
    last = logits.shape[1] - 1 - (weights > 0).flip(1).to(torch.int8).argmax(dim=1)
    largest = torch.where(logits == peak[:, None], 1, 0).argmax(dim=1)
    drawn = torch.where(inputs.inverse_temperature > 0, torch.minimum(drawn, last), largest)
    return torch.where(peak.isfinite(), drawn, -1)


def threshold(scaled: Tensor, inputs: SamplingInputs) -> Tensor:
    """The least of ``scaled [rows, vocab]`` (logits / temperature) that may be drawn → ``[rows]``.

    min-p first, then top-k, then top-p of what is left; values equal to the least are all kept.
    """
    vocab = scaled.shape[1]
    top_k, top_p = inputs.top_k[:, None], inputs.top_p[:, None]
    peak = scaled.amax(dim=1, keepdim=True)
    least = torch.where(inputs.min_p > 0, peak[:, 0] + inputs.min_p.log(), -torch.inf)
    kept = torch.where(scaled >= least[:, None], scaled, -torch.inf)
    ranked = kept.sort(dim=1, descending=True).values
    limit = torch.where(top_k > 0, top_k.clamp(max=vocab), vocab)
    inside = torch.arange(vocab, device=scaled.device) < limit
    weights = torch.where(inside, (ranked - peak).exp(), 0.0)
    before = weights.cumsum(dim=1) - weights
    nucleus = inside & ((before < top_p * weights.sum(dim=1, keepdim=True)) | (top_p >= 1))
    last = (nucleus.sum(dim=1) - 1).clamp(min=0)  # the largest is always kept
    return torch.maximum(ranked.gather(1, last[:, None])[:, 0], least)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * FIRST
    x = (x ^ _shifted(x, 27)) * SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shift to the right as an unsigned number."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
