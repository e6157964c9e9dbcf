"""Attention and the small operations on the CPU: the same for a row in any company."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pagedd_kernels.cpu.backend import CpuBackend
from pagedd_kernels.inputs import PagedInputs
from tests.kernels.batches import LAYER, Batch, Shape, make_batch, make_rope
from tests.kernels.cpu_isas import NEEDED, backend_of

SHAPES = [
    Shape(group=3, kv_heads=3, head_dim=64, page_size=32, dtype=torch.bfloat16),
    Shape(group=7, kv_heads=1, head_dim=24, page_size=5, dtype=torch.bfloat16),
    Shape(group=2, kv_heads=2, head_dim=80, page_size=16, dtype=torch.float32),
    Shape(group=1, kv_heads=2, head_dim=96, page_size=1, dtype=torch.float16),
]


@pytest.fixture(params=list(NEEDED))
def backend(request: pytest.FixtureRequest) -> CpuBackend:
    return backend_of(request.param)


def part(batch: Batch, sequence: int, begin: int, end: int) -> tuple[Tensor, PagedInputs]:
    """Rows [begin, end) of one sequence as a batch of their own; later keys stay in the pages."""
    first = int(batch.inputs.cu_seqlens[sequence])
    rows, length = batch.sequences[sequence]
    inputs = replace(
        batch.inputs,
        positions=batch.inputs.positions[first + begin : first + end],
        slots=batch.inputs.slots[first + begin : first + end],
        cu_seqlens=torch.tensor([0, end - begin], dtype=torch.int32),
        seq_lens=torch.tensor([length - rows + end], dtype=torch.int32),
        page_table=batch.inputs.page_table[sequence : sequence + 1],
    )
    return batch.queries()[first + begin : first + end], inputs


def attend(backend: CpuBackend, batch: Batch, window: int) -> Tensor:
    scale = batch.shape.head_dim**-0.5
    return backend.paged_attention(
        batch.queries(), batch.cache, LAYER, batch.inputs, scale=scale, window=window
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("window", [0, 50])
def test_a_row_is_the_same_alone_and_in_any_chunk(
    backend: CpuBackend, shape: Shape, window: int
) -> None:
    batch = make_batch(shape, ((1, 70), (90, 130), (1, 64), (13, 13)))
    whole = attend(backend, batch, window)
    scale = shape.head_dim**-0.5
    for sequence, (rows, _) in enumerate(batch.sequences):
        first = int(batch.inputs.cu_seqlens[sequence])
        for size in (1, 5, 64):
            for begin in range(0, rows, size):
                end = min(rows, begin + size)
                q, inputs = part(batch, sequence, begin, end)
                out = backend.paged_attention(
                    q, batch.cache, LAYER, inputs, scale=scale, window=window
                )
                assert torch.equal(out, whole[first + begin : first + end])


@pytest.mark.parametrize("window", [0, 700])
def test_long_contexts_are_the_same_split_among_threads_or_not(
    backend: CpuBackend, window: int
) -> None:
    shape = Shape(group=3, kv_heads=1, head_dim=64, page_size=32, dtype=torch.bfloat16)
    batch = make_batch(shape, ((1, 1500), (40, 1100)))
    backend.set_threads(1)
    whole = attend(backend, batch, window)
    for threads in (2, 3):
        backend.set_threads(threads)
        assert torch.equal(attend(backend, batch, window), whole)
        for row in (0, 17, 39):
            q, inputs = part(batch, 1, row, row + 1)
            out = backend.paged_attention(
                q, batch.cache, LAYER, inputs, scale=64**-0.5, window=window
            )
            assert torch.equal(out[0], whole[1 + row])


@pytest.mark.parametrize("window", [0, 300])
@pytest.mark.parametrize("lengths", [(1, 700, 33, 512) * 5, (3100, 5600)], ids=["many", "long"])
def test_rows_of_a_large_batch_are_the_same_as_alone(
    backend: CpuBackend, lengths: tuple[int, ...], window: int
) -> None:
    """Single rows of a large batch take all key heads together, alone one after another."""
    shape = Shape(group=3, kv_heads=3, head_dim=64, page_size=32, dtype=torch.bfloat16)
    batch = make_batch(shape, tuple((1, length) for length in lengths))
    for threads in (1, 2):
        backend.set_threads(threads)
        whole = attend(backend, batch, window)
        for sequence in range(len(lengths)):
            q, inputs = part(batch, sequence, 0, 1)
            out = backend.paged_attention(
                q, batch.cache, LAYER, inputs, scale=64**-0.5, window=window
            )
            assert torch.equal(out[0], whole[sequence])


def test_long_contexts_equal_plain_attention(backend: CpuBackend) -> None:
    shape = Shape(group=2, kv_heads=1, head_dim=32, page_size=48)
    batch = make_batch(shape, ((3, 1300),))
    keys, values = batch.history(0, 0)[:, 0].double(), batch.history(0, 1)[:, 0].double()
    for window in (0, 600):
        out = attend(backend, batch, window)
        for row, position in enumerate(range(1297, 1300)):
            first = max(0, position - window + 1) if window else 0
            k, v = keys[first : position + 1], values[first : position + 1]
            scores = batch.queries()[row].double() @ k.T * 32**-0.5
            expected = (scores.softmax(-1) @ v).flatten()
            torch.testing.assert_close(out[row].double(), expected, rtol=1e-5, atol=1e-6)


def test_later_keys_of_the_last_tile_do_not_matter(backend: CpuBackend) -> None:
    batch = make_batch(SHAPES[0], ((1, 40),))
    before = attend(backend, batch, 0)
    page, offset = int(batch.inputs.page_table[0, 1]), 40 % 32
    batch.cache[page, LAYER, :, :, offset:] = 3.0
    assert torch.equal(attend(backend, batch, 0), before)


def test_pages_before_the_window_are_never_read(backend: CpuBackend) -> None:
    batch = make_batch(SHAPES[0], ((2, 200),))
    before = attend(backend, batch, 20)
    batch.inputs.page_table[0, :5] = 1 << 30
    assert torch.equal(attend(backend, batch, 20), before)


def test_nan_in_one_sequence_stays_there(backend: CpuBackend) -> None:
    batch = make_batch(SHAPES[0], ((5, 40), (1, 20), (5, 5)))
    before = attend(backend, batch, 0)
    batch.queries()[5] = float("nan")
    after = attend(backend, batch, 0)
    assert after[5].isnan().all()
    assert torch.equal(after[:5], before[:5])
    assert torch.equal(after[6:], before[6:])


def test_extreme_scores(backend: CpuBackend) -> None:
    batch = make_batch(Shape(group=2, kv_heads=1, head_dim=16), ((1, 100),))
    batch.queries().mul_(1e4)
    out = attend(backend, batch, 0)
    scores = (batch.queries()[0].double() @ batch.history(0, 0)[:, 0].double().T) / 4
    expected = scores.softmax(-1) @ batch.history(0, 1)[:, 0].double()
    torch.testing.assert_close(out[0].double(), expected.flatten(), rtol=1e-2, atol=1e-2)


def test_page_numbers_beyond_32_bits_of_elements(backend: CpuBackend) -> None:
    page_numbers = 2 * 1 * 64 * 256
    cache = torch.empty((1 << 31) // page_numbers + 2, 1, 2, 1, 64, 256, dtype=torch.bfloat16)
    last = cache.shape[0] - 1
    inputs = PagedInputs(
        positions=torch.tensor([0]),
        slots=torch.tensor([last * 64 + 1]),
        cu_seqlens=torch.tensor([0, 1], dtype=torch.int32),
        seq_lens=torch.tensor([1], dtype=torch.int32),
        page_table=torch.tensor([[last]], dtype=torch.int32),
        num_decode=1,
        max_query_len=1,
        max_seq_len=1,
    )
    qkv = torch.randn(1, 3 * 256).bfloat16()
    backend.kv_write(qkv, cache, 0, inputs, rope=None, q_norm=None, k_norm=None, eps=0.0)
    assert torch.equal(cache[last, 0, :, 0, 1].flatten(), qkv[0, 256:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_small_operations_are_the_same_for_a_row_alone(
    backend: CpuBackend, dtype: torch.dtype
) -> None:
    x, residual = torch.randn(2, 60, 700).to(dtype)
    weight = torch.randn(700).to(dtype)
    norm = backend.rms_norm(x, weight, 1e-5)
    added, kept = backend.add_rms_norm(x, sums := residual.clone(), weight, 1e-5), residual + x
    gated = backend.silu_mul(x)
    assert torch.equal(sums, kept)
    for i in (0, 31, 59):
        row = slice(i, i + 1)
        assert torch.equal(backend.rms_norm(x[row], weight, 1e-5), norm[row])
        assert torch.equal(
            backend.add_rms_norm(x[row], residual[row].clone(), weight, 1e-5), added[row]
        )
        assert torch.equal(backend.silu_mul(x[row]), gated[row])


def test_silu_at_the_ends_of_the_range(backend: CpuBackend) -> None:
    gate = torch.tensor([[-1e30, -200.0, -88.0, -20.0, -0.0, 0.0, 1e-20, 20.0, 200.0, 1e30]])
    out = backend.silu_mul(torch.cat((gate, torch.ones_like(gate)), dim=1))
    # what lies below the range of normal numbers may be zero
    torch.testing.assert_close(out, torch.nn.functional.silu(gate), rtol=1e-6, atol=1e-35)
    assert backend.silu_mul(torch.tensor([[float("nan"), 1.0]])).isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_silu_of_half_floats(backend: CpuBackend, dtype: torch.dtype) -> None:
    """Over the whole range, each within half a unit of the last place of the exact one, or so."""
    gate = torch.cat((torch.linspace(-100, 100, 4001), torch.logspace(-7, 4.8, 500))).to(dtype)
    gate = torch.cat((gate, -gate, torch.tensor([0.0, -0.0, -6e4, 6e4]).to(dtype)))[None]
    out = backend.silu_mul(torch.cat((gate, torch.ones_like(gate)), dim=1))
    exact = torch.nn.functional.silu(gate.double())
    half_unit = torch.finfo(dtype).eps / 2
    least = 1e-35 if dtype is torch.bfloat16 else 2.0**-25
    torch.testing.assert_close(out.double(), exact, rtol=1.01 * half_unit, atol=least)
    for odd in (float("nan"), float("inf")):
        one = backend.silu_mul(torch.tensor([[odd, 1.0]], dtype=dtype))
        assert torch.equal(one.isnan(), torch.tensor([[odd != odd]]))


def test_writes_of_a_row_are_the_same_alone(backend: CpuBackend) -> None:
    shape = replace(SHAPES[0], head_dim=48)
    batch = make_batch(shape, ((40, 50),))
    single = batch.clone()
    rope = make_rope(batch, 40)
    norm = torch.rand(48).bfloat16()
    options = {"q_norm": norm, "k_norm": norm, "eps": 1e-6}
    backend.kv_write(batch.qkv, batch.cache, LAYER, batch.inputs, rope=rope, **options)
    for row in range(40):
        _, inputs = part(single, 0, row, row + 1)
        backend.kv_write(
            single.qkv[row : row + 1], single.cache, LAYER, inputs, rope=rope[row, None], **options
        )
    assert torch.equal(single.qkv, batch.qkv)
    assert torch.equal(single.cache.nan_to_num(9), batch.cache.nan_to_num(9))
