"""Logits that keep to the grammars of their choices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagedd.runtime.sampling_rows import SamplingRows


def is_guided(rows: SamplingRows, where: npt.NDArray[np.int64]) -> bool:
    """Whether any of the slots ``where`` has a grammar."""
    return bool(rows.guides) and any(slot in rows.guides for slot in where.tolist())


def masked_logits(
    rows: SamplingRows,
    logits: Tensor,
    where: npt.NDArray[np.int64],
    at: npt.NDArray[np.int64] | None = None,
) -> Tensor:
    """``logits [rows, vocab]`` float32 with -inf for what the grammars of their slots forbid.

    ``where [slots]`` have the rows ``at [slots]``, or those of their own order. The given tensor
    is left as it is, and returned if none of them has a grammar. NaN stays: a row that holds one
    must still be found out. A row where nothing is allowed has nothing finite.
    """
    slots = where.tolist()
    guided = [place for place, slot in enumerate(slots) if slot in rows.guides]
    if not guided:
        return logits
    assert rows.grammars is not None
    masks = rows.grammars.fill([rows.guides[slots[place]] for place in guided])
    index = torch.from_numpy(np.array(guided) if at is None else at[guided]).to(logits.device)
    expand = _expand_on_device if logits.is_cuda else _expand_on_host
    allowed = expand(masks, logits)
    result = logits.clone()
    picked = logits.index_select(0, index)
    result[index] = torch.where(allowed, picked, picked.clamp(max=-torch.inf))
    return result


def _expand_on_host(masks: npt.NDArray[np.int32], logits: Tensor) -> Tensor:
    """[rows, words] of 32 bits → bool [rows, vocab]."""
    vocab = logits.shape[1]
    bits = np.unpackbits(masks.view(np.uint8), axis=1, count=vocab, bitorder="little")
    return torch.from_numpy(bits.view(np.bool_)).to(logits.device)


def _expand_on_device(masks: npt.NDArray[np.int32], logits: Tensor) -> Tensor:
    """The same, with an eighth of a byte a token to send; the host does not wait."""
    device = logits.device
    words = torch.from_numpy(masks)
    if logits.is_cuda:
        words = words.pin_memory().to(device, non_blocking=True)
    shifts = torch.arange(32, dtype=torch.int32, device=device)
    bits = (words[:, :, None] >> shifts) & 1
    return bits.flatten(1)[:, : logits.shape[1]].to(torch.bool)
