"""Takes tensors from the checkpoint to the device, in the form in which they are computed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from pagedd.models.quantize import quantizable, quantize
from pagedd.models.spec import EMBEDDING, OUTPUT, ModelSpec, Weights
from pagedd_kernels.backend import Backend, LinearLayer
from pagedd_kernels.quantized import BlockQuantized, concatenate, dense

# auto: as narrow as the file has them, where the backend computes with that; dense: in the dtype of
# the activations; int8, int4: at most so many bits.
WeightForm = Literal["auto", "dense", "int8", "int4"]
WEIGHT_FORMS: tuple[WeightForm, ...] = get_args(WeightForm)
_BITS = {"int8": 8, "int4": 4}
# With int4 these have 8 bits: the matrices where tokens come and go, and those of queries, keys and
# values, a sixth of a decoder's weights or less that over a third of the harm came from.
_WIDE = ("q_proj.weight", "k_proj.weight", "v_proj.weight", EMBEDDING, OUTPUT)


class Reader:
    """Reads each tensor once and fuses what belongs together.

    Norms and biases are dense, and so are matrices that are no whole number of blocks wide.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Weights,
        backend: Backend,
        device: torch.device,
        form: WeightForm = "auto",
    ) -> None:
        self._dtype = spec.dtype
        self._weights = weights
        self._backend = backend
        self._device = device
        self._form = form

    def tensor(self, name: str) -> Tensor:
        """One dense tensor, in the activations' dtype and with memory of its own."""
        return self._stacked([self._weights.get(name)])

    def matrix(self, name: str) -> Tensor | BlockQuantized:
        """One matrix, for the backend's ``linear`` or for rows to be taken of it."""
        return self._joined([self._part(name)])

    def linear(self, prefix: str, names: tuple[str, ...], *, bias: bool) -> LinearLayer:
        """One linear map whose output is that of ``names`` side by side."""
        weight = self._joined([self._part(f"{prefix}{name}.weight") for name in names])
        shift = None
        if bias:
            shift = self._stacked([self._weights.get(f"{prefix}{name}.bias") for name in names])
        return self._backend.linear(weight, shift)

    def _part(self, name: str) -> Tensor | BlockQuantized:
        """A matrix of the checkpoint, dense or in blocks."""
        if self._form == "dense" or (self._form == "auto" and not self._backend.quantized):
            return self._weights.get(name)
        found = self._weights.matrix(name, self._dtype)
        if self._form == "auto":
            return found
        bits = 8 if name.endswith(_WIDE) else _BITS[self._form]
        if isinstance(found, BlockQuantized) and found.bits <= bits:
            return found
        values = dense(found)
        return quantize(values, bits, self._dtype) if quantizable(values) else values

    def _joined(self, parts: Sequence[Tensor | BlockQuantized]) -> Tensor | BlockQuantized:
        """Parts below each other: in blocks if all of them are and the backend takes that."""
        blocks = [part for part in parts if isinstance(part, BlockQuantized)]
        if self._backend.quantized and len(blocks) == len(parts):
            return blocks[0] if len(blocks) == 1 else concatenate(blocks)
        return self._stacked([dense(part) for part in parts])

    def _stacked(self, parts: Sequence[Tensor]) -> Tensor:
        rows = sum(part.shape[0] for part in parts)
        shape = (rows, *parts[0].shape[1:])
        stacked = torch.empty(shape, dtype=self._dtype, device=self._device)
        begin = 0
        for part in parts:
            stacked[begin : begin + part.shape[0]].copy_(part)
            begin += part.shape[0]
        return stacked
