"""A model of floats that computes what a quantised one does.

The embedded model's file is rounded to 16 values in each block of 32 already, and rounding it once
more in the same blocks would cost next to nothing. So its hidden dimensions, those of the feed
forward layers and those of values are put in another order: the function stays, but each block now
holds weights of many blocks of the file, which lie on no common grid.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pagedd.models.spec import ModelSpec, Weights


class Shuffled:
    """The tensors of a plain Llama model in float32, in another order; implements ``Weights``."""

    def __init__(self, spec: ModelSpec, weights: Weights, seed: int = 0) -> None:
        assert spec.architecture == "LlamaForCausalLM"
        self._spec, self._weights, self._seed = spec, weights, seed
        self._hidden = self._order(0, spec.hidden_size)

    def names(self) -> set[str]:
        """See ``Weights.names``."""
        return self._weights.names()

    def shape(self, name: str) -> tuple[int, ...]:
        """See ``Weights.shape``."""
        return self._weights.shape(name)

    def matrix(self, name: str, dtype: torch.dtype) -> Tensor:
        """See ``Weights.matrix``: all are floats."""
        return self.get(name)

    def get(self, name: str) -> Tensor:
        """See ``Weights.get``."""
        values = self._weights.get(name).float()
        part = name.split(".")[-2]
        if values.ndim == 1:
            return values[self._hidden]
        if part in ("o_proj", "down_proj"):
            return values[self._hidden][:, self._inner(name, part)]
        if part in ("v_proj", "gate_proj", "up_proj"):
            values = values[self._inner(name, part)]
        return values[:, self._hidden]

    def _inner(self, name: str, part: str) -> Tensor:
        """Where the rows of this layer's values, or of its feed forward, come from; also of what
        reads them."""
        spec, layer = self._spec, int(name.split(".")[2])
        if part not in ("v_proj", "o_proj"):
            return self._order(2 * layer + 1, spec.intermediate_size)
        order = self._order(2 * layer + 2, spec.head_dim)
        heads = spec.num_kv_heads if part == "v_proj" else spec.num_heads
        return (torch.arange(heads)[:, None] * spec.head_dim + order).flatten()

    def _order(self, which: int, size: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * self._seed + which)
        return torch.randperm(size, generator=generator)
