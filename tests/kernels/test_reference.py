"""The reference against torch's attention on contiguous keys and transformers' functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from pagedd_kernels.reference import TorchBackend
from tests.kernels.batches import LAYER, Batch, Shape, make_batch, make_rope

REFERENCE = TorchBackend()
SEQUENCES = ((1, 1), (1, 16), (1, 17), (7, 7), (5, 21), (16, 32))


def contiguous_attention(batch: Batch, window: int) -> torch.Tensor:
    """Each sequence by torch's attention, over all its keys with an explicit mask."""
    queries = batch.queries()
    outs = []
    for i, (rows, length) in enumerate(batch.sequences):
        start = int(batch.inputs.cu_seqlens[i])
        key, value = (
            batch.history(i, kind).transpose(0, 1).repeat_interleave(batch.shape.group, dim=0)
            for kind in (0, 1)
        )
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        if window:
            seen &= ~torch.ones(length, length, dtype=torch.bool).tril(-window)
        out = F.scaled_dot_product_attention(
            queries[start : start + rows].transpose(0, 1),
            key,
            value,
            attn_mask=seen[length - rows :],
            scale=0.2,
        )
        outs.append(out.transpose(0, 1).flatten(1))
    return torch.cat(outs)


@pytest.mark.parametrize("window", [0, 1, 5, 100])
@pytest.mark.parametrize("group", [1, 2, 4, 7, 8])
@pytest.mark.parametrize("page_size", [1, 5, 16, 48])
def test_attention_is_torch_attention(group: int, page_size: int, window: int) -> None:
    batch = make_batch(Shape(group=group, head_dim=24, page_size=page_size), SEQUENCES)
    out = REFERENCE.paged_attention(
        batch.queries(), batch.cache, LAYER, batch.inputs, scale=0.2, window=window
    )
    torch.testing.assert_close(out, contiguous_attention(batch, window))


def test_norm_and_rotation_are_those_of_transformers() -> None:
    shape = Shape(group=3, head_dim=16)
    batch = make_batch(shape, ((1, 9), (4, 30)))
    norms = [torch.rand(16) + 0.5, torch.rand(16) + 0.5]
    rope = make_rope(batch, 16)
    rows = batch.qkv.view(5, -1, 16)
    q, k, v = rows.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
    normed = []
    for x, weight in zip((q, k), norms, strict=True):
        norm = LlamaRMSNorm(16, eps=1e-6)
        norm.weight.data = weight
        normed.append(norm(x))
    cos, sin = (half.repeat(1, 2) for half in rope.chunk(2, dim=-1))
    expected_q, expected_k = apply_rotary_pos_emb(*normed, cos, sin, unsqueeze_dim=1)
    expected_v = v.clone()
    out = REFERENCE.kv_write(
        batch.qkv,
        batch.cache,
        LAYER,
        batch.inputs,
        rope=rope,
        q_norm=norms[0],
        k_norm=norms[1],
        eps=1e-6,
    )
    torch.testing.assert_close(out, expected_q.detach())
    for kind, expected in enumerate((expected_k.detach(), expected_v)):
        written = torch.cat([batch.history(0, kind)[-1:], batch.history(1, kind)[-4:]])
        torch.testing.assert_close(written, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_row_operations_are_those_of_transformers(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, residual = torch.randn(2, 5, 40).to(dtype)
    norm = LlamaRMSNorm(40, eps=1e-5)
    norm.weight.data = torch.rand(40).to(dtype)
    with torch.no_grad():
        expected, expected_sum = norm(x), norm(residual + x)
    bound = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    weight = norm.weight.data
    torch.testing.assert_close(REFERENCE.rms_norm(x, weight, 1e-5), expected, **bound)
    out = REFERENCE.add_rms_norm(x, residual, weight, 1e-5)
    torch.testing.assert_close(out, expected_sum, **bound)
    gate_up = torch.randn(5, 24).to(dtype)
    gate, up = gate_up.chunk(2, dim=-1)
    torch.testing.assert_close(REFERENCE.silu_mul(gate_up), F.silu(gate) * up, **bound)
