"""What the paged operations need to know of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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

    @property
    def num_seqs(self) -> int:
        return self.seq_lens.shape[0]
