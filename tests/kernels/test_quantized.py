"""Quantised weights: what they stand for, and that every backend computes with exactly that."""

from __future__ import annotations

import pytest
import torch

from pagedd_kernels.quantized import BLOCK, concatenate
from pagedd_kernels.reference import TorchBackend
from tests.kernels.batches import quantized


@pytest.mark.parametrize("bits", [4, 8])
def test_a_weight_is_scale_times_code_plus_offset(bits: int) -> None:
    weight = quantized(5, 96, bits, torch.float32)
    dense = weight.dequantize()
    for row, column in ((0, 0), (4, 95), (2, 33)):
        block = column // BLOCK
        scale, offset = weight.scales[row, block].item(), weight.offsets[row, block].item()
        expected = torch.tensor(scale * weight.codes[row, column].item() + offset)
        assert dense[row, column] == expected


def test_rows_are_those_of_the_matrix() -> None:
    weight = quantized(9, 64, 8, torch.bfloat16)
    ids = torch.tensor([8, 0, 3, 3])
    assert torch.equal(weight.rows(ids), weight.dequantize()[ids])


def test_matrices_below_each_other_keep_their_values() -> None:
    parts = [quantized(3, 64, 4, torch.bfloat16), quantized(5, 64, 8, torch.bfloat16, seed=1)]
    together = concatenate(parts)
    assert together.bits == 8
    assert torch.equal(together.dequantize(), torch.cat([part.dequantize() for part in parts]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_reference_computes_with_the_dense_matrix(dtype: torch.dtype) -> None:
    weight = quantized(40, 64, 4, dtype)
    x = torch.randn(3, 64).to(dtype)
    backend = TorchBackend()
    assert torch.equal(
        backend.linear(weight, None)(x), backend.linear(weight.dequantize(), None)(x)
    )
