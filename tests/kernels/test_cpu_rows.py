"""Embeddings on the CPU: rows of a matrix by their numbers."""

from __future__ import annotations

import pytest
import torch

from pagedd_kernels.cpu.backend import CpuBackend
from tests.kernels.batches import quantized
from tests.kernels.cpu_isas import NEEDED, backend_of

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=list(NEEDED))
def backend(request: pytest.FixtureRequest) -> CpuBackend:
    return backend_of(request.param)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("scale_dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("columns", [32, 96, 576, 2080])
def test_quantised_rows_are_those_of_the_dense_matrix(
    backend: CpuBackend, bits: int, scale_dtype: torch.dtype, columns: int, dtype: torch.dtype
) -> None:
    weight = quantized(70, columns, bits, dtype, scale_dtype=scale_dtype)
    rows = backend.embedding(weight)
    dense = weight.dequantize()
    for ids in (torch.arange(70), torch.tensor([69, 0, 3, 3]), torch.tensor([5] * 41)):
        assert torch.equal(rows(ids), dense[ids])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dense_rows_are_read_where_they_lie(backend: CpuBackend, dtype: torch.dtype) -> None:
    matrix = torch.randn(90, 50).to(dtype)
    ids = torch.randint(90, (77,))
    for weight in (matrix, matrix[::3], matrix.T):
        rows = backend.embedding(weight)
        chosen = ids % len(weight)
        assert torch.equal(rows(chosen), weight[chosen])
    matrix[7] = 3
    assert (backend.embedding(matrix)(torch.tensor([7])) == 3).all()
    assert backend.embedding(matrix).tensors[0].data_ptr() == matrix.data_ptr()


def test_no_rows(backend: CpuBackend) -> None:
    empty = torch.empty(0, dtype=torch.int64)
    assert backend.embedding(torch.ones(4, 8))(empty).shape == (0, 8)


@pytest.mark.parametrize("number", [-1, 4, 1 << 40])
def test_a_number_that_is_no_row_is_refused(backend: CpuBackend, number: int) -> None:
    rows = backend.embedding(quantized(4, 32, 8, torch.float32))
    with pytest.raises(IndexError, match="one of 4 rows"):
        rows(torch.tensor([0, number, 1]))
