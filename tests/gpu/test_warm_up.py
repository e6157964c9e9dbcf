"""After a warm-up no launch compiles anything: what a graph's capture relies on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pagedd_kernels.backend import select_backend
from pagedd_kernels.graph_backend import GraphBackend
from tests.kernels.batches import LAYER, Shape, make_batch, make_rope

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = torch.device("cuda")


@pytest.mark.parametrize("cache_dtype", [torch.bfloat16, torch.float8_e5m2], ids=str)
def test_no_launch_compiles_after_a_warm_up(cache_dtype: torch.dtype) -> None:
    # imported here: a machine without Triton collects this file too
    from pagedd_kernels.triton_.attention import attention_kernel, merge_splits_kernel
    from pagedd_kernels.triton_.gate import TYPICAL
    from pagedd_kernels.triton_.kv_write import kv_write_kernel

    backend = select_backend(DEVICE, torch.bfloat16, "triton", cache_dtype).backend
    assert isinstance(backend, GraphBackend)
    fp8 = None if cache_dtype == torch.bfloat16 else cache_dtype
    geometry = Shape(group=3, head_dim=80, page_size=8, fp8=fp8).on("cuda", torch.bfloat16)
    shape = replace(
        TYPICAL,
        num_layers=2,
        num_heads=geometry.heads,
        num_kv_heads=geometry.kv_heads,
        head_dim=80,
        rope_dim=80,
        page_size=8,
        max_num_seqs=12,
        max_model_len=2000,
        cache_dtype=cache_dtype,
    )
    told: list[tuple[int, int, str]] = []
    backend.warm_up(shape, DEVICE, lambda *step: told.append(step))
    assert [done for done, _, _ in told] == list(range(len(told)))
    kernels = (attention_kernel, merge_splits_kernel, kv_write_kernel)

    def compiled() -> list[int]:
        return [len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in kernels]

    before = compiled()
    for sequences in (((1, 1900),), ((1, 9), (2, 5), (7, 7)), ((100, 300), (20, 20))):
        batch = make_batch(geometry, sequences)
        backend.paged_attention(batch.queries(), batch.cache, LAYER, batch.inputs, scale=0.1)
        norms = {"rope": make_rope(batch, 80), "q_norm": None, "k_norm": None, "eps": 1e-5}
        backend.kv_write(batch.qkv, batch.cache, LAYER, batch.inputs, **norms)
    assert compiled() == before
