"""All layers in one call: the same bits as the operations one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from pagedd_kernels.cpu.backend import CpuBackend
from pagedd_kernels.cpu.weights import Linear
from pagedd_kernels.inputs import PagedInputs
from tests.kernels.batches import LAYERS, Batch, Shape, make_batch, make_rope
from tests.kernels.cpu_isas import NEEDED, backend_of

HIDDEN, FFN = 96, 200
EPS = 1e-5


@pytest.fixture(params=list(NEEDED))
def backend(request: pytest.FixtureRequest) -> CpuBackend:
    return backend_of(request.param)


@dataclass(frozen=True)
class Weights:
    input_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear
    window: int
    rope: bool


def make_weights(backend: CpuBackend, shape: Shape, *, normed: bool) -> list[Weights]:
    """Two layers: one with a window and rope, one without."""
    generator = torch.Generator().manual_seed(0)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(shape.dtype)

    def matrix(n: int, k: int) -> Linear:
        return backend.linear(random(n, k) / k**0.5, random(n))

    attended = shape.heads * shape.head_dim
    width = attended + 2 * shape.kv_heads * shape.head_dim
    norm = random(shape.head_dim) if normed else None
    first = Weights(
        random(HIDDEN),
        matrix(width, HIDDEN),
        norm,
        norm,
        matrix(HIDDEN, attended),
        random(HIDDEN),
        matrix(2 * FFN, HIDDEN),
        matrix(HIDDEN, FFN),
        window=20,
        rope=True,
    )
    second = replace(first, input_norm=random(HIDDEN), qkv=matrix(width, HIDDEN))
    return [first, replace(second, window=0, rope=False)]


def one_by_one(
    backend: CpuBackend,
    weights: list[Weights],
    final_norm: Tensor,
    residual: Tensor,
    cache: Tensor,
    inputs: PagedInputs,
    rope: Tensor,
) -> Tensor:
    x = backend.rms_norm(residual, weights[0].input_norm, EPS)
    for i, w in enumerate(weights):
        norms = {"q_norm": w.q_norm, "k_norm": w.k_norm, "eps": EPS}
        q = backend.kv_write(w.qkv(x), cache, i, inputs, rope=rope if w.rope else None, **norms)
        x = backend.paged_attention(q, cache, i, inputs, scale=0.17, window=w.window)
        x = backend.add_rms_norm(w.output(x), residual, w.post_norm, EPS)
        x = w.down(backend.silu_mul(w.gate_up(x)))
        norm = final_norm if i + 1 == len(weights) else weights[i + 1].input_norm
        x = backend.add_rms_norm(x, residual, norm, EPS)
    return x


def filled(batch: Batch) -> Batch:
    """The same with keys and values in every layer."""
    generator = torch.Generator().manual_seed(1)
    cache = torch.randn(batch.cache.shape, generator=generator).to(batch.cache.dtype)
    assert cache.shape[1] == LAYERS
    return replace(batch, cache=cache)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
def test_a_stack_is_its_operations(backend: CpuBackend, dtype: torch.dtype, normed: bool) -> None:
    shape = Shape(group=3, kv_heads=2, head_dim=24, page_size=8, dtype=dtype)
    weights = make_weights(backend, shape, normed=normed)
    final_norm = torch.rand(HIDDEN).to(dtype)
    stack = backend.stack(weights, final_norm, eps=EPS, scale=0.17)
    for sequences in (((1, 1),), ((1, 30), (1, 9), (40, 70)), ((1, 600), (1, 5))):
        batch = filled(make_batch(shape, sequences))
        other = batch.clone()
        rope = make_rope(batch, shape.head_dim)
        residual = torch.randn(batch.qkv.shape[0], HIDDEN).to(dtype)
        arguments = (residual.clone(), other.cache, batch.inputs, rope)
        expected = one_by_one(backend, weights, final_norm, *arguments)
        every = torch.arange(len(residual))
        for rows in (None, every[::3].contiguous(), every[-1:], every[:0]):
            out = stack(residual.clone(), batch.cache, batch.inputs, rope, rows)
            assert torch.equal(out, expected if rows is None else expected[rows])
        assert torch.equal(batch.cache, other.cache)
        assert expected.isfinite().all()


def test_a_stack_outlives_its_weights_names(backend: CpuBackend) -> None:
    shape = Shape(dtype=torch.bfloat16)
    batch = filled(make_batch(shape, ((2, 5),)))
    rope = make_rope(batch, shape.head_dim)
    residual = torch.randn(2, HIDDEN).bfloat16()
    results = []
    for _ in range(2):
        stack = backend.stack(
            make_weights(backend, shape, normed=True),
            torch.ones(HIDDEN).bfloat16(),
            eps=EPS,
            scale=0.25,
        )
        cache = batch.cache.clone()
        results.append(stack(residual.clone(), cache, batch.inputs, rope))
    assert torch.equal(results[0], results[1])
