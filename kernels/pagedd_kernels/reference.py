"""Every operation in plain torch: the specification the other backends are tested against, and
the fallback where none of them can serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pagedd_kernels.graph_backend import KernelShape, Progress
from pagedd_kernels.inputs import FP8, PagedInputs, SamplingInputs
from pagedd_kernels.quantized import BlockQuantized, dense
from pagedd_kernels.sampling import sample

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


def refused_dtype(dtype: torch.dtype, cache_dtype: torch.dtype | None) -> str | None:
    """Why no backend takes activations of ``dtype`` beside such a cache; None if one may."""
    if dtype not in DTYPES:
        return f"{dtype} is no activation dtype"
    if cache_dtype not in (None, dtype, *FP8):
        return f"a cache of {cache_dtype} beside activations of {dtype} is not served"
    return None


class TorchBackend:
    """The reference; any device, any float dtype."""

    name = "torch"
    quantized = False
    capturable = False  # attention looks at the lengths on the host

    @staticmethod
    def unavailable(
        device: torch.device, dtype: torch.dtype, cache_dtype: torch.dtype | None = None
    ) -> str | None:
        """Only dtypes are refused."""
        return refused_dtype(dtype, cache_dtype)

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
        scales = _scales(cache, inputs, layer)
        for kind, x in enumerate((k, v)):
            cache[:, layer, kind][page, :, offset] = to_cache(x[kept], cache.dtype, scales[kind])
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
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> Tensor:
        """Gathers each sequence's pages, then plain attention: see ``GraphBackend``."""
        if out is None:
            out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2])
        out.zero_()
        if lse is not None:
            lse.fill_(-torch.inf)
        scales = _scales(cache, inputs, layer)
        ends = inputs.cu_seqlens.tolist()
        for i, length in enumerate(inputs.seq_lens.tolist()):
            start, end = ends[i], ends[i + 1]
            if length and end > start:
                rows = q[start:end]
                k, v, first = _gather(
                    cache[:, layer], inputs.page_table[i], length, length - len(rows), window
                )
                k, v = k * scales[0], v * scales[1]
                mask = _mask(len(rows), length, first, window, q.device)
                out[start:end] = _attend(rows, k, v, mask, scale)
                if lse is not None:
                    lse[start:end] = _log_sum_exp(rows, k, mask, scale)
        return out

    def page_copy(self, source: Tensor, target: Tensor, pairs: Tensor) -> None:
        """See ``GraphBackend.page_copy``."""
        if source.device.type != "cpu":
            pairs = pairs[(pairs >= 0).all(dim=1)]
            target[pairs[:, 1]] = source[pairs[:, 0]]
            return
        for src, dst in pairs.tolist():  # the same without a copy of all pages in between
            if src >= 0 and dst >= 0:
                target[dst] = source[src]

    def page_gather(self, source: Tensor, pages: Tensor, target: Tensor) -> None:
        """See ``GraphBackend.page_gather``."""
        order = torch.arange(len(pages), device=pages.device)
        self.page_copy(source, target, torch.stack((pages, order), dim=1))

    def page_scatter(self, source: Tensor, pages: Tensor, target: Tensor) -> None:
        """See ``GraphBackend.page_scatter``."""
        order = torch.arange(len(pages), device=pages.device)
        self.page_copy(source, target, torch.stack((order, pages), dim=1))

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

    def sample(self, logits: Tensor, inputs: SamplingInputs, out: Tensor | None = None) -> Tensor:
        """See ``GraphBackend.sample``."""
        tokens = sample(logits, inputs)
        return tokens if out is None else out.copy_(tokens)

    def warm_up(self, shape: KernelShape, device: torch.device, progress: Progress) -> None:
        """See ``GraphBackend.warm_up``: there is nothing to compile."""


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


def to_cache(x: Tensor, dtype: torch.dtype, scale: Tensor | float) -> Tensor:
    """``x`` as a cache of ``dtype`` holds it: divided by ``scale`` and saturated if in 8 bits."""
    if dtype not in FP8:
        return x.to(dtype)
    most = torch.finfo(dtype).max
    return (x.float() / scale).clamp(-most, most).to(dtype)


def _scales(
    cache: Tensor, inputs: PagedInputs, layer: int
) -> tuple[Tensor | float, Tensor | float]:
    """Of the keys and of the values of a layer."""
    if inputs.kv_scales is None or cache.dtype not in FP8:
        return 1.0, 1.0
    return inputs.kv_scales[layer, 0], inputs.kv_scales[layer, 1]


def _gather(
    cache: Tensor, pages: Tensor, length: int, first_position: int, window: int
) -> tuple[Tensor, Tensor, int]:
    """Keys and values that the rows from ``first_position`` on may see, and where they begin.

    ``cache [num_pages, 2, kv_heads, page_size, head_dim]`` (one layer), ``pages [≥ ceil(length /
    page_size)]`` → two float32 ``[kv_heads, keys, head_dim]``. Slots past ``length`` and pages
    before the first row's window are never read.
    """
    page_size = cache.shape[3]
    first_page = max(0, first_position - window + 1) // page_size if window else 0
    used = pages[first_page : -(-length // page_size)]
    begin = first_page * page_size  # position of the first key gathered
    # by index: few operations know the dtypes of 8 bits
    gathered = cache[used.long()].permute(1, 2, 0, 3, 4).flatten(2, 3)
    k, v = gathered[:, :, : length - begin].float()
    return k, v, begin


def _mask(rows: int, length: int, begin: int, window: int, device: torch.device) -> Tensor | None:
    """Which of the keys ``begin … length - 1`` each of the last ``rows`` positions sees."""
    if rows == 1 and not window:
        return None
    query = torch.arange(length - rows, length, device=device)[:, None]
    key = torch.arange(begin, length, device=device)[None, :]
    mask = key <= query
    return mask & (key > query - window) if window else mask


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """``q [rows, heads, head_dim]``, ``k``, ``v [kv_heads, keys, head_dim]`` float32, ``mask
    [rows, keys]`` → ``[rows, heads·head_dim]``.
    """
    queries = q.transpose(0, 1).float()
    out = F.scaled_dot_product_attention(
        queries[None], k[None], v[None], attn_mask=mask, scale=scale, enable_gqa=True
    )
    return out[0].transpose(0, 1).flatten(1).to(q.dtype)


def _log_sum_exp(q: Tensor, k: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Logarithm of the sum of exp(score) of each row and head: ``[rows, heads]`` float32."""
    keys = k.repeat_interleave(q.shape[1] // k.shape[0], dim=0)
    scores = torch.einsum("rhd,hkd->rhk", q.float(), keys) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    return scores.logsumexp(dim=-1)
