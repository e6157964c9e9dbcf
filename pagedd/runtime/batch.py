"""The persistent batch: one row (slot) per running sequence, and a step's tensors built from it.

Arrays are allocated once. A step touches only what the plan names; the tensors handed to the model
are views of the staging buffers and are valid until the next :meth:`Batch.build`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagedd.core.plan import Chunk, Grow, Join
from pagedd_kernels.inputs import PagedInputs


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """One step for the model. Views of the staging buffers."""

    token_ids: Tensor  # [tokens] int64
    prompt_lens: Tensor  # [num_seqs] int32, prompt length of each sequence
    paged: PagedInputs

    def to(self, device: torch.device) -> ModelInputs:
        """The same on ``device``."""
        names = ("positions", "slots", "cu_seqlens", "seq_lens", "page_table")
        moved = {name: getattr(self.paged, name).to(device) for name in names}
        return ModelInputs(
            self.token_ids.to(device), self.prompt_lens.to(device), replace(self.paged, **moved)
        )


def sampled_rows(chunks: tuple[Chunk, ...]) -> tuple[list[int], list[int]]:
    """For every drawing slot, in plan order: the slot, and the row whose logits it draws from."""
    slots: list[int] = []
    rows: list[int] = []
    end = 0
    for chunk in chunks:
        end += chunk.length
        for slot in chunk.samples:
            slots.append(slot)
            rows.append(end - 1)
    return slots, rows


def _staging(size: int | tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, npt.NDArray[Any]]:
    tensor = torch.zeros(size, dtype=dtype)
    return tensor, tensor.numpy()


class Batch:
    """Rows 0 ≤ slot < max_num_seqs: known tokens, prompt length and page table of each."""

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_tokens: int,
        max_model_len: int,
        page_size: int,
    ) -> None:
        self.page_size = page_size
        max_pages = -(-max_model_len // page_size)
        # calloc'ed: rows that no sequence reaches cost no memory
        self.tokens = np.zeros((max_num_seqs, max_model_len + 1), dtype=np.int32)
        self.num_tokens = np.zeros(max_num_seqs, dtype=np.int64)
        self.num_prompt = np.zeros(max_num_seqs, dtype=np.int32)
        self.pages = np.zeros((max_num_seqs, max_pages), dtype=np.int32)
        self._token_ids, self._np_token_ids = _staging(max_tokens, torch.int64)
        self._positions, self._np_positions = _staging(max_tokens, torch.int64)
        self._slots, self._np_slots = _staging(max_tokens, torch.int64)
        self._cu_seqlens, self._np_cu_seqlens = _staging(max_num_seqs + 1, torch.int32)
        self._seq_lens, self._np_seq_lens = _staging(max_num_seqs, torch.int32)
        self._prompt_lens, self._np_prompt_lens = _staging(max_num_seqs, torch.int32)
        self._table, self._np_table = _staging(max_num_seqs * max_pages, torch.int32)

    def join(self, join: Join) -> None:
        """A sequence takes its row."""
        slot, n = join.slot, len(join.tokens)
        self.tokens[slot, :n] = join.tokens
        self.num_tokens[slot] = n
        self.num_prompt[slot] = join.num_prompt
        self.pages[slot, : len(join.pages)] = join.pages

    def grow(self, grow: Grow) -> None:
        """A row's page table gets a new or another page."""
        self.pages[grow.slot, grow.logical] = grow.page

    def append(self, slots: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> None:
        """The drawn tokens become known. slots, tokens [rows]; slots are distinct."""
        self.tokens[slots, self.num_tokens[slots]] = tokens
        self.num_tokens[slots] += 1

    def pages_read(self, chunks: Iterable[Chunk]) -> set[int]:
        """See ``swap.PageTables``."""
        return self._pages_of((slot, 0, start + length) for slot, start, length, _ in chunks)

    def pages_written(self, chunks: Iterable[Chunk]) -> set[int]:
        """See ``swap.PageTables``."""
        return self._pages_of((slot, start, start + length) for slot, start, length, _ in chunks)

    def build(self, chunks: tuple[Chunk, ...]) -> ModelInputs:
        """The tensors of a step from its chunks (single-token chunks first)."""
        num_seqs = len(chunks)
        columns = zip(*chunks, strict=True)  # far quicker than an array of the tuples
        slots, starts, lengths = (np.array(next(columns), dtype=np.int64) for _ in range(3))
        ends = starts + lengths
        cu = self._np_cu_seqlens[: num_seqs + 1]
        np.cumsum(lengths, out=cu[1:])
        num_tokens = int(cu[-1])
        rows, positions = self._rows(slots, starts, lengths, num_tokens)
        self._np_token_ids[:num_tokens] = self.tokens[rows, positions]
        page = self.pages[rows, positions // self.page_size].astype(np.int64)
        self._np_slots[:num_tokens] = page * self.page_size + positions % self.page_size
        self._np_seq_lens[:num_seqs] = ends
        self._np_prompt_lens[:num_seqs] = self.num_prompt[slots]
        max_seq_len = int(ends.max())
        width = -(-max_seq_len // self.page_size)
        self._np_table[: num_seqs * width].reshape(num_seqs, width)[:] = self.pages[slots, :width]
        longest = int(lengths.max())
        paged = PagedInputs(
            positions=self._positions[:num_tokens],
            slots=self._slots[:num_tokens],
            cu_seqlens=self._cu_seqlens[: num_seqs + 1],
            seq_lens=self._seq_lens[:num_seqs],
            page_table=self._table[: num_seqs * width].view(num_seqs, width),
            num_decode=num_seqs if longest == 1 else int((lengths > 1).argmax()),
            max_query_len=longest,
            max_seq_len=max_seq_len,
        )
        return ModelInputs(self._token_ids[:num_tokens], self._prompt_lens[:num_seqs], paged)

    def _pages_of(self, spans: Iterable[tuple[int, int, int]]) -> set[int]:
        """The pages of the positions begin ≤ p < end, for each (slot, begin, end)."""
        pages: set[int] = set()
        for slot, begin, end in spans:
            last = -(-end // self.page_size)
            pages.update(self.pages[slot, begin // self.page_size : last].tolist())
        return pages

    def _rows(
        self,
        slots: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        num_tokens: int,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Slot and position of every row; positions are written to the staging buffer."""
        positions = self._np_positions[:num_tokens]
        if num_tokens == len(slots):  # decode only
            positions[:] = starts
            return slots, positions
        first = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        np.add(np.arange(num_tokens), first, out=positions)
        return np.repeat(slots, lengths), positions
