"""What a model needs of a GPU's memory beside the pages, measured by a step as large as any."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from pagedd.core.plan import Chunk, Join, StepPlan
from pagedd.core.request import SamplingParams

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes. ``resident`` is all that is in use before a page is: weights, the driver, others."""

    total: int
    resident: int
    weights: int
    activations: int
    graphs: int

    def left(self, utilization: float) -> int:
        """For the pages, when pagedd may fill this share of the device."""
        return int(self.total * utilization) - self.resident - self.activations - self.graphs

    def note(self, utilization: float, pages: int) -> str:
        """The sum, a sentence for the log; ``pages`` in bytes."""
        parts = {
            "weights": self.weights,
            "activations": self.activations,
            "graphs": self.graphs,
            "pages": pages,
            "driver and others": self.resident - self.weights,
        }
        said = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items())
        return f"GPU memory, GiB: {said}; {utilization:.0%} of {self.total / GIB:.2f} may be filled"


class Meter(Protocol):
    """The memory of a device."""

    @property
    def total(self) -> int:
        """All there is."""

    def used(self) -> int:
        """In use by whomever, when nothing is kept that nobody needs."""

    def allocated(self) -> int:
        """In use by tensors of this process."""

    def peak(self) -> int:
        """The most that :meth:`allocated` was since :meth:`reset`."""

    def reset(self) -> None:
        """Forget the peak."""


class CudaMeter:
    """A CUDA device, by its driver and torch's allocator."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def total(self) -> int:
        """See ``Meter``."""
        return torch.cuda.mem_get_info(self._device)[1]

    def used(self) -> int:
        """See ``Meter``."""
        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free

    def allocated(self) -> int:
        """See ``Meter``."""
        return torch.cuda.memory_allocated(self._device)

    def peak(self) -> int:
        """See ``Meter``."""
        return torch.cuda.max_memory_allocated(self._device)

    def reset(self) -> None:
        """See ``Meter``."""
        torch.cuda.reset_peak_memory_stats(self._device)


def measure(
    meter: Meter,
    weights: int,
    trial: int,
    step: Callable[[], object],
    capture: Callable[[], object] | None,
) -> Footprint:
    """Run ``step``, the largest there is, then ``capture`` (None: there are no graphs).

    ``trial``: bytes that are in use for this only. What ``capture`` gives is kept until it was
    measured.
    """
    meter.reset()
    before = meter.allocated()
    step()
    activations = max(meter.peak() - before, 0)
    resident = meter.used()
    graphs = 0
    if capture is not None:
        kept = capture()
        graphs = max(meter.used() - resident, 0)
        del kept
    return Footprint(meter.total, resident - trial, weights, activations, graphs)


def largest_step(
    max_num_seqs: int, max_tokens: int, max_model_len: int, page_size: int
) -> StepPlan:
    """As many sequences and tokens as a step can have, all on page 0; each sequence draws."""
    lengths = [1] * min(max_num_seqs, max_tokens)
    left = max_tokens - len(lengths)
    for slot in reversed(range(len(lengths))):  # the long ones last: single-token rows come first
        more = min(left, max_model_len - 2)
        lengths[slot] += more
        left -= more
    params = SamplingParams(max_tokens=1, temperature=1.0, top_p=0.9)
    joins = []
    for slot, length in enumerate(lengths):
        pages = (0,) * -(-length // page_size)
        joins.append(Join(slot, slot, 0, (0,) * length, length, params, pages))
    chunks = tuple(Chunk(slot, 0, length, (slot,)) for slot, length in enumerate(lengths))
    return StepPlan(0, (), (), (), (), tuple(joins), (), chunks)
