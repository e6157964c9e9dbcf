"""Every operation in plain torch: the specification the other backends are tested against, and
the fallback where none of them can serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pagedd_kernels.inputs import PagedInputs
from pagedd_kernels.quantized import BlockQuantized, dense

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def normalise(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm over the last dimension (Zhang & Sennrich 2019), float32 in the result."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()


def rotate(x: Tensor, rope: Tensor) -> Tensor:
    """Rotary embedding (Su et al. 2021), half-split pairing.

    ``x [tokens, heads, head_dim]``, ``rope [tokens, rope_dim]`` float32 (cosines, sines) →
    float32 like ``x``; dimension i < rope_dim/2 turns with i + rope_dim/2.
    """
    half = rope.shape[-1] // 2
    cos, sin = rope[:, None, :half], rope[:, None, half:]
    x = x.float()
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


class TorchBackend:
    """The reference; any device, any float dtype."""

    name = "torch"
    quantized = False

    @staticmethod
    def unavailable(device: torch.device, dtype: torch.dtype) -> str | None:
        """Only a dtype that is no activation dtype is refused."""
        return None if dtype in DTYPES else f"{dtype} is no activation dtype"

    def kv_write(
        self,
        qkv: Tensor,
        cache: Tensor,
        layer: int,
        inputs: PagedInputs,
        *,
        rope: Tensor | None,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
    ) -> Tensor:
        """See ``Backend.kv_write``."""
        kv_heads, page_size, head_dim = cache.shape[3:]
        rows = qkv.view(qkv.shape[0], -1, head_dim)
        heads = rows.shape[1] - 2 * kv_heads
        q, k, v = rows[:, :heads], rows[:, heads:-kv_heads], rows[:, -kv_heads:]
        for x, norm in ((q, q_norm), (k, k_norm)):
            turned = x if norm is None else normalise(x, norm, eps)
            if rope is not None:
                turned = rotate(turned, rope)
            x.copy_(turned)
        kept = inputs.slots >= 0
        page, offset = inputs.slots[kept] // page_size, inputs.slots[kept] % page_size
        cache[:, layer, 0][page, :, offset] = k[kept]
        cache[:, layer, 1][page, :, offset] = v[kept]
        return q

    def paged_attention(
        self,
        q: Tensor,
        cache: Tensor,
        layer: int,
        inputs: PagedInputs,
        *,
        scale: float,
        window: int = 0,
    ) -> Tensor:
        """See ``Backend.paged_attention``: gathers each sequence's pages, then plain attention."""
        out = q.new_zeros(q.shape[0], q.shape[1] * q.shape[2])
        ends = inputs.cu_seqlens.tolist()
        for i, length in enumerate(inputs.seq_lens.tolist()):
            start, end = ends[i], ends[i + 1]
            if length and end > start:
                pages = inputs.page_table[i]
                out[start:end] = _attend(
                    q[start:end], cache[:, layer], pages, length, scale, window
                )
        return out

    def page_copy(self, source: Tensor, target: Tensor, pairs: Tensor) -> None:
        """See ``Backend.page_copy``."""
        if source.device.type != "cpu":
            target[pairs[:, 1]] = source[pairs[:, 0]]
            return
        for src, dst in pairs.tolist():  # the same without a copy of all pages in between
            target[dst] = source[src]

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See ``Backend.rms_norm``."""
        return normalise(x, weight, eps).to(x.dtype)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See ``Backend.add_rms_norm``; the norm sees the sum as it is stored."""
        return self.rms_norm(residual.add_(x), weight, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See ``Backend.silu_mul``."""
        gate, up = gate_up.float().chunk(2, dim=-1)
        return (F.silu(gate) * up).to(gate_up.dtype)

    def linear(
        self,
        weight: Tensor | BlockQuantized,
        bias: Tensor | None,
        out_dtype: torch.dtype | None = None,
    ) -> Linear:
        """See ``Backend.linear``; the weight is kept as it is, the sums are rounded once."""
        return Linear(dense(weight), bias, out_dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """``x [rows, in]`` · ``weight [out, in]``ᵀ + bias → ``[rows, out]`` in ``out_dtype``."""

    weight: Tensor
    bias: Tensor | None
    out_dtype: torch.dtype | None  # None: that of x

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Weight and bias."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def __call__(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        return y if self.out_dtype is None else y.to(self.out_dtype)


def _attend(
    q: Tensor, cache: Tensor, pages: Tensor, length: int, scale: float, window: int
) -> Tensor:
    """Attention of one sequence's last rows over its ``length`` tokens.

    ``q [rows, heads, head_dim]``, ``cache [num_pages, 2, kv_heads, page_size, head_dim]`` (one
    layer), ``pages [≥ ceil(length / page_size)]`` → ``[rows, heads·head_dim]``. Slots past
    ``length`` and pages before the first row's window are never read.
    """
    rows, page_size = q.shape[0], cache.shape[3]
    first_position = length - rows
    first_page = max(0, first_position - window + 1) // page_size if window else 0
    used = pages[first_page : -(-length // page_size)]
    begin = first_page * page_size  # position of the first key gathered
    gathered = cache.index_select(0, used).permute(1, 2, 0, 3, 4).flatten(2, 3)
    k, v = gathered[:, :, : length - begin].float()
    mask = None
    if rows > 1 or window:
        query = torch.arange(first_position, length, device=q.device)[:, None]
        key = torch.arange(begin, length, device=q.device)[None, :]
        mask = key <= query
        if window:
            mask &= key > query - window
    queries = q.transpose(0, 1).float()
    out = F.scaled_dot_product_attention(
        queries[None], k[None], v[None], attn_mask=mask, scale=scale, enable_gqa=True
    )
    return out[0].transpose(0, 1).flatten(1).to(q.dtype)
