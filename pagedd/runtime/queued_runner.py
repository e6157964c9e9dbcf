"""The runner for a device that works through a queue: the host adds steps to it and reads their
tokens when the next step has been added. See ``engine.overlap``.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagedd.core.plan import Chunk, NoMemory, StepPlan, StepResult
from pagedd.runtime.device_step import DeviceStep, Graphs, StepOutputs
from pagedd.runtime.grammar import Guide
from pagedd.runtime.host_cache import HostCache
from pagedd.runtime.marks import Mark, mark
from pagedd.runtime.masking import is_guided, masked_logits
from pagedd.runtime.queued_batch import Drawing, QueuedBatch, StepInputs
from pagedd.runtime.reading import Reading
from pagedd.runtime.sampling_rows import SamplingRows
from pagedd.runtime.shaping import is_shaped, shaped_logits
from pagedd.runtime.swap import Swap

TURNS = 2  # steps that were launched and not collected, at most


@dataclass(frozen=True, slots=True)
class Flight:
    """A step in the queue."""

    drawing: Drawing
    reading: Reading
    began: Mark
    ended: Mark
    build: float  # seconds of the host
    guides: dict[int, Guide]  # of the draws with a grammar, by place; empty once they know

    def tell_guides(self) -> None:
        """Let the grammars know what was drawn, once, when the device has come to its end."""
        if self.guides:
            self.ended.wait()
            tokens = self.reading.drawn
            for place, guide in self.guides.items():
                guide.advance(tokens[place])
            self.guides.clear()


class QueuedRunner:
    """Owns the KV cache, the batch and the sampling parameters of one model on ``device``.

    ``cache`` [num_pages, layers, 2, kv_heads, page_size, head_dim] in the spec's ``cache_dtype``.
    """

    def __init__(
        self,
        step: DeviceStep,
        graphs: Graphs,
        cache: Tensor,
        host_cache: HostCache,
        swap: Swap,
        batch: QueuedBatch,
        rows: SamplingRows,
    ) -> None:
        self.step = step
        self.graphs = graphs
        self.cache = cache
        self.device = cache.device
        self.host_cache = host_cache
        self.swap = swap
        self.batch = batch
        self.rows = rows
        self._tokens = [
            torch.zeros(batch.nobody, dtype=torch.int64, pin_memory=cache.is_cuda)
            for _ in range(TURNS)
        ]
        self._turn = 0
        self._launched: Flight | None = None  # the last one, whether it was collected or not
        self._before = torch.zeros_like(batch.last)  # the last tokens before the step under way

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> Flight:
        """See ``overlap.QueuedRunner.launch``."""
        began = perf_counter()
        self._rearrange(plan)
        self.host_cache.use(plan.swap_out)
        self.swap.move(plan, self.batch.host)
        drawing = self.batch.drawing(plan.chunks)
        start = mark(self.device)
        self._before.copy_(self.batch.last)
        try:
            built, reading = self._compute(plan.chunks, drawing)
        except torch.OutOfMemoryError as error:
            self.batch.last.copy_(self._before)  # the step will be tried again with these
            self._recover()
            raise NoMemory(str(error)) from error
        self.batch.draw(drawing)
        guides = {
            place: guide
            for place, slot in enumerate(drawing.slots.tolist())
            if (guide := self.rows.guides.get(slot)) is not None
        }
        end = mark(self.device)
        self._launched = Flight(drawing, reading, start, end, built - began, guides)
        return self._launched

    def collect(self, flight: Flight) -> tuple[StepResult, dict[str, float]]:
        """See ``overlap.QueuedRunner.collect``."""
        flight.ended.wait()
        read = perf_counter()
        flight.tell_guides()
        sampled = flight.reading.sampled(flight.drawing.slots.tolist())
        copied = self.swap.take_copied()
        phases = {
            "build": flight.build,
            "execute": flight.ended.since(flight.began),
            "sample": perf_counter() - read,
        }
        if copied.pages:
            phases["swap"] = copied.seconds
        return StepResult(sampled, copied.pages), phases

    def execute(self, plan: StepPlan) -> StepResult:
        """Launch and collect."""
        return self.collect(self.launch(plan))[0]

    def _compute(self, chunks: tuple[Chunk, ...], drawing: Drawing) -> tuple[float, Reading]:
        """Send, compute and draw; when it was built, and how to read what was drawn."""
        size = self._bucket(chunks)
        layout = self.batch.send(chunks, drawing, self.rows, size)
        built = perf_counter()
        if size is None:
            inputs = self.batch.inputs(layout, chunks)
            logits, tokens = self.step(inputs)
        else:
            inputs, (logits, tokens) = self.graphs.replay(size)
        tokens = self._reshape(StepOutputs(logits, tokens), inputs, drawing, size is not None)
        self._turn = (self._turn + 1) % TURNS
        order = drawing.rows if size is not None else np.arange(len(drawing.rows))
        wanted = self.rows.num_logprobs[drawing.slots]
        reading = Reading.of(tokens, logits, order, wanted, self._tokens[self._turn])
        self._count(tokens, order, drawing.slots)  # last: what fails is tried again, counted once
        return built, reading

    def _bucket(self, chunks: tuple[Chunk, ...]) -> int | None:
        """The recorded step that does for ``chunks``: each one token, drawn from at most once."""
        if chunks[-1].length > 1 or any(len(chunk.samples) > 1 for chunk in chunks):
            return None
        return self.graphs.bucket(len(chunks))

    def _reshape(
        self, outputs: StepOutputs, inputs: StepInputs, drawing: Drawing, padded: bool
    ) -> Tensor:
        """Draw again where requests change their logits.

        What a grammar allows depends on the token of the step before. The host waits for that
        here, and the device goes on: it has the forward pass of this step to do.
        """
        slots, rows = drawing.slots, self.rows
        guided = is_guided(rows, slots)
        if not guided and not is_shaped(rows, slots, drawing.num_tokens):
            return outputs.tokens
        where, num_tokens = slots, drawing.num_tokens
        if padded:  # nobody's rows are drawn from as somebody's, and what that gives is not kept
            where = np.full(len(outputs.logits), slots[0])
            where[drawing.rows] = slots
            num_tokens = np.full(len(outputs.logits), 1 << 40)
            num_tokens[drawing.rows] = drawing.num_tokens
        shaped = shaped_logits(rows, outputs.logits, where, num_tokens)
        if guided:
            if self._launched is not None:
                self._launched.tell_guides()
            shaped = masked_logits(rows, shaped, slots, drawing.rows if padded else None)
        return self.step.draw(shaped, inputs)

    def _count(
        self, tokens: Tensor, order: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]
    ) -> None:
        """Tokens that were drawn where requests are penalised for them."""
        penalised = np.flatnonzero(self.rows.penalised[slots])
        if penalised.size and self.rows.counts is not None:
            places = torch.from_numpy(slots[penalised]).to(self.device)
            drawn = tokens[torch.from_numpy(order[penalised]).to(self.device)].clamp(min=0)
            one = torch.ones_like(drawn, dtype=self.rows.counts.dtype)
            self.rows.counts.index_put_((places, drawn), one, accumulate=True)

    def _rearrange(self, plan: StepPlan) -> None:
        for slot in plan.leave:
            self.rows.leave(slot)
        for join in plan.join:
            self.batch.join(join)
            self.rows.join(join)
        for grow in plan.grow:
            self.batch.grow(grow)

    def _recover(self) -> None:
        """What was in the queue ends, and memory that is in pieces becomes whole."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
