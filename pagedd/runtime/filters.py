"""Changes to the logits before a token is drawn. Shapes: logits [rows, vocab] float32.

Order as in vLLM: logit_bias and min_tokens, then penalties, then temperature, then min-p, top-k and
top-p. Every filter gives a threshold a row: what lies below it cannot be drawn, ties are kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Candidates looked at before a whole row is sorted: at top_p = 0.95 the nucleus of a language model
# is far smaller, and selecting a thousand is ten times cheaper than sorting fifty thousand.
SHORTLIST = 1024


def apply_penalties(
    logits: Tensor,
    counts: Tensor,
    prompt_mask: Tensor,
    presence: Tensor,
    frequency: Tensor,
    repetition: Tensor,
) -> Tensor:
    """Repetition over prompt and output (Keskar et al. 2019), then frequency and presence.

    logits [rows, vocab] float32, counts [rows, vocab] int32 of generated tokens, prompt_mask
    [rows, vocab] bool, the others [rows] float32 → a new tensor like logits.
    """
    seen = counts > 0
    factor = torch.where(seen | prompt_mask, repetition[:, None], 1.0)
    logits = torch.where(logits > 0, logits / factor, logits * factor)
    return logits - frequency[:, None] * counts - presence[:, None] * seen


def threshold(scaled: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """The least logit that may be drawn, for every row.

    scaled [rows, vocab] float32 (divided by the temperature), top_k [rows] int64 (0: off),
    top_p and min_p [rows] float32 → [rows] float32. min-p cuts below min_p · the largest
    probability; top-k keeps the k largest; top-p keeps the smallest set, of what is left, that
    reaches its share.
    """
    peak = scaled.amax(dim=1)
    least = torch.where(min_p > 0, peak + min_p.log(), -torch.inf)
    vocab = scaled.shape[1]
    width = min(SHORTLIST, vocab)
    kept = torch.where(scaled >= least[:, None], scaled, -torch.inf)
    ranked = kept.topk(width, dim=1).values
    total = (kept - peak[:, None]).exp().sum(dim=1)
    by_k = top_k > 0
    nothing = ~by_k & (top_p >= 1.0)
    enough = (ranked - peak[:, None]).exp().sum(dim=1) >= top_p * total
    short = nothing | torch.where(by_k, top_k <= width, enough)
    result = least.clone()
    for rows, whole in ((short, False), (~short, True)):
        if bool(rows.any()):
            values = kept[rows].sort(descending=True).values if whole else ranked[rows]
            cut = _cut(values, peak[rows], total[rows], top_k[rows], top_p[rows])
            result[rows] = torch.where(nothing[rows], least[rows], torch.maximum(cut, least[rows]))
    return result


def _cut(ranked: Tensor, peak: Tensor, total: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """The last value that top-k and top-p keep; ranked [rows, width] in descending order."""
    width = ranked.shape[1]
    limit = torch.where(top_k > 0, top_k.clamp(max=width), width)
    inside = torch.arange(width, device=ranked.device) < limit[:, None]
    weights = torch.where(inside, (ranked - peak[:, None]).exp(), 0.0)
    # without top-k the shortlist is only a part of the whole, whose sum is known
    whole = torch.where(top_k > 0, weights.sum(dim=1), total)
    before = weights.cumsum(dim=1) - weights
    nucleus = inside & ((before < top_p[:, None] * whole[:, None]) | (top_p >= 1.0)[:, None])
    nucleus[:, 0] = True
    last = nucleus.sum(dim=1) - 1
    return ranked.gather(1, last[:, None])[:, 0]
