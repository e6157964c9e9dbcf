"""Random weights of the right shapes: any model's speed can be measured without its files."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from pagedd.errors import ModelError
from pagedd.models.spec import ModelSpec, tensor_shapes

# Drawn once a tensor and repeated; odd, so that rows of a matrix are not copies of each other.
_BLOCK = (1 << 18) - 1


class DummyWeights:
    """Deterministic by seed and name. Norms are near 1, all else near 0 with std 0.02."""

    def __init__(self, spec: ModelSpec, seed: int = 0) -> None:
        self._shapes = tensor_shapes(spec)
        self._seed = seed
        self._dtype = spec.dtype

    def names(self) -> set[str]:
        """See ``Weights.names``."""
        return set(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """See ``Weights.shape``."""
        if name not in self._shapes:
            raise ModelError(f"tensor {name} is unknown")
        return self._shapes[name]

    def get(self, name: str) -> Tensor:
        """See ``Weights.get``."""
        tensor = torch.empty(self.shape(name), dtype=self._dtype)
        seed = zlib.crc32(name.encode(), self._seed & 0xFFFFFFFF)
        generator = torch.Generator().manual_seed(seed)
        block = torch.randn(min(tensor.numel(), _BLOCK), generator=generator) * 0.02
        if name.endswith("norm.weight"):
            block += 1.0
        block = block.to(self._dtype)
        flat = tensor.view(-1)
        for begin in range(0, flat.numel(), block.numel()):
            part = flat[begin : begin + block.numel()]
            part.copy_(block[: part.numel()])
        return tensor

    def matrix(self, name: str, dtype: torch.dtype) -> Tensor:
        """See ``Weights.matrix``."""
        return self.get(name)
