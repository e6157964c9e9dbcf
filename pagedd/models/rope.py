"""Rotary position embedding: inverse frequencies of every kind, and a step's cosines and sines.

Sources: Su et al. 2021 (default); Chen et al. 2023, position interpolation (linear); "NTK-aware"
scaling by length (dynamic); Peng et al. 2023 (yarn); Ding et al. 2024 (longrope); the Llama 3.1
release (llama3). Defaults and rounding are those of transformers 5, with which the tests compare.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pagedd.models.spec import RopeSpec

LEAST_TABLE = 1024  # positions


class Rope:
    """Makes the ``rope`` rows that ``Backend.kv_write`` takes."""

    def __init__(self, spec: RopeSpec, device: torch.device) -> None:
        self.spec = spec
        self.attention_factor = attention_factor(spec)
        self._exponents = _exponents(spec.dim).to(device)
        self._near = inverse_frequencies(spec).to(device)
        # Beyond the original length longrope has a second set.
        self._far = inverse_frequencies(spec, beyond=True).to(device)
        # Rows of the first positions: on a CPU a step looks them up with one operation.
        self._table = torch.empty(0, 2 * len(self._near))

    def rows(self, positions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Cosines and sines of each row.

        ``positions [tokens]`` int64; ``lengths [tokens]``: length of the row's sequence as far as
        it is known when the row is computed, max(prompt, position + 1), needed only where
        ``spec.length_dependent``. → ``[tokens, dim]`` float32, cosines then sines.
        """
        if self.spec.length_dependent:
            assert lengths is not None
            return self._turns(positions, self._by_length(lengths))
        if positions.device.type != "cpu":  # the host does not wait for its largest number
            return self._turns(positions, self._near)
        end = int(positions.numpy().max(initial=0)) + 1
        if end > len(self._table):
            size = max(LEAST_TABLE, 1 << (end - 1).bit_length())
            self._table = self._turns(torch.arange(size), self._near)
        return self._table.index_select(0, positions)

    def _turns(self, positions: Tensor, frequencies: Tensor) -> Tensor:
        angles = positions[:, None].float() * frequencies
        rows = torch.cat((angles.cos(), angles.sin()), dim=-1)
        return rows if self.attention_factor == 1.0 else rows * self.attention_factor

    def _by_length(self, lengths: Tensor) -> Tensor:
        """Inverse frequencies ``[tokens, dim / 2]`` float32 for ``lengths [tokens]``."""
        spec = self.spec
        if spec.kind == "longrope":
            far = (lengths > spec.original_max_position)[:, None]
            return torch.where(far, self._far, self._near)
        factor = spec.factor or 1.0
        stretched = lengths.clamp(min=spec.max_position).float()[:, None]
        growth = factor * stretched / spec.max_position - (factor - 1)
        base = spec.theta * growth ** (spec.dim / (spec.dim - 2))
        return 1.0 / base**self._exponents


def inverse_frequencies(spec: RopeSpec, *, beyond: bool = False) -> Tensor:
    """Inverse frequencies ``[dim / 2]`` float32 on the CPU.

    ``beyond``: those of sequences longer than the original length (longrope). dynamic: those of
    sequences within it.
    """
    plain = 1.0 / (spec.theta ** _exponents(spec.dim))
    match spec.kind:
        case "default" | "dynamic":
            if spec.frequency_factors:
                return plain / torch.tensor(spec.frequency_factors)
            return plain
        case "linear":
            return plain / (spec.factor or 1.0)
        case "proportional":
            turning = int(spec.proportion * spec.dim // 2)
            plain[turning:] = 0.0
            return plain / (spec.factor or 1.0)
        case "longrope":
            factors = torch.tensor(spec.long_factor if beyond else spec.short_factor)
            return 1.0 / (factors * spec.theta ** _exponents(spec.dim))
        case "llama3":
            return _llama3(spec, plain)
        case "yarn":
            return _yarn(spec)


def attention_factor(spec: RopeSpec) -> float:
    """What cosines and sines are multiplied by."""
    if spec.kind not in ("yarn", "longrope"):
        return 1.0
    if spec.attention_factor is not None:
        return spec.attention_factor
    factor = spec.factor or 1.0
    if spec.kind == "longrope":
        if factor <= 1.0:
            return 1.0
        return math.sqrt(1 + math.log(factor) / math.log(spec.original_max_position))
    if spec.mscale and spec.mscale_all_dim:
        return _mscale(factor, spec.mscale) / _mscale(factor, spec.mscale_all_dim)
    return _mscale(factor, 1.0)


def _exponents(dim: int) -> Tensor:
    return torch.arange(0, dim, 2, dtype=torch.float32) / dim


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _llama3(spec: RopeSpec, plain: Tensor) -> Tensor:
    """Long waves are stretched by the factor, short ones kept, those between interpolated."""
    assert spec.factor is not None
    assert spec.low_freq_factor is not None
    assert spec.high_freq_factor is not None
    length, low, high = spec.original_max_position, spec.low_freq_factor, spec.high_freq_factor
    wave = 2 * math.pi / plain
    stretched = plain / spec.factor
    smooth = (length / wave - low) / (high - low)
    between = (1 - smooth) * stretched + smooth * plain
    return torch.where(
        wave > length / low, stretched, torch.where(wave < length / high, plain, between)
    )


def _yarn(spec: RopeSpec) -> Tensor:
    """A ramp over the dimensions from kept frequencies to interpolated ones."""
    periods = spec.theta ** _exponents(spec.dim)

    def dimension(rotations: float) -> float:
        """The dimension that turns ``rotations`` times within the original length."""
        ratio = spec.original_max_position / (rotations * 2 * math.pi)
        return spec.dim * math.log(ratio) / (2 * math.log(spec.theta))

    low, high = dimension(spec.beta_fast), dimension(spec.beta_slow)
    if spec.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, spec.dim - 1)
    if low == high:
        high += 0.001  # the ramp would divide by zero
    ramp = ((torch.arange(spec.dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    kept = 1 - ramp
    return (1.0 / ((spec.factor or 1.0) * periods)) * (1 - kept) + (1.0 / periods) * kept
