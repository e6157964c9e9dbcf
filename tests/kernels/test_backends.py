"""The contract of a backend: every one that serves here against the reference.

Triton takes part where a CUDA device is, or in its interpreter, which must be chosen before Triton
is imported: ``TRITON_INTERPRET=1 pytest tests/kernels/test_backends.py``; ``test_triton.py`` does
that in a process of its own.
"""

from __future__ import annotations

import pytest
import torch
from _pytest.mark import ParameterSet

from pagedd_kernels.backend import BACKENDS, Backend, select_backend
from pagedd_kernels.reference import TorchBackend
from tests.kernels.batches import LAYER, TOLERANCE, Batch, Shape, make_batch, make_rope

REFERENCE = TorchBackend()
MIXED = ((1, 9), (1, 1), (1, 16), (3, 8), (9, 17), (1, 6), (5, 5))
SHAPES = [
    Shape(group=1, kv_heads=2, head_dim=16, page_size=1),
    Shape(group=2, kv_heads=2, head_dim=24, page_size=5),
    Shape(group=4, kv_heads=1, head_dim=64, page_size=16),
    Shape(group=7, kv_heads=2, head_dim=80, page_size=5),
    Shape(group=8, kv_heads=1, head_dim=96, page_size=48),
    Shape(group=3, kv_heads=3, head_dim=64, page_size=32),
]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def shape_name(shape: object) -> str:
    if isinstance(shape, Shape):
        return f"g{shape.group}-d{shape.head_dim}-p{shape.page_size}"
    return str(shape).removeprefix("torch.")


def serving(*, without: str = "") -> list[ParameterSet]:
    """Every (backend, device, dtype) that can be tested here; those on CUDA are marked."""
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda"))
    found = []
    for entry in BACKENDS:
        loaded = entry.load()
        if isinstance(loaded, str) or entry.name == without:
            continue
        found += [
            pytest.param(
                (entry.name, device, dtype),
                id=f"{entry.name}-{device}-{shape_name(dtype)}",
                marks=[pytest.mark.gpu] if device.type == "cuda" else [],
            )
            for device in devices
            for dtype in DTYPES
            if loaded.unavailable(device, dtype) is None
        ]
    return found


Served = tuple[Backend, torch.device, torch.dtype]


@pytest.fixture(params=serving(without=REFERENCE.name))
def served(request: pytest.FixtureRequest) -> Served:
    """A backend other than the reference, to compare with it."""
    name, device, dtype = request.param
    return select_backend(device, dtype, name).backend, device, dtype


@pytest.fixture(params=serving())
def any_served(request: pytest.FixtureRequest) -> Served:
    """Any backend, for what can be said without the reference."""
    name, device, dtype = request.param
    return select_backend(device, dtype, name).backend, device, dtype


def batch_for(served: Served, shape: Shape, sequences: tuple[tuple[int, int], ...]) -> Batch:
    _, device, dtype = served
    return make_batch(shape.on(str(device), dtype), sequences)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    bound = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound, equal_nan=True)


def check_attention(served: Served, batch: Batch, window: int = 0) -> None:
    scale = batch.shape.head_dim**-0.5
    arguments = (batch.queries(), batch.cache, LAYER, batch.inputs)
    out = served[0].paged_attention(*arguments, scale=scale, window=window)
    expected = REFERENCE.paged_attention(*arguments, scale=scale, window=window)
    assert out.isfinite().all()
    close(out, expected)


@pytest.mark.parametrize("shape", SHAPES, ids=shape_name)
@pytest.mark.parametrize("window", [0, 4])
def test_attention_of_a_mixed_batch(served: Served, shape: Shape, window: int) -> None:
    check_attention(served, batch_for(served, shape, MIXED), window)


@pytest.mark.parametrize("window", [0, 3, 16])
def test_attention_at_page_borders(served: Served, window: int) -> None:
    shape = Shape(group=2, kv_heads=1, head_dim=16, page_size=16)
    decode = tuple((1, length) for length in (1, 15, 16, 17, 31, 32, 33))
    check_attention(served, batch_for(served, shape, (*decode, (16, 16), (17, 33))), window)


def test_attention_over_many_key_tiles(served: Served) -> None:
    shape = Shape(group=3, kv_heads=1, head_dim=16, page_size=7)
    batch = batch_for(served, shape, ((1, 300), (1, 129), (40, 200)))
    check_attention(served, batch)
    check_attention(served, batch, window=100)


def test_attention_of_one_token_alone(any_served: Served) -> None:
    batch = batch_for(any_served, Shape(), ((1, 1),))
    out = any_served[0].paged_attention(
        batch.queries(), batch.cache, LAYER, batch.inputs, scale=0.25
    )
    values = batch.history(0, kind=1)[0].repeat_interleave(batch.shape.group, dim=0)
    close(out[0], values.flatten())


def test_attention_of_a_padding_sequence_is_zero(any_served: Served) -> None:
    batch = batch_for(any_served, Shape(), ((1, 3), (1, 5)))
    batch.inputs.seq_lens[1] = 0
    out = any_served[0].paged_attention(
        batch.queries(), batch.cache, LAYER, batch.inputs, scale=0.25
    )
    assert out[0].isfinite().all()
    assert out[1].eq(0).all()


def test_attention_without_decode_rows_or_without_others(served: Served) -> None:
    check_attention(served, batch_for(served, Shape(), ((4, 6), (2, 2))))
    check_attention(served, batch_for(served, Shape(), ((1, 6), (1, 2))))


@pytest.mark.parametrize("shape", SHAPES, ids=shape_name)
@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
def test_kv_write(served: Served, shape: Shape, normed: bool) -> None:
    batch = batch_for(served, shape, ((1, 7), (3, 3)))
    batch.inputs.slots[1] = -1
    other = batch.clone()
    size = {"dtype": batch.qkv.dtype, "device": batch.qkv.device}
    norms = [torch.rand(shape.head_dim, **size) + 0.5 for _ in range(2)] if normed else [None] * 2
    options = {"q_norm": norms[0], "k_norm": norms[1], "eps": 1e-6}
    rope = make_rope(batch, shape.head_dim)
    for backend, of in ((served[0], batch), (REFERENCE, other)):
        q = backend.kv_write(of.qkv, of.cache, LAYER, of.inputs, rope=rope, **options)
        assert q.data_ptr() == of.qkv.data_ptr()
        assert q.shape == (4, shape.heads, shape.head_dim)
    close(batch.qkv, other.qkv)
    close(batch.cache, other.cache)


@pytest.mark.parametrize("rope_dim", [0, 8, 12])
@pytest.mark.parametrize("which", ["q", "k"])
def test_kv_write_of_a_part_of_the_head(served: Served, rope_dim: int, which: str) -> None:
    batch = batch_for(served, Shape(head_dim=24), ((2, 5),))
    other = batch.clone()
    norm = torch.rand(24, dtype=batch.qkv.dtype, device=batch.qkv.device)
    q_norm, k_norm = (norm, None) if which == "q" else (None, norm)
    rope = make_rope(batch, rope_dim) if rope_dim else None
    for backend, of in ((served[0], batch), (REFERENCE, other)):
        backend.kv_write(
            of.qkv, of.cache, LAYER, of.inputs, rope=rope, q_norm=q_norm, k_norm=k_norm, eps=1e-5
        )
    close(batch.qkv, other.qkv)
    close(batch.cache, other.cache)


def test_kv_write_touches_its_slots_alone(any_served: Served) -> None:
    batch = batch_for(any_served, Shape(), ((1, 7), (2, 2)))
    batch.inputs.slots[0] = -1
    before = batch.cache.clone()
    any_served[0].kv_write(
        batch.qkv, batch.cache, LAYER, batch.inputs, rope=None, q_norm=None, k_norm=None, eps=0.0
    )
    page_size = batch.shape.page_size
    for slot in batch.inputs.slots[1:].tolist():
        row = batch.inputs.slots.tolist().index(slot)
        written = batch.cache[slot // page_size, LAYER, :, :, slot % page_size]
        heads = batch.qkv[row].view(-1, batch.shape.head_dim)[batch.shape.heads :]
        assert torch.equal(written.flatten(0, 1), heads)
        before[slot // page_size, LAYER, :, :, slot % page_size] = written
    assert torch.equal(batch.cache.nan_to_num(9), before.nan_to_num(9))


def test_page_copy_within_a_cache(any_served: Served) -> None:
    batch = batch_for(any_served, Shape(head_dim=24, page_size=5), ((1, 17), (3, 8)))
    pairs = torch.tensor([[3, 0], [5, 1]], device=batch.cache.device)
    expected = batch.cache.clone()
    expected[0], expected[1] = expected[3], expected[5]
    any_served[0].page_copy(batch.cache, batch.cache, pairs)
    assert torch.equal(batch.cache.nan_to_num(9), expected.nan_to_num(9))
    any_served[0].page_copy(batch.cache, batch.cache, pairs[:0])
    assert torch.equal(batch.cache.nan_to_num(9), expected.nan_to_num(9))


def test_page_copy_to_another_cache(any_served: Served) -> None:
    cache = batch_for(any_served, Shape(head_dim=24, page_size=5), ((1, 17), (3, 8))).cache
    before = cache.clone()
    target = torch.full_like(cache[:4], 3.0)
    pairs = torch.tensor([[3, 0], [0, 3], [3, 2]], device=cache.device)
    any_served[0].page_copy(cache, target, pairs)
    assert torch.equal(cache.nan_to_num(9), before.nan_to_num(9))
    for page, source in enumerate((3, None, 3, 0)):
        expected = torch.full_like(cache[0], 3.0) if source is None else cache[source]
        assert torch.equal(target[page].nan_to_num(9), expected.nan_to_num(9))


@pytest.mark.parametrize(("rows", "size"), [(1, 16), (3, 100), (2, 1536)])
def test_norms(served: Served, rows: int, size: int) -> None:
    backend, device, dtype = served
    torch.manual_seed(0)
    x, residual = torch.randn(2, rows, size).to(device, dtype)
    weight = torch.randn(size).to(device, dtype)
    kept = residual.clone()
    close(backend.rms_norm(x, weight, 1e-5), REFERENCE.rms_norm(x, weight, 1e-5))
    expected = REFERENCE.add_rms_norm(x, kept, weight, 1e-5)
    close(backend.add_rms_norm(x, residual, weight, 1e-5), expected)
    close(residual, kept)


@pytest.mark.parametrize(("rows", "size"), [(1, 16), (3, 100), (2, 1536)])
def test_silu_mul(served: Served, rows: int, size: int) -> None:
    backend, device, dtype = served
    torch.manual_seed(0)
    gate_up = (3 * torch.randn(rows, 2 * size)).to(device, dtype)
    close(backend.silu_mul(gate_up), REFERENCE.silu_mul(gate_up))


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
def test_linear(any_served: Served, rows: int, biased: bool) -> None:
    backend, device, dtype = any_served
    torch.manual_seed(0)
    x = torch.randn(rows, 64).to(device, dtype)
    weight = (torch.randn(48, 64) / 8).to(device, dtype)
    bias = torch.randn(48).to(device, dtype) if biased else None
    expected = torch.nn.functional.linear(x, weight, bias)
    close(backend.linear(weight.clone(), bias)(x), expected)
