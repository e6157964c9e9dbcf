"""The batch of a device that works through a queue: known to the host but for the drawn tokens.

The device keeps the page tables and, for each slot, the token drawn last. A step brings changes of
the tables, and says of each row whether its token comes with it or is the one drawn last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagedd.core.plan import Chunk, Grow, Join
from pagedd.runtime.batch import Batch, sampled_rows
from pagedd.runtime.sampling_rows import SamplingRows
from pagedd.runtime.staging import Field, Layout, Staging
from pagedd_kernels.inputs import PagedInputs, SamplingInputs

INT, LONG, FLOAT = torch.int32, torch.int64, torch.float32
MOST_CHANGES = 1 << 16  # of page tables, that go to the device with a step; others go before it


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A step as the device sees it: views of the staging buffer."""

    token_ids: Tensor  # [tokens] int64, where the host knows them
    fed: Tensor  # [tokens] int64: the slot whose last token it is, or max_num_seqs: token_ids
    batch_slots: Tensor  # [num_seqs] int64, the row of the page tables of each sequence
    prompt_lens: Tensor  # [num_seqs] int32
    draw_rows: Tensor | None  # [draws] int64, rows to draw from; None: all, once
    draw_slots: Tensor  # [draws] int64, where the drawn tokens are kept
    paged: PagedInputs  # page_table is empty: it is taken from the tables
    sampling: SamplingInputs  # [draws]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Which slots draw in a step, in plan order."""

    slots: npt.NDArray[np.int64]  # [draws]
    rows: npt.NDArray[np.int64]  # [draws], whose logits they draw from
    num_tokens: npt.NDArray[np.int64]  # [draws], tokens known or drawn before


def layout_of(tokens: int, seqs: int, draws: int, changes: int) -> Layout:
    """The arrays of a step. Those whose length differs between steps of one graph come last."""
    return Layout(
        (
            Field("token_ids", LONG, tokens),
            Field("positions", LONG, tokens),
            Field("slots", LONG, tokens),
            Field("fed", LONG, tokens),
            Field("cu_seqlens", INT, seqs + 1),
            Field("seq_lens", INT, seqs),
            Field("prompt_lens", INT, seqs),
            Field("batch_slots", LONG, seqs),
            Field("draw_rows", LONG, draws),
            Field("draw_slots", LONG, draws),
            Field("keys", LONG, draws),
            Field("counters", LONG, draws),
            Field("inverse_temperature", FLOAT, draws),
            Field("top_k", INT, draws),
            Field("top_p", FLOAT, draws),
            Field("min_p", FLOAT, draws),
            Field("change_places", LONG, changes),
            Field("change_pages", INT, changes),
        )
    )


class QueuedBatch:
    """Rows 0 ≤ slot < max_num_seqs, and one that is nobody's, for padding.

    ``tables [max_num_seqs + 1, max_pages]`` int32 and ``last [max_num_seqs + 1]`` int64 are the
    device's. ``host`` knows of each row the tokens that it joined with, and how many there are now.
    ``kv_scales``: see ``PagedInputs``.
    """

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_tokens: int,
        max_model_len: int,
        page_size: int,
        device: torch.device,
        kv_scales: Tensor | None = None,
    ) -> None:
        self.host = Batch(
            max_num_seqs=max_num_seqs,
            max_tokens=1,
            max_model_len=max_model_len,
            page_size=page_size,
        )
        self.nobody = max_num_seqs
        self.kv_scales = kv_scales
        self.max_pages = self.host.pages.shape[1]
        self.drawn = np.zeros(max_num_seqs + 1, dtype=bool)  # the last token came from the device
        self.tables = torch.zeros(max_num_seqs + 1, self.max_pages, dtype=INT, device=device)
        self.last = torch.zeros(max_num_seqs + 1, dtype=LONG, device=device)
        self._changes: dict[int, int] = {}  # of the flat tables: place → page
        largest = layout_of(max_tokens, max_num_seqs, max_num_seqs, MOST_CHANGES)
        self.staging = Staging(largest.nbytes, device)

    @property
    def nbytes(self) -> int:
        """Memory of the device."""
        return self.tables.nbytes + self.last.nbytes + self.staging.device.nbytes

    def join(self, join: Join) -> None:
        """A sequence takes its row."""
        self.host.join(join)
        self.drawn[join.slot] = False
        first = join.slot * self.max_pages
        self._changes.update(enumerate(join.pages, start=first))

    def grow(self, grow: Grow) -> None:
        """A row's page table gets a new or another page."""
        self.host.grow(grow)
        self._changes[grow.slot * self.max_pages + grow.logical] = grow.page

    def draw(self, drawing: Drawing) -> None:
        """The step is in the queue: each of these rows has a token more, which the device knows."""
        self.host.num_tokens[drawing.slots] += 1
        self.drawn[drawing.slots] = True

    def drawing(self, chunks: tuple[Chunk, ...]) -> Drawing:
        """Who draws in a step."""
        slots, rows = sampled_rows(chunks)
        where = np.array(slots, dtype=np.int64)
        return Drawing(where, np.array(rows, dtype=np.int64), self.host.num_tokens[where])

    def send(
        self, chunks: tuple[Chunk, ...], drawing: Drawing, rows: SamplingRows, padded: int | None
    ) -> Layout:
        """Add the inputs of a step to the queue, and the changes of the tables; where they are.

        ``padded``: single-token chunks alone, padded to so many of them; each draws from its row.
        """
        lengths = np.fromiter((chunk.length for chunk in chunks), np.int64, len(chunks))
        tokens = padded or int(lengths.sum())
        seqs = padded or len(chunks)
        draws = padded or len(drawing.slots)
        self._send_excess()
        layout = layout_of(tokens, seqs, draws, len(self._changes))
        views = self.staging.begin(layout)
        self._write_rows(views, chunks, lengths)
        if padded is None:
            views["draw_rows"][:] = drawing.rows
            self._write_draws(views, slice(None), drawing, rows)
        else:
            self._pad(views, len(chunks))
            self._write_draws(views, drawing.rows, drawing, rows)
        views["change_places"][:] = list(self._changes)
        views["change_pages"][:] = list(self._changes.values())
        self.staging.upload(layout)
        self._change(layout.views(self.staging.device))
        self._changes.clear()
        return layout

    def send_nothing(self, layout: Layout) -> None:
        """Inputs of ``layout`` in which every row is padding."""
        self._pad(self.staging.begin(layout), 0)
        self.staging.upload(layout)

    def inputs(self, layout: Layout, chunks: tuple[Chunk, ...] | None) -> StepInputs:
        """What was sent by ``layout``; ``chunks`` None: any single-token chunks, one a sequence."""
        views = layout.views(self.staging.device)
        longest, length, decodes = self.max_pages * self.host.page_size, 1, len(views["seq_lens"])
        if chunks is not None:
            longest = max(chunk.start + chunk.length for chunk in chunks)
            length = max(chunk.length for chunk in chunks)
            decodes = sum(chunk.length == 1 for chunk in chunks)
        paged = PagedInputs(
            positions=views["positions"],
            slots=views["slots"],
            cu_seqlens=views["cu_seqlens"],
            seq_lens=views["seq_lens"],
            page_table=self.tables[:0],
            num_decode=decodes,
            max_query_len=length,
            max_seq_len=longest,
            kv_scales=self.kv_scales,
        )
        names = ("inverse_temperature", "top_k", "top_p", "min_p", "keys", "counters")
        return StepInputs(
            token_ids=views["token_ids"],
            fed=views["fed"],
            batch_slots=views["batch_slots"],
            prompt_lens=views["prompt_lens"],
            draw_rows=None if chunks is None else views["draw_rows"],
            draw_slots=views["draw_slots"],
            paged=paged,
            sampling=SamplingInputs(**{name: views[name] for name in names}),
        )

    def _write_rows(
        self,
        views: Mapping[str, npt.NDArray[Any]],
        chunks: tuple[Chunk, ...],
        lengths: npt.NDArray[np.int64],
    ) -> None:
        """All that goes by token or by sequence."""
        host, size, seqs = self.host, self.host.page_size, len(chunks)
        slots = np.fromiter((chunk.slot for chunk in chunks), np.int64, seqs)
        starts = np.fromiter((chunk.start for chunk in chunks), np.int64, seqs)
        ends = np.cumsum(lengths)
        tokens = int(ends[-1])
        row_slots = np.repeat(slots, lengths)
        positions = np.arange(tokens) + np.repeat(starts - (ends - lengths), lengths)
        views["token_ids"][:tokens] = host.tokens[row_slots, positions]
        views["positions"][:tokens] = positions
        page = host.pages[row_slots, positions // size].astype(np.int64)
        views["slots"][:tokens] = page * size + positions % size
        last = positions == host.num_tokens[row_slots] - 1
        views["fed"][:tokens] = np.where(last & self.drawn[row_slots], row_slots, self.nobody)
        cu = views["cu_seqlens"]
        cu[0] = 0
        cu[1 : seqs + 1] = ends
        views["seq_lens"][:seqs] = starts + lengths
        views["prompt_lens"][:seqs] = host.num_prompt[slots]
        views["batch_slots"][:seqs] = slots

    def _write_draws(
        self,
        views: Mapping[str, npt.NDArray[Any]],
        places: slice | npt.NDArray[np.int64],
        drawing: Drawing,
        rows: SamplingRows,
    ) -> None:
        """All that goes by drawn token, at ``places`` of the arrays."""
        slots = drawing.slots
        views["draw_slots"][places] = slots
        views["keys"][places] = rows.keys[slots].view(np.int64)
        views["counters"][places] = drawing.num_tokens
        inverse = np.where(rows.greedy[slots], np.float32(0), 1 / rows.temperature[slots])
        views["inverse_temperature"][places] = inverse
        views["top_k"][places] = rows.top_k[slots]
        views["top_p"][places] = rows.top_p[slots]
        views["min_p"][places] = rows.min_p[slots]

    def _pad(self, views: Mapping[str, npt.NDArray[Any]], used: int) -> None:
        """Rows beyond ``used`` write nothing and are nobody's; what draws is set after that."""
        views["slots"][used:] = -1
        views["fed"][used:] = self.nobody
        views["batch_slots"][used:] = self.nobody
        for name in ("token_ids", "positions", "seq_lens", "prompt_lens"):
            views[name][used:] = 0
        views["cu_seqlens"][:] = np.arange(len(views["cu_seqlens"]))
        views["draw_slots"][:] = self.nobody
        for name in ("inverse_temperature", "top_k", "min_p", "keys", "counters"):
            views[name][:] = 0
        views["top_p"][:] = 1

    def _change(self, views: Mapping[str, Tensor]) -> None:
        if len(views["change_places"]):
            self.tables.view(-1).index_copy_(0, views["change_places"], views["change_pages"])

    def _send_excess(self) -> None:
        """More changes than a step takes along: long tables of many that join at once."""
        if len(self._changes) > MOST_CHANGES:
            device = self.tables.device
            places = torch.tensor(list(self._changes), dtype=LONG).to(device)
            pages = torch.tensor(list(self._changes.values()), dtype=INT).to(device)
            self._change({"change_places": places, "change_pages": pages})
            self._changes.clear()
