"""A cache whose layers lie one after another, each with all pages, as the CPU's engine has it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pagedd_kernels.backend import Backend
from pagedd_kernels.reference import TorchBackend
from tests.kernels.batches import LAYER, Shape, make_batch, make_rope
from tests.kernels.cpu_isas import NEEDED, backend_of

SHAPE = Shape(group=2, kv_heads=2, head_dim=24, page_size=5)
SEQUENCES = ((1, 17), (3, 8), (1, 6))


def layers_apart(cache: Tensor) -> Tensor:
    """The same pages, but all of a layer side by side in memory."""
    apart = torch.empty_like(cache.transpose(0, 1), memory_format=torch.contiguous_format)
    return apart.copy_(cache.transpose(0, 1)).transpose(0, 1)


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.nan_to_num(9), b.nan_to_num(9))


@pytest.fixture(params=[*NEEDED, "torch"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return TorchBackend() if request.param == "torch" else backend_of(request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_keys_are_written_and_read(backend: Backend, dtype: torch.dtype) -> None:
    batch = make_batch(SHAPE.on("cpu", dtype), SEQUENCES)
    caches = batch.cache.clone(), layers_apart(batch.cache)
    assert not caches[1].is_contiguous()
    rope = make_rope(batch, 24)
    outs = []
    for cache in caches:
        q = backend.kv_write(
            batch.qkv.clone(), cache, LAYER, batch.inputs,
            rope=rope, q_norm=None, k_norm=None, eps=1e-5,
        )  # fmt: skip
        outs.append(backend.paged_attention(q, cache, LAYER, batch.inputs, scale=0.2))
    assert outs[0].isfinite().all()
    assert torch.equal(*outs)
    assert same(*caches)
    assert not same(caches[0], batch.cache)


@pytest.mark.parametrize(("to_host", "to_device"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("part", [(2, 2, 5, 24), (1, 70_001), (3, 131_072)])
def test_pages_are_copied(
    backend: Backend, part: tuple[int, ...], to_host: bool, to_device: bool
) -> None:
    """Short parts, several at a time; and long ones, in pieces. Within the device: parts alike."""
    generator = torch.Generator().manual_seed(0)
    pages = [
        torch.randint(0, 256, (6, 3, *part), dtype=torch.uint8, generator=generator) for _ in "ab"
    ]
    source = pages[0] if to_device else layers_apart(pages[0])
    target = pages[1].clone() if to_host else layers_apart(pages[1])
    pairs = torch.tensor([[4, 1], [0, 5], [2, 0], [4, 3]])
    backend.page_copy(source, target, pairs)
    expected = pages[1].clone()
    for src, dst in pairs.tolist():
        expected[dst] = pages[0][src]
    assert torch.equal(target, expected)
    assert torch.equal(source, pages[0])


def test_a_page_is_copied_within_the_cache(backend: Backend) -> None:
    cache = make_batch(SHAPE, SEQUENCES).cache
    apart = layers_apart(cache)
    backend.page_copy(apart, apart, torch.tensor([[3, 0], [5, 1]]))
    cache[0], cache[1] = cache[3].clone(), cache[5].clone()
    assert same(apart, cache)


@pytest.mark.parametrize("isa", NEEDED)
def test_gaps_within_a_layers_part_are_refused(isa: str) -> None:
    gaps = torch.zeros(4, 2, 2, 1, 5, 16)[..., ::2]
    with pytest.raises(AssertionError):
        backend_of(isa).page_copy(gaps, gaps.clone(), torch.tensor([[0, 1]]))
