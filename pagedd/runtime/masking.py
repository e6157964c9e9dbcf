"""Logits that keep to the grammars of their choices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagedd.runtime.sampling_rows import SamplingRows

# What a byte of a mask adds to the logits of its eight tokens: 0 or -inf. [256, 8] float32.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_ADDENDS = np.where(_BITS == 1, np.float32(0), np.float32(-np.inf))
_ADDENDS.setflags(write=False)


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
    is left as it is, and returned if none of them has a grammar. A row where nothing is allowed has
    nothing finite.
    """
    if not rows.guides:
        return logits
    slots = where.tolist()
    guided = [place for place, slot in enumerate(slots) if slot in rows.guides]
    if not guided:
        return logits
    assert rows.grammars is not None
    masks = rows.grammars.fill([rows.guides[slots[place]] for place in guided])
    places = np.array(guided) if at is None else at[guided]
    # What is forbidden is added, so that NaN stays: a row that holds one must still be found out.
    if logits.is_cuda:
        index = torch.from_numpy(places).to(logits.device)
        forbidden = torch.where(_expanded(masks, logits), 0.0, -torch.inf)
        return logits.index_add(0, index, forbidden)
    result = logits.clone()
    whole = result.numpy()
    for place, mask in zip(places, masks, strict=True):
        whole[place] += _ADDENDS.take(mask.view(np.uint8), axis=0).reshape(-1)[: logits.shape[1]]
    return result


def _expanded(masks: npt.NDArray[np.int32], logits: Tensor) -> Tensor:
    """[rows, words] of 32 bits → bool [rows, vocab], on the device; the host does not wait."""
    device = logits.device
    words = torch.from_numpy(masks)
    if logits.is_cuda:
        words = words.pin_memory().to(device, non_blocking=True)
    shifts = torch.arange(32, dtype=torch.int32, device=device)
    bits = (words[:, :, None] >> shifts) & 1
    return bits.flatten(1)[:, : logits.shape[1]].to(torch.bool)
