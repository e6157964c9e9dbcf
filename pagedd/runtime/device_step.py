"""A step on the device, from its inputs to the drawn tokens, with nothing to wait for in between.

So it can be captured: for batches of single tokens a graph is recorded for each of some sizes, and
a step is padded to the next of them. Splits of the attention and all sizes are those of the padded
batch.
"""

# torch's graphs carry few annotations:
# mypy: allow-untyped-calls
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from pagedd.models.decoder import Decoder
from pagedd.runtime.queued_batch import QueuedBatch, StepInputs, layout_of
from pagedd_kernels.inputs import SamplingInputs


class Samples(Protocol):
    """The part of ``GraphBackend`` that draws tokens."""

    def sample(self, logits: Tensor, inputs: SamplingInputs, out: Tensor | None = None) -> Tensor:
        """See ``GraphBackend.sample``."""


class StepOutputs(NamedTuple):
    """What a step leaves on the device, until the next one."""

    logits: Tensor  # [draws, vocab] float32
    tokens: Tensor  # [draws] int64, -1: no valid logits


class DeviceStep:
    """The computation of a step on ``cache``; what it draws is kept in ``batch.last``."""

    def __init__(self, model: Decoder, sampler: Samples, batch: QueuedBatch, cache: Tensor) -> None:
        self._model = model
        self._sampler = sampler
        self._batch = batch
        self._cache = cache

    def __call__(self, inputs: StepInputs) -> StepOutputs:
        """Forward pass, logits of the rows that draw, tokens."""
        batch, paged = self._batch, inputs.paged
        known = inputs.fed == batch.nobody
        tokens = torch.where(known, inputs.token_ids, batch.last.index_select(0, inputs.fed))
        width = -(-paged.max_seq_len // batch.host.page_size)
        table = batch.tables[:, :width].index_select(0, inputs.batch_slots)
        paged = replace(paged, page_table=table)
        hidden = self._model.forward(tokens, paged, self._cache, inputs.prompt_lens)
        if inputs.draw_rows is not None:
            hidden = hidden.index_select(0, inputs.draw_rows)
        logits = self._model.logits(hidden)
        return StepOutputs(logits, self.draw(logits, inputs))

    def draw(self, logits: Tensor, inputs: StepInputs) -> Tensor:
        """Tokens from ``logits [draws, vocab]``, which become the last ones of their slots."""
        tokens = self._sampler.sample(logits, inputs.sampling)
        # where there are no valid logits the request ends; what follows needs an id all the same
        self._batch.last.index_copy_(0, inputs.draw_slots, tokens.clamp(min=0))
        return tokens


class Recording(Protocol):
    """A step that can be run again on what its inputs hold then."""

    def replay(self) -> None:
        """Add it to the queue."""


Record = Callable[[Callable[[], StepOutputs]], tuple[Recording, StepOutputs]]


def buckets(max_num_seqs: int) -> list[int]:
    """1, 2, 4, … below ``max_num_seqs``, and itself."""
    sizes = [1 << exponent for exponent in range(max_num_seqs.bit_length())]
    return [size for size in sizes if size < max_num_seqs] + [max_num_seqs]


class Graphs:
    """A recorded step for each bucket, the largest first, so that the others fit in its memory."""

    def __init__(self, step: DeviceStep, batch: QueuedBatch, record: Record | None) -> None:
        self._step = step
        self._batch = batch
        self._record = record
        self._found: dict[int, tuple[Recording, StepOutputs, StepInputs]] = {}

    @torch.inference_mode()
    def capture(self, sizes: list[int], progress: Callable[[float], None]) -> None:
        """Record the step for ``sizes``; ``progress`` gets 0 … 1. The batch is nobody's."""
        assert self._record is not None, "steps are not recorded"
        for done, size in enumerate(sorted(sizes, reverse=True)):
            progress(done / len(sizes))
            layout = layout_of(size, size, size, 0)
            inputs = self._batch.inputs(layout, None)
            self._batch.send_nothing(layout)
            recording, outputs = self._record(partial(self._step, inputs))
            self._found[size] = recording, outputs, inputs
        progress(1.0)

    def bucket(self, rows: int) -> int | None:
        """The least one for ``rows``; None: there is none."""
        return min((size for size in self._found if size >= rows), default=None)

    def replay(self, size: int) -> tuple[StepInputs, StepOutputs]:
        """Run the step of a bucket on what was sent for it."""
        recording, outputs, inputs = self._found[size]
        recording.replay()
        return inputs, outputs


class CudaRecorder:
    """Records into CUDA graphs that share one pool of memory: one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Callable[[], StepOutputs]) -> tuple[Recording, StepOutputs]:
        """Once as it is, so that libraries set up what they need, then recorded."""
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream):
            outputs = step()
        return graph, outputs
