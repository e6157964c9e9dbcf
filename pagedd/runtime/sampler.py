"""Draws one token a row, every parameter of the protocol at once over the rows.

A row's token depends on its own logits, its parameters and (key, position) alone, so batch mates
cannot change it. A row that holds NaN, or nothing finite, gives -1 and touches no other row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagedd.core.plan import Join, Sampled, TokenLogprobs, TopLogprob
from pagedd.runtime.filters import threshold
from pagedd.runtime.masking import is_guided, masked_logits
from pagedd.runtime.random import uniform
from pagedd.runtime.sampling_rows import SamplingRows
from pagedd.runtime.shaping import is_shaped, shaped_logits


@runtime_checkable
class Draws(Protocol):
    """The two row-wise searches over the vocabulary; a compiled backend may bring its own."""

    def argmax(self, logits: Tensor) -> Tensor:
        """[rows, vocab] float32 → [rows] int64; the least id wins a tie, -1 for NaN."""

    def draw(self, logits: Tensor, inv_temperature: Tensor, u: Tensor) -> Tensor:
        """Inverse of the cumulative distribution at u [rows] float64 → [rows] int64, -1 for NaN."""


class TorchDraws:
    """The specification of :class:`Draws`, in torch."""

    def argmax(self, logits: Tensor) -> Tensor:
        peak = logits.amax(dim=1)  # NaN if any is NaN
        vocab = logits.shape[1]
        ids = torch.arange(vocab, device=logits.device)
        first = torch.where(logits == peak[:, None], ids, vocab).amin(dim=1)
        return torch.where(peak.isfinite(), first, -1)

    def draw(self, logits: Tensor, inv_temperature: Tensor, u: Tensor) -> Tensor:
        peak = logits.amax(dim=1)
        weights = ((logits - peak[:, None]) * inv_temperature[:, None]).exp()
        cumulative = weights.cumsum(dim=1, dtype=torch.float64)
        target = u * cumulative[:, -1]
        drawn = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
        # rounding may put the target on the very end: take the last token that has any weight
        last = logits.shape[1] - 1 - (weights > 0).flip(1).to(torch.int8).argmax(dim=1)
        return torch.where(peak.isfinite(), torch.minimum(drawn, last), -1)


class Sampler:
    """Sampling state of all slots. ``draws`` may be the CPU backend's compiled searches."""

    def __init__(self, rows: SamplingRows, draws: Draws) -> None:
        self.rows = rows
        self.draws = draws

    def join(self, join: Join) -> None:
        """A sequence takes a slot."""
        self.rows.join(join)

    def leave(self, slot: int) -> None:
        """A sequence gives its slot back."""
        self.rows.leave(slot)

    def is_plain(self, slots: Sequence[int], num_tokens: npt.NDArray[np.int64]) -> bool:
        """Whether each of the rows takes its largest logit as it is, and tells nothing of it."""
        rows, where = self.rows, np.array(slots, dtype=np.int64)
        if not rows.greedy[where].all() or (rows.num_logprobs[where] >= 0).any():
            return False
        return not (is_shaped(rows, where, num_tokens) or is_guided(rows, where))

    def sample(
        self, logits: Tensor, slots: Sequence[int], num_tokens: npt.NDArray[np.int64]
    ) -> list[Sampled]:
        """One token for each row of logits [rows, vocab] float32.

        ``slots`` [rows] name the sequences, ``num_tokens`` [rows] counts their known tokens.
        """
        where = np.array(slots, dtype=np.int64)
        wanted = self.rows.num_logprobs[where]
        raw = logits if (wanted >= 0).any() else None
        shaped = shaped_logits(self.rows, logits, where, num_tokens)
        shaped = masked_logits(self.rows, shaped, where)
        tokens = self._draw(shaped, where, num_tokens).tolist()
        for slot, token in zip(slots, tokens, strict=True):
            if token >= 0 and self.rows.penalised[slot] and self.rows.counts is not None:
                self.rows.counts[slot, token] += 1
            if slot in self.rows.guides:
                self.rows.guides[slot].advance(token)
        if raw is None:
            return [Sampled(slot, token) for slot, token in zip(slots, tokens, strict=True)]
        entries = _logprobs(raw, tokens, wanted.tolist())
        return [Sampled(s, t, e) for s, t, e in zip(slots, tokens, entries, strict=True)]

    def _draw(
        self, logits: Tensor, where: npt.NDArray[np.int64], num_tokens: npt.NDArray[np.int64]
    ) -> Tensor:
        greedy = self.rows.greedy[where]
        if greedy.all():
            return self.draws.argmax(logits)
        if not greedy.any():
            return self._random(logits, where, num_tokens)
        tokens = torch.empty(len(where), dtype=torch.int64, device=logits.device)
        for part, draw in ((np.flatnonzero(greedy), None), (np.flatnonzero(~greedy), self._random)):
            index = torch.from_numpy(part).to(logits.device)
            picked = logits[index]
            tokens[index] = (
                self.draws.argmax(picked)
                if draw is None
                else draw(picked, where[part], num_tokens[part])
            )
        return tokens

    def _random(
        self, logits: Tensor, where: npt.NDArray[np.int64], num_tokens: npt.NDArray[np.int64]
    ) -> Tensor:
        rows, device = self.rows, logits.device
        inverse = torch.from_numpy(1.0 / rows.temperature[where]).to(device)
        filtered = np.flatnonzero(rows.filtered[where])
        if filtered.size:
            index = torch.from_numpy(filtered).to(device)
            slots = where[filtered]
            picked = logits[index]
            scaled = picked * inverse[index][:, None]
            least = threshold(
                scaled,
                torch.from_numpy(rows.top_k[slots]).to(device),
                torch.from_numpy(rows.top_p[slots]).to(device),
                torch.from_numpy(rows.min_p[slots]).to(device),
            )
            logits = logits.clone()
            # written so that NaN stays: a row that holds one must still be found out
            logits[index] = picked.masked_fill(scaled < least[:, None], -torch.inf)
        u = torch.from_numpy(uniform(rows.keys[where], num_tokens)).to(device)
        return self.draws.draw(logits, inverse, u)


def _logprobs(logits: Tensor, tokens: list[int], wanted: list[int]) -> list[TokenLogprobs | None]:
    """Entries for the rows that asked: log-softmax of the raw logits [rows, vocab]."""
    index = [i for i, n in enumerate(wanted) if n >= 0 and tokens[i] >= 0]
    entries: list[TokenLogprobs | None] = [None] * len(tokens)
    if not index:
        return entries
    table = logits[index].log_softmax(dim=1)
    most = min(max(wanted), logits.shape[1])
    values, ids = table.topk(most, dim=1)
    chosen = table.gather(1, torch.tensor([[tokens[i]] for i in index], device=table.device))
    for row, i in enumerate(index):
        n = wanted[i]
        pairs = zip(ids[row, :n].tolist(), values[row, :n].tolist(), strict=True)
        top = tuple(TopLogprob(token, value) for token, value in pairs)
        entries[i] = TokenLogprobs(float(chosen[row, 0]), top)
    return entries
