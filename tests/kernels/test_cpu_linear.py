"""The packed linear layers: right, and the same for a row in any company."""

from __future__ import annotations

import pytest
import torch

from pagedd_kernels.cpu.backend import CpuBackend
from tests.kernels.batches import TOLERANCE, quantized
from tests.kernels.cpu_isas import NEEDED, backend_of

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(64, 32), (1, 1), (33, 7), (100, 129), (31, 64), (192, 5000)]


@pytest.fixture(params=list(NEEDED))
def backend(request: pytest.FixtureRequest) -> CpuBackend:
    return backend_of(request.param)


def operands(
    n: int, k: int, rows: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n + k)
    x = torch.randn(rows, k, generator=generator)
    weight = torch.randn(n, k, generator=generator) / k**0.5
    return x.to(dtype), weight.to(dtype), torch.randn(n, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_linear_equals_the_float64_product(
    backend: CpuBackend, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    for rows in (1, 2, 29):
        x, weight, bias = operands(*shape, rows, dtype)
        exact = x.double() @ weight.double().T
        bound = TOLERANCE[dtype] if dtype is not torch.float32 else 1e-5
        for b in (None, bias):
            expected = exact if b is None else exact + b.double()
            out = backend.linear(weight, b)(x)
            assert out.dtype is dtype
            torch.testing.assert_close(out.double(), expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(100, 129), (256, 64), (64, 4500)], ids=str)
def test_a_row_is_the_same_in_any_batch(
    backend: CpuBackend, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    x, weight, bias = operands(*shape, 70, dtype)
    linear = backend.linear(weight, bias)
    alone = torch.cat([linear(row[None]) for row in x])
    for rows in (2, 3, 5, 7, 11, 12, 13, 17, 24, 25, 33, 48, 64, 70):
        for first in (0, 70 - rows):
            assert torch.equal(linear(x[first : first + rows]), alone[first : first + rows])


def test_a_row_is_the_same_for_any_number_of_threads(backend: CpuBackend) -> None:
    x, weight, _ = operands(200, 96, 40, torch.bfloat16)
    linear = backend.linear(weight, None)
    expected = linear(x)
    for threads in (1, 2, 3, 5):
        backend.set_threads(threads)
        assert backend.threads == threads
        assert torch.equal(linear(x), expected)


def test_a_row_is_the_same_where_rows_go_in_chunks() -> None:
    backend = backend_of("native")
    x, weight, _ = operands(96, 4100, 230, torch.bfloat16)
    linear = backend.linear(weight, None)
    whole = linear(x)
    assert torch.equal(torch.cat([linear(x[i : i + 1]) for i in range(0, 230, 23)]), whole[::23])


def test_float32_results_of_narrow_inputs(backend: CpuBackend) -> None:
    x, weight, bias = operands(70, 64, 9, torch.bfloat16)
    out = backend.linear(weight, bias, torch.float32)(x)
    assert out.dtype is torch.float32
    expected = x.double() @ weight.double().T + bias.double()
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(out.bfloat16(), backend.linear(weight, bias)(x))


def test_strided_rows_and_weights(backend: CpuBackend) -> None:
    x, weight, _ = operands(70, 64, 9, torch.float32)
    linear = backend.linear(weight, None)
    wide = torch.full((9, 100), float("nan"))
    wide[:, 10:74] = x
    assert torch.equal(linear(wide[:, 10:74]), linear(x))
    assert torch.equal(linear(x.T.contiguous().T), linear(x))
    assert torch.equal(backend.linear(weight.T.contiguous().T, None)(x), linear(x))


def test_the_end_of_an_odd_row_is_not_the_next_rows_begin(backend: CpuBackend) -> None:
    x, weight, _ = operands(40, 33, 4, torch.bfloat16)
    linear = backend.linear(weight, None)
    expected = linear(x)
    x[1:] = float("nan")
    assert torch.equal(linear(x)[0], expected[0])
    assert linear(x)[1:].isnan().all()


def test_no_rows(backend: CpuBackend) -> None:
    _, weight, bias = operands(40, 32, 1, torch.bfloat16)
    assert backend.linear(weight, bias)(torch.empty(0, 32, dtype=torch.bfloat16)).shape == (0, 40)


def test_weights_outlive_the_backend_and_the_original() -> None:
    x, weight, _ = operands(40, 32, 3, torch.bfloat16)
    expected = backend_of("native").linear(weight, None)(x)
    linear = backend_of("native").linear(weight.clone(), None)
    torch.zeros(1 << 16)
    assert torch.equal(linear(x), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("scale_dtype", [torch.float16, torch.float32], ids=str)
def test_quantised_weights_give_what_their_dense_form_gives(
    backend: CpuBackend, bits: int, scale_dtype: torch.dtype, dtype: torch.dtype
) -> None:
    for n, k in ((100, 96), (64, 1536), (32, 4128), (1, 32)):
        weight = quantized(n, k, bits, dtype, scale_dtype=scale_dtype)
        x = operands(1, k, 300, dtype)[0]
        bias = torch.randn(n).to(dtype)
        packed = backend.linear(weight, bias)
        dense = backend.linear(weight.dequantize(), bias)
        for rows in (1, 5, 16, 33, 70, 130, 300):  # many rows: unpacked in smaller steps
            assert torch.equal(packed(x[:rows]), dense(x[:rows]))
