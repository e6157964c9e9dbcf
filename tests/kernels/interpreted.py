"""What concerns the Triton kernels alone, on CPU tensors; run by ``test_triton.py`` in a process
with TRITON_INTERPRET=1, as Triton's interpreter must be chosen before Triton is imported.
"""

from __future__ import annotations

import pytest
import torch

from pagedd_kernels import aot
from pagedd_kernels.reference import TorchBackend
from pagedd_kernels.triton_.attention_launch import paged_attention
from pagedd_kernels.triton_.backend import TritonBackend
from tests.kernels.batches import LAYER, TOLERANCE, Shape, make_batch, make_rope

REFERENCE = TorchBackend()


@pytest.mark.parametrize("splits", [2, 8, pytest.param(32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("window", [0, 70])
def test_splits_of_the_keys_merge_to_the_whole(splits: int, window: int) -> None:
    # lengths below `splits` tiles of keys leave some splits empty
    shape = Shape(group=3, kv_heads=1, head_dim=24, page_size=48)
    batch = make_batch(shape, ((1, 1), (1, 65), (1, 300), (3, 5)))
    arguments = (batch.queries(), batch.cache, LAYER, batch.inputs)
    lse = torch.empty(batch.qkv.shape[0], shape.heads)
    launches, out = paged_attention(
        *arguments, scale=0.2, window=window, architecture=80, splits=splits, lse=lse
    )
    for launch in launches:
        launch.run()
    whole = torch.empty_like(lse)
    expected = REFERENCE.paged_attention(*arguments, scale=0.2, window=window, lse=whole)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse, whole, rtol=1e-5, atol=1e-5)


def test_a_split_padding_sequence_is_zero() -> None:
    batch = make_batch(Shape(kv_heads=1), ((1, 9), (1, 5)))
    batch.inputs.seq_lens[1] = 0
    lse = torch.zeros(2, batch.shape.heads)
    launches, out = paged_attention(
        batch.queries(),
        batch.cache,
        LAYER,
        batch.inputs,
        scale=0.2,
        window=0,
        architecture=90,
        splits=4,
        lse=lse,
    )
    for launch in launches:
        launch.run()
    assert out[0].isfinite().all()
    assert out[1].eq(0).all()
    assert lse[0].isfinite().all()
    assert lse[1].eq(-torch.inf).all()


@pytest.mark.parametrize("group", [5, 6, 20])
def test_groups_that_do_not_divide_a_tile(group: int) -> None:
    rows = 240 // group  # two tiles and more
    batch = make_batch(Shape(group=group, kv_heads=1), ((1, 9), (2, 4), (rows, rows)))
    arguments = (batch.queries(), batch.cache, LAYER, batch.inputs)
    out = TritonBackend().paged_attention(*arguments, scale=0.2)
    expected = REFERENCE.paged_attention(*arguments, scale=0.2)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


GRID = [  # group, head size, page size
    *((1, 16, 64), (2, 40, 3), (3, 112, 16), (4, 80, 1)),
    *((5, 96, 7), (6, 72, 64), (7, 128, 33), (8, 256, 16)),
]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("group", "head_dim", "page_size"), GRID)
def test_a_grid_of_shapes(group: int, head_dim: int, page_size: int, dtype: torch.dtype) -> None:
    """Sequences of one token, without rows in this step, without any token; padding slots."""
    shape = Shape(group, 1, head_dim, page_size, dtype)
    batch = make_batch(shape, ((1, 70), (1, 1), (5, 66), (0, 0), (0, 9), (1, 1), (3, 3)))
    attention = (batch.queries(), batch.cache, LAYER, batch.inputs)
    for window in (0, 33):
        out = TritonBackend().paged_attention(*attention, scale=0.1, window=window)
        assert out.isfinite().all()
        expected = REFERENCE.paged_attention(*attention, scale=0.1, window=window)
        close(out, expected)
    batch.inputs.slots[::3] = -1
    other = batch.clone()
    norm = torch.rand(head_dim).to(dtype)
    options = {"rope": make_rope(batch, head_dim // 2), "q_norm": norm, "k_norm": norm, "eps": 1e-6}
    for backend, of in ((TritonBackend(), batch), (REFERENCE, other)):
        backend.kv_write(of.qkv, of.cache, LAYER, of.inputs, **options)
    close(batch.qkv, other.qkv)
    close(batch.cache, other.cache)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    bound = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound, equal_nan=True)


def test_offsets_beyond_31_bits() -> None:
    """Pages far apart in a sparse allocation of 4 GiB, of which a few pages are ever touched."""
    batch = make_batch(Shape(dtype=torch.float16), ((1, 7), (3, 5)))
    apart = 2**31 // (batch.cache.shape[0] - 1) + 1
    memory = torch.empty(apart * batch.cache.shape[0], dtype=torch.float16)
    far = memory.as_strided(batch.cache.shape, (apart, *batch.cache.stride()[1:]))
    far.copy_(batch.cache)
    backend = TritonBackend()
    for cache in (batch.cache, far):
        batch.qkv.fill_(0.5)
        backend.kv_write(
            batch.qkv, cache, LAYER, batch.inputs, rope=None, q_norm=None, k_norm=None, eps=0.0
        )
    assert torch.equal(far.nan_to_num(9), batch.cache.nan_to_num(9))
    near_out, far_out = (
        backend.paged_attention(batch.queries(), cache, LAYER, batch.inputs, scale=0.2)
        for cache in (batch.cache, far)
    )
    assert torch.equal(far_out, near_out)


def test_the_interpreter_serves_cpu_tensors_only() -> None:
    assert TritonBackend.unavailable(torch.device("cpu"), torch.float32) is None
    reason = TritonBackend.unavailable(torch.device("cuda"), torch.float32)
    assert reason is not None
    assert "CPU tensors only" in reason


def test_the_ahead_of_time_check_refuses_the_interpreter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert aot.main([]) == 2
    assert capsys.readouterr().err.startswith("unset TRITON_INTERPRET")
