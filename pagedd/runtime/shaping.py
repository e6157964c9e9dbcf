"""What requests change about their logits: bias, forbidden ends, penalties."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagedd.runtime.filters import apply_penalties
from pagedd.runtime.sampling_rows import SamplingRows


def is_shaped(
    rows: SamplingRows, where: npt.NDArray[np.int64], num_tokens: npt.NDArray[np.int64]
) -> bool:
    """Whether :func:`shaped_logits` would change anything for the slots ``where``."""
    if rows.penalised[where].any():
        return True
    if not rows.bias and not rows.ends:
        return False
    biased, early = _touched(rows, where, num_tokens)
    return bool(biased or early)


def shaped_logits(
    rows: SamplingRows,
    logits: Tensor,
    where: npt.NDArray[np.int64],
    num_tokens: npt.NDArray[np.int64],
) -> Tensor:
    """``logits [rows, vocab]`` float32 of the slots ``where [rows]``, which know ``num_tokens``.

    The given tensor is left as it is, and returned if nothing changes.
    """
    biased, early = _touched(rows, where, num_tokens)
    penal = np.flatnonzero(rows.penalised[where])
    if not (biased or early or penal.size):
        return logits
    shaped = logits.clone()
    device = shaped.device
    for i in biased:
        _, ids, values = rows.bias[int(where[i])]
        if ids is None:
            shaped[i].add_(values.to(device))
        else:
            shaped[i].index_add_(0, ids.to(device), values.to(device))
    for i in early:
        shaped[i, rows.ends[int(where[i])].to(device)] = -torch.inf
    if penal.size and rows.counts is not None and rows.prompt_mask is not None:
        index = torch.from_numpy(penal).to(device)
        slots = torch.from_numpy(where[penal]).to(rows.device)
        shaped[index] = apply_penalties(
            shaped[index],
            rows.counts[slots].to(device),
            rows.prompt_mask[slots].to(device),
            *(
                torch.from_numpy(values[where[penal]]).to(device)
                for values in (rows.presence, rows.frequency, rows.repetition)
            ),
        )
    return shaped


def _touched(
    rows: SamplingRows, where: npt.NDArray[np.int64], num_tokens: npt.NDArray[np.int64]
) -> tuple[list[int], list[int]]:
    """Rows with a bias, and rows that may not end yet."""
    slots = where.tolist()
    biased = [i for i, slot in enumerate(slots) if slot in rows.bias]
    early = [
        i
        for i, slot in enumerate(slots)
        if slot in rows.ends and num_tokens[i] < rows.min_len[slot]
    ]
    return biased, early
