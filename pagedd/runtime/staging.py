"""A step's inputs on their way to the device: one buffer, one copy.

All arrays of a step lie behind one another in one block of host memory, pinned for a GPU, and go to
one block of the device at a time. Where an array begins follows from the lengths of the arrays, so
that a captured graph, which has fixed lengths, finds them in the same places in every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ALIGNMENT = 16  # bytes: what kernels assume of pointers


class Field(NamedTuple):
    """One array of a layout."""

    name: str
    dtype: torch.dtype
    length: int


class Layout:
    """Places of the arrays ``fields``, in their order."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self.places: dict[str, tuple[int, int]] = {}  # begin and end in bytes
        end = 0
        for name, dtype, length in fields:
            begin = -(-end // ALIGNMENT) * ALIGNMENT
            end = begin + length * dtype.itemsize
            self.places[name] = (begin, end)
        self.nbytes = end

    @cached_property
    def _kinds(self) -> tuple[tuple[str, torch.dtype, int, int], ...]:
        return tuple((name, dtype, *self.places[name]) for name, dtype, _ in self.fields)

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """The arrays in ``buffer [bytes]`` uint8, each of one dimension."""
        return {name: buffer[begin:end].view(dtype) for name, dtype, begin, end in self._kinds}


class Staging:
    """Host buffers that take turns, and the device's.

    A host buffer is written again ``turns`` steps later: its copy must have ended by then. On the
    CPU the device's buffer is another one too, so that nothing depends on memory being shared.
    """

    def __init__(self, nbytes: int, device: torch.device, turns: int = 2) -> None:
        pinned = device.type == "cuda"
        self._host = [
            torch.zeros(nbytes, dtype=torch.uint8, pin_memory=pinned) for _ in range(turns)
        ]
        self.device = torch.zeros(nbytes, dtype=torch.uint8, device=device)
        self._turn = 0

    def begin(self, layout: Layout) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays to write for the next step."""
        assert layout.nbytes <= len(self.device), "a step is larger than any was to be"
        self._turn = (self._turn + 1) % len(self._host)
        views = layout.views(self._host[self._turn])
        return {name: np.asarray(view.numpy()) for name, view in views.items()}

    def upload(self, layout: Layout) -> None:
        """Add the copy of what was written to the queue of the device."""
        size = layout.nbytes
        self.device[:size].copy_(self._host[self._turn][:size], non_blocking=True)
