"""Weights made narrow: how near they stay, and what cannot be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pagedd.models.quantize import quantizable, quantize
from pagedd_kernels.quantized import BLOCK


def weight(scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(96, 160, generator=generator) * scale


def blocks(values: Tensor) -> Tensor:
    return values.reshape(-1, BLOCK)


@pytest.mark.parametrize("scale", [1e-8, 1e-6, 1e-3, 1.0, 1e3])
def test_eight_bits_are_off_by_half_a_step_and_cut_nothing(scale: float) -> None:
    values = weight(scale)
    found = quantize(values, 8, torch.float32)
    error = (found.dequantize() - values).abs()
    step = found.scales.float().repeat_interleave(BLOCK, dim=1)
    assert (error <= 0.5001 * step).all()
    # the step is that of the block's largest value, rounded up to a float16
    least = blocks(values).abs().amax(1).view(96, -1) / 127
    assert (found.scales.float() <= least * (1 + 2**-10) + 2**-24).all()


def plain_four_bits(values: Tensor) -> Tensor:
    """Least and greatest value of a block as codes 0 and 15."""
    low, high = blocks(values).aminmax(dim=1, keepdim=True)
    step = (high - low) / 15
    return (((blocks(values) - low) / step).round() * step + low).view(values.shape)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_four_bits_are_nearer_than_by_least_and_greatest(scale: float) -> None:
    values = weight(scale)
    found = quantize(values, 4, torch.float32)
    assert found.codes.max() <= 15
    error = (found.dequantize() - values).square()
    plain = (plain_four_bits(values) - values).square()
    assert error.sum() < 0.9 * plain.sum()
    # single blocks too, but for what rounding scale and offset to float16 costs
    assert (blocks(error).sum(1) < 1.1 * blocks(plain).sum(1)).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_a_grid_of_values_is_met_exactly(bits: int) -> None:
    codes = torch.arange(BLOCK).remainder(16).repeat(4, 3).float()
    values = 0.25 * codes - (1.5 if bits == 4 else 0.25 * 8)
    values[:, ::BLOCK] = values.max() if bits == 4 else 0.25 * 127
    assert torch.equal(quantize(values, bits, torch.float32).dequantize(), values)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [0.0, 0.5, -2.0])
def test_equal_values_stay(bits: int, value: float) -> None:
    values = torch.full((2, 64), value)
    found = quantize(values, bits, torch.bfloat16).dequantize()
    assert found.dtype is torch.bfloat16
    assert (found.float() - values).abs().max() <= abs(value) * 2**-8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bits", [4, 8])
def test_half_precision_is_read_as_the_values_it_holds(bits: int, dtype: torch.dtype) -> None:
    values = weight().to(dtype)
    found, expected = quantize(values, bits, dtype), quantize(values.float(), bits, dtype)
    assert torch.equal(found.codes, expected.codes)
    assert torch.equal(found.dequantize(), expected.dequantize())


def test_a_row_does_not_depend_on_the_others() -> None:
    values = weight().repeat(60, 1)  # several chunks
    for bits in (4, 8):
        whole = quantize(values, bits, torch.float32).dequantize()
        assert torch.equal(whole[-7:], quantize(values[-7:], bits, torch.float32).dequantize())


@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(64),
        torch.zeros(2, 48),
        torch.full((2, 32), float("nan")),
        torch.full((2, 32), float("inf")),
        torch.full((2, 32), -6e4),
    ],
    ids=["vector", "width", "nan", "inf", "large"],
)
def test_what_stays_dense(values: Tensor) -> None:
    assert not quantizable(values)
    assert quantizable(torch.zeros(2, 64))
