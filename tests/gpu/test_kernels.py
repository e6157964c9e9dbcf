"""The Triton kernels on a device, at the sizes of real models.

``tests/kernels/test_backends.py`` runs the whole contract on the device too (``pytest -m gpu``).
"""

from __future__ import annotations

import pytest
import torch

from pagedd_kernels.backend import Backend, select_backend
from pagedd_kernels.reference import TorchBackend
from tests.kernels.batches import LAYER, TOLERANCE, Batch, Shape, make_batch, make_rope

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
REFERENCE = TorchBackend()
DEVICE = torch.device("cuda")
SHAPES = [
    Shape(group=4, kv_heads=8, head_dim=128, page_size=16),
    Shape(group=3, kv_heads=3, head_dim=64, page_size=32),
    Shape(group=8, kv_heads=1, head_dim=256, page_size=64),
    Shape(group=7, kv_heads=2, head_dim=80, page_size=5),
    Shape(group=1, kv_heads=4, head_dim=96, page_size=1),
]
# few rows with long contexts (split), many rows, prefill in chunks, all mixed
BATCHES = [
    ((1, 3000), (1, 1), (1, 255), (1, 256)),
    tuple((1, 1 + 37 * i) for i in range(40)),
    ((700, 700), (64, 900), (1, 17), (33, 33)),
    ((1, 1000), (1, 15), (1, 16), (200, 333), (2, 2)),
]


@pytest.fixture(params=[torch.float16, torch.bfloat16, torch.float32], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


@pytest.fixture
def backend(dtype: torch.dtype) -> Backend:
    selection = select_backend(DEVICE, dtype)
    assert selection.backend.name == "triton", selection.refused
    return selection.backend


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    bound = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound, equal_nan=True)


def batch_on(dtype: torch.dtype, shape: Shape, sequences: tuple[tuple[int, int], ...]) -> Batch:
    return make_batch(shape.on("cuda", dtype), sequences)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"g{s.group}-d{s.head_dim}-p{s.page_size}")
@pytest.mark.parametrize("window", [0, 300])
@pytest.mark.parametrize("sequences", BATCHES, ids=["long", "many", "prefill", "mixed"])
def test_attention(
    backend: Backend,
    dtype: torch.dtype,
    shape: Shape,
    window: int,
    sequences: tuple[tuple[int, int], ...],
) -> None:
    batch = batch_on(dtype, shape, sequences)
    arguments = (batch.queries(), batch.cache, LAYER, batch.inputs)
    scale = shape.head_dim**-0.5
    out = backend.paged_attention(*arguments, scale=scale, window=window)
    assert out.isfinite().all()
    close(out, REFERENCE.paged_attention(*arguments, scale=scale, window=window))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"g{s.group}-d{s.head_dim}-p{s.page_size}")
@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
def test_kv_write(backend: Backend, dtype: torch.dtype, shape: Shape, normed: bool) -> None:
    batch = batch_on(dtype, shape, ((1, 700), (100, 100)))
    batch.inputs.slots[50] = -1
    other = batch.clone()
    norm = torch.rand(shape.head_dim, device=DEVICE).to(dtype) + 0.5 if normed else None
    rope = make_rope(batch, shape.head_dim)
    for writer, of in ((backend, batch), (REFERENCE, other)):
        writer.kv_write(
            of.qkv, of.cache, LAYER, of.inputs, rope=rope, q_norm=norm, k_norm=norm, eps=1e-6
        )
    close(batch.qkv, other.qkv)
    close(batch.cache, other.cache)


def test_rows_of_real_widths(backend: Backend, dtype: torch.dtype) -> None:
    x, residual = torch.randn(2, 65, 4096, device=DEVICE).to(dtype)
    weight = torch.randn(4096, device=DEVICE).to(dtype)
    kept = residual.clone()
    close(
        backend.add_rms_norm(x, residual, weight, 1e-5),
        REFERENCE.add_rms_norm(x, kept, weight, 1e-5),
    )
    close(residual, kept)
    gate_up = torch.randn(65, 2 * 14336, device=DEVICE).to(dtype)
    close(backend.silu_mul(gate_up), REFERENCE.silu_mul(gate_up))


def test_pages_beyond_31_bits(backend: Backend, dtype: torch.dtype) -> None:
    """The last pages of a pool of more than 2³¹ elements: attention, write and copy reach them."""
    batch = batch_on(dtype, Shape(group=4, kv_heads=8, head_dim=128, page_size=16), ((1, 40),))
    size = batch.cache[0].numel()
    pool = torch.empty((2**31 // size + 8, *batch.cache.shape[1:]), dtype=dtype, device=DEVICE)
    moved = pool.shape[0] - batch.cache.shape[0]
    pool[moved:] = batch.cache
    far = batch.clone()
    far.inputs.page_table.add_(moved)
    far.inputs.slots.add_(moved * batch.shape.page_size)
    out = backend.paged_attention(far.queries(), pool, LAYER, far.inputs, scale=0.1)
    backend.kv_write(far.qkv, pool, LAYER, far.inputs, rope=None, q_norm=None, k_norm=None, eps=0.0)
    pairs = torch.tensor([[moved, moved + 1]], device=DEVICE)
    written = pool[moved:].clone()
    backend.page_copy(pool, pool, pairs)
    assert torch.equal(pool[moved + 1].nan_to_num(9), written[0].nan_to_num(9))
    far.inputs.page_table.sub_(moved)
    far.inputs.slots.sub_(moved * batch.shape.page_size)
    near = REFERENCE.paged_attention(batch.queries(), batch.cache, LAYER, batch.inputs, scale=0.1)
    close(out, near)
    REFERENCE.kv_write(
        batch.qkv, batch.cache, LAYER, batch.inputs, rope=None, q_norm=None, k_norm=None, eps=0.0
    )
    assert torch.equal(written.nan_to_num(9), batch.cache.nan_to_num(9))
