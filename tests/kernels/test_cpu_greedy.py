"""The largest logit without logits: the same as of the logits, whatever they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pagedd_kernels.cpu.backend import CpuBackend
from pagedd_kernels.quantized import BlockQuantized
from tests.kernels.batches import quantized
from tests.kernels.cpu_isas import NEEDED, backend_of

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=list(NEEDED))
def backend(request: pytest.FixtureRequest) -> CpuBackend:
    return backend_of(request.param)


def check(
    backend: CpuBackend, weight: Tensor | BlockQuantized, x: Tensor, bias: Tensor | None = None
) -> Tensor:
    layer = backend.linear(weight, bias, torch.float32)
    expected = backend.argmax(layer(x))
    for threads in (1, 3):
        backend.set_threads(threads)
        assert torch.equal(layer.greedy(x), expected)
    return expected


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("outputs", [1, 31, 96, 1000, 1037])
def test_dense_weights(backend: CpuBackend, outputs: int, dtype: torch.dtype) -> None:
    weight, bias = torch.randn(outputs, 70).to(dtype), torch.randn(outputs).to(dtype)
    for rows in (1, 7, 33, 65):
        x = torch.randn(rows, 70).to(dtype)
        found = check(backend, weight, x)
        assert outputs < 96 or rows < 7 or len(set(found.tolist())) > 1
        check(backend, weight, x, bias)
        check(backend, weight, torch.randn(70, rows).to(dtype).T)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_weights(backend: CpuBackend, bits: int, dtype: torch.dtype) -> None:
    weight = quantized(523, 576, bits, dtype)
    for rows in (1, 12, 70):
        check(backend, weight, torch.randn(rows, 576).to(dtype))


def test_of_equal_logits_the_first(backend: CpuBackend) -> None:
    weight = torch.zeros(300, 32)
    weight[[40, 77, 210]] = 1.0
    assert check(backend, weight, torch.ones(3, 32)).tolist() == [40] * 3
    assert check(backend, weight, torch.zeros(2, 32)).tolist() == [0] * 2


def test_rows_that_are_no_numbers(backend: CpuBackend) -> None:
    """Weights have one column each for a NaN, infinities of both signs, and nothing finite."""
    weight = torch.randn(200, 32)
    x = torch.randn(9, 32)
    x[1, 0] = float("nan")
    x[3, 5] = float("inf")
    x[5, 7] = -float("inf")
    weight[:, 9] = 0.0
    weight[50, 9] = 1.0
    x[7, 9] = float("inf")  # NaN but for one row of the weight
    found = check(backend, weight, x)
    assert found[1] == -1
    assert (found[[0, 2, 4, 6, 8]] >= 0).all()
    bias = torch.full((200,), -float("inf"))
    narrow = weight[:, :8].contiguous()
    assert check(backend, narrow, x[:1, :8].contiguous(), bias).tolist() == [-1]
    bias[150] = 3.0
    bias[170] = float("inf")
    assert check(backend, weight[:, :8].contiguous(), x[:1, :8].contiguous(), bias).tolist() == [
        170
    ]


def test_no_rows(backend: CpuBackend) -> None:
    layer = backend.linear(torch.randn(40, 32), None, torch.float32)
    assert layer.greedy(torch.empty(0, 32)).shape == (0,)
