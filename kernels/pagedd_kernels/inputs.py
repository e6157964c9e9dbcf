"""What the paged operations and the sampler need to know of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FP8 = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)  # what a cache can be in beside the activations' dtype


@dataclass(frozen=True, slots=True)
class PagedInputs:
    """One batch of rows (tokens) of ``num_seqs`` sequences, packed one after another.

    Sequence i owns the rows ``cu_seqlens[i] : cu_seqlens[i + 1]`` and, after this step's writes,
    ``seq_lens[i]`` tokens in the cache; its rows are the last of them. The first ``num_decode``
    sequences have exactly one row each.
    """

    positions: Tensor  # [tokens] int64, position of the row in its sequence
    slots: Tensor  # [tokens] int64, page · page_size + offset to write to; -1: padding, no write
    cu_seqlens: Tensor  # [num_seqs + 1] int32
    seq_lens: Tensor  # [num_seqs] int32
    page_table: Tensor  # [num_seqs, max_pages] int32, physical pages; unused entries are any value
    num_decode: int
    max_query_len: int
    max_seq_len: int
    # [layers, 2] float32: of a cache in 8 bits, what its keys and its values are multiplied with;
    # None: 1. No backend looks at it for another cache.
    kv_scales: Tensor | None = None

    @property
    def num_seqs(self) -> int:
        return self.seq_lens.shape[0]


@dataclass(frozen=True, slots=True)
class SamplingInputs:
    """How a token is drawn from each row of logits; all ``[rows]``, on the logits' device.

    The n-th draw of a stream depends on its key and n alone: not on the batch, nor on the device.
    """

    inverse_temperature: Tensor  # float32; 0: take the largest logit
    top_k: Tensor  # int32, keep so many of the largest; 0: off
    top_p: Tensor  # float32, keep the largest that together reach this share; 1: off
    min_p: Tensor  # float32, keep what has this share of the largest probability; 0: off
    keys: Tensor  # int64, the bits of the stream's unsigned key
    counters: Tensor  # int64, which number of the stream
